"""The kinds of frames that a host's tasks return and take, and the conversion of table rows to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.frames import is_spark, rows_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from ducklake_orch.lake import DuckLake

KINDS = ("spark", "arrow", "reader", "pandas", "polars", "lazy", "duckdb")
_ANNOTATED = {
    ("pyspark", "DataFrame"): "spark",
    ("pyarrow", "Table"): "arrow",
    ("pyarrow", "RecordBatchReader"): "reader",
    ("pandas", "DataFrame"): "pandas",
    ("polars", "DataFrame"): "polars",
    ("polars", "LazyFrame"): "lazy",
    ("duckdb", "DuckDBPyRelation"): "duckdb",
    ("_duckdb", "DuckDBPyRelation"): "duckdb",
}


def kind_of(annotation: Any) -> str | None:
    """Return the kind of frame that an annotation names; None if it names none."""
    name = getattr(annotation, "__name__", str(annotation))
    return _ANNOTATED.get((str(getattr(annotation, "__module__", "")).partition(".")[0], name))


@dataclass(frozen=True)
class Wanted:
    """The frames that an annotation asks for.

    Attributes:
        kind: One of `KINDS`.
        shape: One frame, or a frame for each partition, in a list or in a dict by key.
        optional: Whether there is None instead while the table does not exist.
    """

    kind: str
    shape: Literal["frame", "list", "dict"] = "frame"
    optional: bool = False


def wanted(annotation: Any) -> Wanted | None:
    """Return the frames that an annotation asks for; None if it asks for something else.

    Args:
        annotation: A kind of frame, None or `Any` for a pyarrow.Table, or `Optional[…]`, `list[…]` or `dict[str, …]`.
    """
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        others = [argument for argument in arguments if argument is not NoneType]
        found = wanted(others[0]) if len(others) == 1 else None
        return None if found is None else replace(found, optional=True)
    if origin is list:
        return _of_each_partition(arguments[0], "list")
    if origin is dict:
        return _of_each_partition(arguments[1], "dict") if arguments[0] is str else None
    kind = "arrow" if annotation in (None, Any) else kind_of(annotation)
    return None if kind is None else Wanted(kind)


def _of_each_partition(annotation: Any, shape: Literal["list", "dict"]) -> Wanted | None:
    found = wanted(annotation)
    if found is None or found.optional or found.shape != "frame":
        return None
    return Wanted(found.kind, shape)


def check_kind(kind: str, setting: str) -> None:
    """Refuse a kind of frame that does not exist."""
    if kind not in KINDS:
        raise ConfigError(f"{setting} = {kind!r} is not a kind of frame.", remedy=nearest(str(kind), KINDS))


def readable_twice(data: Any) -> Any:
    """Return a frame whose types can be read before its rows: a lazy one would be computed twice."""
    from ducklake_orch.catalog.writing import source_of

    return data if is_spark(data) else source_of(data)


def can_repeat(data: Any) -> bool:
    """Return whether the rows of `readable_twice(…)` can be written again after a write that failed."""
    return bool(getattr(data, "repeatable", True))  # Spark computes its rows again


def types_of(data: Any) -> dict[str, str]:
    """Return the DuckDB types of a frame's columns, by name."""
    from ducklake_orch.engine.scratch import scratch

    with scratch() as con:
        return {name: str(kind) for name, kind in rows_of(data).types(con)}


def read_as(
    lake: "DuckLake",
    kind: str,
    table: str,
    session: "Callable[[], SparkSession]",
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    snapshot: int | None = None,
    as_of: datetime | str | None = None,
    tag: str | None = None,
    stage: str | None = None,
) -> Any:
    """Read rows of a table as a frame of the given kind.

    Args:
        lake: The lake.
        kind: One of `KINDS`.
        table: The table.
        session: Provides the Spark session; called only for the kind `spark`.
        columns: The columns to read; None reads all.
        where: The condition.
        snapshot: The snapshot to read; None reads the latest.
        as_of: The time to read at.
        tag: The name of the snapshot to read.
        stage: The stage to read; None reads what is published.
    """
    selection: dict[str, Any] = {"columns": columns, "where": where, "snapshot": snapshot, "as_of": as_of, "tag": tag}
    if stage is not None:
        selection["stage"] = stage
    if kind == "spark":
        return lake.read(table, session(), **selection)
    if kind == "reader" and stage is None:
        return lake.read_batches(table, **selection)
    return as_kind(kind, lake.read(table, **selection))


def as_kind(kind: str, rows: "pa.Table") -> Any:
    """Convert an Arrow table to a frame of any kind but `spark`."""
    match kind:
        case "reader":
            return rows.to_reader()
        case "pandas":
            return rows.to_pandas()
        case "polars" | "lazy":
            import polars

            frame: Any = polars.from_arrow(rows)
            return frame.lazy() if kind == "lazy" else frame
        case "duckdb":
            import duckdb

            return duckdb.connect().from_arrow(rows)  # the relation keeps its connection
    return rows
