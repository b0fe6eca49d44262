"""Detect the kind of frame that a caller passes by the module of its type, without importing any of the libraries."""

from typing import TYPE_CHECKING, Any

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from ducklake_orch.catalog.verbs import Rows, Spool
    from ducklake_orch.config.lake import LakeConfig
    from ducklake_orch.engine.quoting import TableName

ENGINES = ("auto", "duckdb", "native")
DISTRIBUTIONS = ("auto", "none", "hash", "range")


def rows_of(data: Any, *, engine: str = "auto", distribution: str = "auto") -> "Rows":
    """Return the rows of a frame of any kind."""
    for name, value, known in (("engine", engine, ENGINES), ("distribution", distribution, DISTRIBUTIONS)):
        if value not in known:
            raise ConfigError(f"`{name}` = {value!r} is unknown.", remedy=nearest(str(value), known))
    if is_spark(data):
        from ducklake_orch.spark.spark_rows import SparkRows

        return SparkRows(data, engine=engine, distribution=distribution)
    from ducklake_orch.catalog.verbs import ArrowRows

    if engine == "native" or distribution not in ("auto", "none"):
        raise ConfigError(
            "`engine` and `distribution` apply to Spark DataFrames, but the data are not a Spark DataFrame."
        )
    return ArrowRows(data)


def spool_of(config: "LakeConfig", data: Any, table: "TableName") -> "Spool":
    """Return the rows of a frame of any kind, as a merge reads them."""
    if is_spark(data):
        from ducklake_orch.spark.merge_source_staging import SparkSpool

        return SparkSpool(config, data, table)
    from ducklake_orch.catalog.verbs import ArrowSpool

    return ArrowSpool(data)


def refuse_for_merge(*, where: str | None, outside: str, inline: str, distribution: str) -> None:
    """Refuse arguments that mode `merge` does not take."""
    for name, value, default in (
        ("where", where, None),
        ("outside", outside, "error"),
        ("inline", inline, "never"),
        ("distribution", distribution, "auto"),
    ):
        if value != default:
            raise ConfigError(f"Mode `merge` and `{name}` = {value!r} cannot be combined.")


def is_spark(data: Any) -> bool:
    """Whether `data` is a Spark DataFrame, classic or Connect."""
    return any(
        kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in type(data).__mro__
    )
