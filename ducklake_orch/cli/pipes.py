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

    @property
    def idempotency_key(self) -> str:
        """The same for all attempts of the step: its run, what it makes, and which partition of it."""
        from ducklake_orch.slices.vocabulary import bounded_key

        context = self._context
        made = ", ".join(context.asset_keys) if context.is_asset_step else ""
        return bounded_key(f"dagster:{context.run_id}:{made[:100]}", made, self._partitions)

    @property
    def commit(self) -> CommitInfo:
        """What the snapshot says about the run."""
        context = self._context
        about: dict[str, Any] = {"run_id": context.run_id, "job": context.job_name}
        if context.is_asset_step:
            about["asset"] = ", ".join(context.asset_keys)
        if self._partitions:
            about["partitions"] = self._partitions
        return CommitInfo("dagster", f"run {context.run_id}", {"dagster": about})

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
