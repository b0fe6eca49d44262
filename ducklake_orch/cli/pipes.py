"""A write that Dagster has started elsewhere by Pipes: the event log gets what the IO manager would have told it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import MissingExtraError
from ducklake_orch.results import CommitInfo, WriteResult

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

    from ducklake_orch.lake import DuckLake

# Dagster sets it for the processes that it starts.
_STARTED = "DAGSTER_PIPES_CONTEXT"


@contextmanager
def pipes() -> "Iterator[Pipes | None]":
    """Give what tells Dagster about a write, for a block; None where no Dagster listens."""
    if _STARTED not in os.environ:
        yield None
        return
    try:
        from dagster_pipes import open_dagster_pipes
    except ImportError as error:
        raise MissingExtraError(
            "Dagster listens to this process, which cannot speak to it.", remedy="pip install dagster-pipes"
        ) from error
    with open_dagster_pipes() as context:
        yield Pipes(context)


class Pipes:
    """Speaks to the Dagster that has started this process.

    Args:
        context: Its end of the pipes.
    """

    def __init__(self, context: "PipesContext") -> None:
        self._context = context

    def idempotency_key(self, *what: Any) -> str:
        """Return a key that is the same for all attempts at a write: its run, what it makes, and how.

        Without `pipes_extras(context)`, nothing is known of the run that this one goes on with, or of the step.

        Args:
            *what: All that tells this write from others of the step.
        """
        from ducklake_orch.slices.vocabulary import bounded_key

        begun = self._step.get("began_in", self._context.run_id)
        whole = (self._made, self._partitions, self._step.get("step"), what)
        return bounded_key(f"dagster:{begun}:{self._made[:100]}", *whole)

    @property
    def commit(self) -> CommitInfo:
        """What the snapshot says about the run."""
        context = self._context
        about: dict[str, Any] = {"run_id": context.run_id, "job": context.job_name}
        if self._made:
            about["asset"] = self._made
        if "step" in self._step:
            about["step"] = self._step["step"]
        if self._partitions:
            about["partitions"] = self._partitions
        return CommitInfo("dagster", f"run {context.run_id}", {"dagster": about})

    @property
    def _made(self) -> str:
        return ", ".join(self._context.asset_keys) if self._context.is_asset_step else ""

    @property
    def _step(self) -> dict[str, str]:
        """What `pipes_extras` has said."""
        return dict(self._context.extras.get("ducklake") or {})

    @property
    def _partitions(self) -> list[str]:
        context = self._context
        if not context.is_partition_step:
            return []
        span = context.partition_key_range
        return sorted({span["start"], span["end"]})

    def report(self, lake: "DuckLake", table: TableName, result: WriteResult) -> None:
        """Tell what a write has done."""
        from ducklake_orch.slices.vocabulary import told_of

        columns = [
            {
                "name": column.name,
                "type": column.type,
                "description": column.comment,
                "constraints": {"nullable": column.nullable, "unique": False, "other": []},
                "tags": {"partition": column.partition} if column.partition else {},
            }
            for column in lake.table(str(table)).schema(snapshot=result.snapshot_id)
        ]
        schema = {"raw_value": {"columns": columns, "constraints": {"other": []}}, "type": "table_schema"}
        told: dict[str, Any] = {**told_of(lake, table, result), "dagster/column_schema": schema}
        if self._context.is_asset_step:
            self._context.report_asset_materialization(metadata=told)
        self._context.log.info(str(result))
