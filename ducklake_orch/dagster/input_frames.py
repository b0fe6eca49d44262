"""Chooses the kind of frame that an input becomes, by its annotation."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.frame_kinds import as_kind, kind_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def wanted_kind(context: dg.InputContext) -> str:
    """Return the kind of frame that an input is annotated with; a pyarrow.Table without annotation."""
    try:
        annotation = context.dagster_type.typing_type
    except dg.DagsterInvariantViolationError:
        annotation = None  # the context of a unit test
    if annotation is Any or annotation is None:
        return "arrow"
    kind = kind_of(annotation)
    if kind is None:
        raise ConfigError(
            f"An input cannot be read as `{getattr(annotation, '__name__', annotation)}`.",
            remedy="Annotate it with a DataFrame of Spark, pandas or Polars, a pyarrow.Table or RecordBatchReader, or a"
            " DuckDBPyRelation.",
        )
    return kind


def nothing(kind: str, session: "Callable[[], SparkSession]") -> Any:
    """Return a frame without columns, for a table that does not exist yet."""
    import pyarrow as pa

    if kind != "spark":
        return as_kind(kind, pa.table({}))
    from pyspark.sql.types import StructType

    return session().createDataFrame([], StructType([]))
