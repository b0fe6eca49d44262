"""References to rows, which tasks pass on instead of frames, and the frames that the next task reads from them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.airflow.hook import DuckLakeHook
from ducklake_orch.airflow.run_stage import STAGE
from ducklake_orch.airflow.table_write import UNTYPED
from ducklake_orch.airflow.task_spark import TaskSpark
from ducklake_orch.catalog.feed import OWN_COLUMNS
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ConfigError, HistoryExpiredError
from ducklake_orch.host_partitions.empty_frames import empty_frame
from ducklake_orch.host_partitions.frame_kinds import as_kind, check_kind, read_as
from ducklake_orch.lake import DuckLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KEYS = {"ducklake_conn_id", "table", "snapshot_id", "where"}


def is_reference(value: Any) -> bool:
    """Return whether a value is a reference that a ducklake-orch task returned."""
    return isinstance(value, Mapping) and _KEYS <= value.keys() and value.get("schema_version") == 1


def read_reference(reference: Mapping[str, Any], kind: str = "arrow", *, spark: TaskSpark | None = None) -> Any:
    """Read the rows that a task has written, as of its snapshot.

    If the task appended, they are the rows that it added. If it wrote in another mode, they are the rows of its
    partitions, or of the whole table if it has none. Staged rows are those of the table as it is staged now.

    Args:
        reference: The reference that the task returned.
        kind: `arrow`, `spark`, `pandas`, `polars`, `lazy`, `reader` or `duckdb`.
        spark: The session of the task; by default the hook's.
    """
    if not is_reference(reference):
        raise ConfigError(
            "The value is not a reference to rows of a lake.", remedy="Pass the result of a ducklake-orch task."
        )
    check_kind(kind, "`read`")
    hook = DuckLakeHook(ducklake_conn_id=str(reference["ducklake_conn_id"]))
    table, snapshot = str(reference["table"]), int(reference["snapshot_id"])
    session = spark.session if spark is not None else hook.spark
    where = reference["where"]
    if UNTYPED in reference:
        return empty_frame(kind, session, reference[UNTYPED])
    if STAGE in reference:
        return _staged(hook.lake(), kind, reference, session)
    try:
        if reference.get("mode") == "append":
            if reference.get("rows_written") or reference.get("replayed"):
                return _added(hook.lake(), kind, table, session, snapshot)
            where = "false"  # it committed no snapshot, and the one that it names is of another write
        return read_as(hook.lake(), kind, table, session, where=where, snapshot=snapshot)
    except HistoryExpiredError:
        failure = HistoryExpiredError(
            f"Snapshot {snapshot}, the snapshot of a reference to `{table}`, has expired.",
            remedy="Clear the task that wrote it, or keep snapshots for longer.",
        )
    raise failure


def _staged(lake: DuckLake, kind: str, reference: Mapping[str, Any], session: "Callable[[], SparkSession]") -> Any:
    """Read the rows that a task has staged; if they are published meanwhile, as they were published."""
    table, name = str(reference["table"]), str(reference[STAGE])
    if reference.get("mode") == "append":
        raise ConfigError(
            f"The rows that a task appended to `{table}` in a stage cannot be told from those before.",
            remedy=f'Read the whole table: DuckLakeHook(stage=…).read("{table}"), where the stage is `task.stage` in'
            ' `@task.ducklake` with a parameter `task`, and `reference["stage"]` in another task.',
        )
    stage = next((stage for stage in lake.stages() if stage.name == name), None)
    if stage is None:
        raise HistoryExpiredError(f"The stage `{name}` was discarded.", remedy="Clear the task that staged the rows.")
    at: dict[str, Any] = {"snapshot": stage.snapshot_id} if stage.snapshot_id is not None else {"stage": name}
    return read_as(lake, kind, table, session, where=reference["where"], **at)


def _refuse_unpublished(reference: Mapping[str, Any]) -> None:
    """Refuse rows that wait in a stage, for a task that writes to the lake itself."""
    lake = DuckLakeHook(ducklake_conn_id=str(reference["ducklake_conn_id"])).lake()
    if any(stage.name == reference[STAGE] and stage.snapshot_id is None for stage in lake.stages()):
        raise ConfigError(
            f"The rows of `{reference['table']}` are staged, and not published yet.",
            remedy="Make the task a downstream of `publish`, or put it into the task group.",
        )


def _added(lake: DuckLake, kind: str, table: str, session: "Callable[[], SparkSession]", snapshot: int) -> Any:
    """Read the rows that an append added, which are all changes of its snapshot."""
    names = {folded(column.name) for column in lake.table(table).schema()}
    if taken := names & set(OWN_COLUMNS):
        raise ConfigError(
            f"`{table}` has a column `{min(taken)}`, as the change feed has, so the added rows cannot be read.",
            remedy="Rename the column, or read the table in the next task: DuckLakeHook().read(…).",
        )
    if kind == "spark":
        return lake.changes(table, snapshot, snapshot, spark=session()).drop(*OWN_COLUMNS)
    return as_kind(kind, lake.changes(table, snapshot, snapshot).drop_columns(list(OWN_COLUMNS)))


def resolved(
    value: Any, kind: Callable[[], str], spark: TaskSpark, read: list[str], *, reads_staged: bool = True
) -> Any:
    """Return a value with frames in place of references: the value, or its items as of mapped tasks, can be one.

    Args:
        value: The value.
        kind: Returns the kind of the frames.
        spark: The session of the task.
        read: A list to which the names of the tables are added.
        reads_staged: Whether rows may be read that are not published yet.
    """
    if is_reference(value):
        if not reads_staged and STAGE in value:
            _refuse_unpublished(value)
        read.append(str(value["table"]))
        return read_reference(value, kind(), spark=spark)
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        items = list(value) if not isinstance(value, Sequence) or type(value).__name__.startswith("Lazy") else value
        if any(is_reference(item) for item in items):
            return [resolved(item, kind, spark, read, reads_staged=reads_staged) for item in items]
    return value
