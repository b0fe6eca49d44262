"""Writes a frame to a table: the rows it replaces, the commit message, and the reference for the next task."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ducklake_orch.airflow.hook import DuckLakeHook, replayed
from ducklake_orch.airflow.run_partition import Partitioning
from ducklake_orch.airflow.run_stage import KEY, STAGE, STAGE_ID
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.catalog.verbs import MODES
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import ConfigError, ObjectNotFoundError
from ducklake_orch.facade.stage import Stage
from ducklake_orch.host_partitions import Slice, condition, partition_transforms, written_columns
from ducklake_orch.host_partitions.empty_frames import column_names, latest_snapshot, not_created, typed
from ducklake_orch.host_partitions.frame_kinds import readable_twice, types_of
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import WriteResult

log = logging.getLogger("ducklake_orch")
# In a reference to a table that was not created: the names of the columns.
UNTYPED = "untyped_columns"
# A result lists at most this many partitions.
_LISTED = 100


@dataclass(frozen=True)
class Writing:
    """How a task writes to a table.

    Attributes:
        table: The table.
        mode: What happens to the existing rows; by default those of the run's partitions, or all, are replaced.
        partitioning: How the run's partitions are found in the table.
        idempotency_key: A key to use instead of the task's.
        more: Further arguments of `DuckLake.write`.
    """

    table: str
    mode: str | None = None
    partitioning: Partitioning = field(default_factory=Partitioning)
    idempotency_key: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)

    def write(self, hook: DuckLakeHook, data: Any, part: Slice | None, work: Work) -> dict[str, Any]:
        """Write a frame, and return the reference that the next task and the event get."""

        def write(rows: Any, mode: str, more: Mapping[str, Any]) -> WriteResult:
            info = work.commit_info(f"{mode} to {table_name(self.table)}", part.texts if part else None)
            return hook.lake().write(rows, self.table, mode=mode, commit=info, **more)

        stored = cache(lambda: _stored_types(hook.lake(), self.table))
        return reference(hook, *self._write(hook.lake(), stored, data, part, work, write))

    def add_to(self, stage: Stage, hook: DuckLakeHook, data: Any, part: Slice | None, work: Work) -> dict[str, Any]:
        """Add a frame to a stage, and return the reference that the next task gets."""
        info, key = stage.info(), dict[str, str]()

        def write(rows: Any, mode: str, more: Mapping[str, Any]) -> WriteResult:
            key[KEY] = more[KEY]
            return stage.write(rows, self.table, mode=mode, **more)

        @cache
        def stored() -> dict[str, str]:
            with stage.reader(self.table) as lake:
                return _stored_types(lake, self.table)

        written = reference(hook, *self._write(hook.lake(), stored, data, part, work, write))
        return written | {STAGE: info.name, STAGE_ID: info.stage_id} | key

    def _write(
        self,
        lake: DuckLake,
        stored: Callable[[], dict[str, str]],
        data: Any,
        part: Slice | None,
        work: Work,
        write: Callable[[Any, str, Mapping[str, Any]], WriteResult],
    ) -> tuple[WriteResult, Slice | None, str | None, list[str] | None]:
        """Write a frame by a function. Return the result, where the rows are, and the columns of a missing table."""
        table, mode = table_name(self.table), self._mode()
        if data is None:
            raise ConfigError(f"Task `{work.task_id}` has no rows for `{table}`: it returned None.", remedy=_RETURN)
        data = readable_twice(data)
        rows = typed(data, stored)
        if rows is None:
            log.warning(not_created(f"Task `{work.task_id}`", table, data))
            snapshot = latest_snapshot(lake)
            return WriteResult(str(table), mode, snapshot, snapshot), part, None, column_names(data)
        more: dict[str, Any] = {name: value for name, value in self.more.items() if value is not None}
        where: str | None = None
        if part is not None:
            where, transforms = self._slice(stored(), rows, part, work)
            more = ({"partition_by": transforms} if transforms else {}) | more
            if mode in ("overwrite", "replace_where"):
                more["where"] = self._replaced(mode, where, work)
                mode = "replace_where"
        more["idempotency_key"] = self.idempotency_key or work.idempotency_key(str(table))
        result = write(rows, mode, more)
        if result.replayed:
            log.warning(replayed(result))
        else:
            log.info("%s", result)
        return result, part, where, None

    def _mode(self) -> str:
        mode = self.mode or "overwrite"
        if mode not in MODES:
            raise ConfigError(f"`mode` = {mode!r} is unknown.", remedy=nearest(str(mode), MODES))
        return mode

    def _slice(self, stored: Mapping[str, str], data: Any, part: Slice, work: Work) -> tuple[str, list[str] | None]:
        """Return the condition of the partitions, and the partitioning of a new table."""
        what = f"Task `{work.task_id}`"
        columns = written_columns(what, part.dimensions, self.partitioning.expr, stored, lambda: types_of(data))
        self.partitioning.check(what, part, columns)
        return condition(part, columns), None if stored else partition_transforms(part, columns)

    def _replaced(self, mode: str, part: str, work: Work) -> str:
        """Return the condition of the replaced rows: those of the partitions that also match `where`, if given."""
        given = self.more.get("where")
        if given is None:
            return part
        if mode != "replace_where":
            raise ConfigError(
                f"Task `{work.task_id}` has `where` = {given!r}, but replaces all rows of its partitions.",
                remedy='Add mode="replace_where" to replace only the rows that match.',
            )
        return f"({part}) AND ({given}\n)"  # a condition can end with a comment


def reference(
    hook: DuckLakeHook,
    result: WriteResult,
    part: Slice | None,
    where: str | None,
    untyped: list[str] | None = None,
) -> dict[str, Any]:
    """Return the reference that a task passes on instead of rows: where they are, and what the write did.

    Args:
        hook: The hook of the lake.
        result: The write.
        part: The partitions that were written.
        where: The condition that they meet.
        untyped: The columns of an empty frame that created no table. The next task gets an empty frame with them.
    """
    written = result.to_dict()
    keys = part.texts if part else []
    return {
        "schema_version": 1,
        "operation": "write",
        "ducklake_conn_id": hook.get_conn_id(),
        "lake": hook.lake().config.name,
        "where": where,
        "partition_keys": keys[:_LISTED],
        "partition_count": max(len(keys), len(written["partitions"])),
        **written,
        "partitions": written["partitions"][:_LISTED],
        **({UNTYPED: untyped} if untyped is not None else {}),
    }


def _stored_types(lake: DuckLake, table: str) -> dict[str, str]:
    try:
        return {column.name: column.type for column in lake.table(table).schema()}
    except ObjectNotFoundError:
        return {}


_RETURN = "Return a frame: of Spark, pandas, Polars, Arrow or DuckDB."
