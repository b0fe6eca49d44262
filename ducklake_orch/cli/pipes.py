"""Reports a write in a process that Dagster Pipes started, with the same metadata as the IO manager reports."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import MissingExtraError
from ducklake_orch.install_commands import install_packages
from ducklake_orch.results import CommitInfo, WriteResult

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

    from ducklake_orch.lake import DuckLake

# Dagster sets this variable for the processes that it starts.
_STARTED = "DAGSTER_PIPES_CONTEXT"


@contextmanager
def pipes() -> "Iterator[Pipes | None]":
    """Yield the connection to Dagster for a `with` block; None if Dagster did not start this process."""
    if _STARTED not in os.environ:
        yield None
        return
    try:
        from dagster_pipes import open_dagster_pipes
    except ImportError as error:
        raise MissingExtraError(
            "Dagster Pipes started this process, but `dagster-pipes` is not installed.",
            remedy=install_packages("dagster-pipes"),
        ) from error
    with open_dagster_pipes() as context:
        yield Pipes(context)


class Pipes:
    """Reports to the Dagster instance that started this process.

    Args:
        context: The Pipes context of this process.
    """

    def __init__(self, context: "PipesContext") -> None:
        self._context = context

    def idempotency_key(self, *what: Any) -> str:
        """Return an idempotency key that all attempts at a write share: its run, its assets, and its arguments.

        Without `pipes_extras(context)`, neither the step nor the run that a re-execution continues is known.

        Args:
            *what: Values that distinguish this write from other writes of the step.
        """
        from ducklake_orch.host_partitions.metadata_keys import bounded_key

        run_id = self._step.get("began_in", self._context.run_id)
        parts = (self._assets, self._partitions, self._step.get("step"), what)
        return bounded_key(f"dagster:{run_id}:{self._assets[:100]}", *parts)

    @property
    def commit(self) -> CommitInfo:
        """The commit message and extra that name the run."""
        context = self._context
        extra: dict[str, Any] = {"run_id": context.run_id, "job": context.job_name}
        if self._assets:
            extra["asset"] = self._assets
        if "step" in self._step:
            extra["step"] = self._step["step"]
        if self._partitions:
            extra["partitions"] = self._partitions
        return CommitInfo("dagster", f"run {context.run_id}", {"dagster": extra})

    @property
    def _assets(self) -> str:
        return ", ".join(self._context.asset_keys) if self._context.is_asset_step else ""

    @property
    def _step(self) -> dict[str, str]:
        """The extras that `pipes_extras` passed."""
        return dict(self._context.extras.get("ducklake") or {})

    @property
    def _partitions(self) -> list[str]:
        context = self._context
        if not context.is_partition_step:
            return []
        span = context.partition_key_range
        return sorted({span["start"], span["end"]})

    def report(self, lake: "DuckLake", table: TableName, result: WriteResult) -> None:
        """Report the figures of a write."""
        from ducklake_orch.host_partitions.metadata_keys import result_metadata

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
        metadata: dict[str, Any] = {**result_metadata(lake, table, result), "dagster/column_schema": schema}
        if self._context.is_asset_step:
            self._context.report_asset_materialization(metadata=metadata)
        self._context.log.info(str(result))
