"""Empty frames: those that tell too little to create their table, and those for tables that do not exist yet."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.frames import is_spark
from ducklake_orch.host_partitions.frame_kinds import as_kind, readable_twice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_orch.lake import DuckLake


def typed(data: Any, stored: Callable[[], Mapping[str, str]]) -> Any:
    """Return what to write if a frame can be empty and have columns without a type; None if there is nothing to write.

    An empty pandas frame of texts tells the names of its columns only. It can empty a table, but not create one.

    Args:
        data: The result of `readable_twice`.
        stored: Returns the types of the table's columns by name; none if the table does not exist.
    """
    import pyarrow as pa

    if not _is_untyped(data):
        return data
    columns = stored()
    # An untyped column gets the type of the table's column.
    return readable_twice(pa.table({name: pa.nulls(0) for name in columns})) if columns else None


def _is_untyped(data: Any) -> bool:
    if not is_spark(data):
        return bool(data.is_untyped())
    kinds = [field.dataType.typeName() for field in data.schema.fields]
    return (not kinds or "void" in kinds) and bool(data.isEmpty())


def not_created(what: str, table: object, data: Any) -> str:
    """Return the warning about an empty frame that could not create its table.

    Args:
        what: The asset or task.
        table: The table.
        data: The result of `readable_twice`.
    """
    names = ", ".join(f"`{name}`" for name in column_names(data))
    types = f"the types of its columns ({names}) are not all known" if names else "it has no columns"
    return (
        f"{what} returned a frame without rows for `{table}`, which does not exist. The table is not created, because"
        f" {types}. To create an empty table, give all columns types, for example with `astype`."
    )


def latest_snapshot(lake: "DuckLake") -> int:
    """Return the latest snapshot; 0 if a write has yet to create the lake.

    Raises:
        LakeNotFoundError: If there is no lake, and writes may not create it.
    """
    snapshots = lake.snapshots(1)
    return snapshots[0].snapshot_id if snapshots else 0


def empty_frame(kind: str, session: "Callable[[], SparkSession]", columns: Sequence[str] = ()) -> Any:
    """Return an empty frame whose columns have no types, for a table that does not exist yet."""
    import pyarrow as pa

    if kind != "spark":
        return as_kind(kind, pa.table({name: pa.nulls(0) for name in columns}))
    from pyspark.sql.types import NullType, StructField, StructType

    return session().createDataFrame([], StructType([StructField(name, NullType()) for name in columns]))


def column_names(data: Any) -> list[str]:
    """Return the names of the columns of `readable_twice(…)`."""
    return list(data.schema.names)
