"""The kinds of frames that a host's tasks return and take, and the conversion of table rows to them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.frames import rows_of

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


def check_kind(kind: str, setting: str) -> None:
    """Refuse a kind of frame that does not exist."""
    if kind not in KINDS:
        raise ConfigError(f"{setting} = {kind!r} is not a kind of frame.", remedy=nearest(str(kind), KINDS))


def readable_twice(data: Any) -> Any:
    """Return a frame whose types can be read before its rows: a lazy one would be computed twice."""
    import duckdb

    from ducklake_orch.catalog.writing import Source

    if type(data).__module__.startswith("polars") and hasattr(data, "collect"):
        return data.collect()
    return Source(data) if isinstance(data, duckdb.DuckDBPyRelation) else data


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
    """
    if kind == "spark":
        return lake.read(table, session(), columns=columns, where=where, snapshot=snapshot)
    if kind == "reader":
        return lake.read_batches(table, columns=columns, where=where, snapshot=snapshot)
    return as_kind(kind, lake.read(table, columns=columns, where=where, snapshot=snapshot))


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
