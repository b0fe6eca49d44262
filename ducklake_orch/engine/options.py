"""Check and set the lake's persisted options, and compare the configured options with those in the catalog."""

from collections.abc import Mapping
from typing import Any

import duckdb

from ducklake_orch.config.lake import PERSISTED_OPTIONS, LakeConfig, Scalar, breaking_option
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.units import parse_size
from ducklake_orch.engine.quoting import TableName, literal
from ducklake_orch.errors import ConfigError

# The engine reads these for the whole lake only, wherever they are set.
_LAKE_WIDE = frozenset({"expire_older_than", "delete_older_than", "require_commit_message"})


def check_option(name: str, value: Scalar, *, scoped: bool = False) -> None:
    """Refuse an option that the engine does not know, or one that it accepts but that breaks later statements.

    Args:
        name: The option.
        value: Its value.
        scoped: Whether it is set for a schema or a table only.

    Raises:
        ConfigError: When the option is refused; the remedy says what to do instead.
    """
    if name not in PERSISTED_OPTIONS:
        raise ConfigError(f"Unknown option `{name}`.", remedy=nearest(name, PERSISTED_OPTIONS))
    if reason := breaking_option(name, value):
        problem, _, remedy = reason.partition(". ")
        raise ConfigError(f"The option `{name}` is refused: {problem}.", remedy=f"{remedy}.")
    if scoped and name in _LAKE_WIDE:
        raise ConfigError(
            f"The option `{name}` holds for the whole lake: the engine ignores it on a schema or table.",
            remedy="Set it without `schema` and `table`.",
        )


def check_compression(options: Mapping[str, Any]) -> None:
    """Refuse a compression level for a codec without levels: each later INSERT would fail.

    Args:
        options: All options in force for the lake, schema or table, including the new ones.
    """
    level, codec = options.get("parquet_compression_level"), str(options.get("parquet_compression", "snappy"))
    if level is not None and codec.lower() != "zstd":
        raise ConfigError(
            f"`parquet_compression_level` = {level} does not fit the compression `{codec}`: only zstd has levels.",
            remedy="Set `parquet_compression` to `zstd`, before the level.",
        )


def in_order(options: Mapping[str, Scalar]) -> list[tuple[str, Scalar]]:
    """Return options in an order in which they can be set one at a time: the compression before its level."""
    return sorted(options.items(), key=lambda option: option[0] == "parquet_compression_level")


def set_option_sql(
    alias: str, name: str, value: Scalar, *, schema: str | None = None, table: TableName | None = None
) -> str:
    """Return the statement that sets an option for the lake, a schema, or a table."""
    scope = f", schema => {literal(schema)}" if schema else ""
    if table:
        scope = f", schema => {literal(table.schema)}, table_name => {literal(table.table)}"
    return f"CALL ducklake_set_option({literal(alias)}, {literal(name)}, {literal(value)}{scope})"


def drift(config: LakeConfig, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any, str | None]]:
    """Return the configured options that differ from the lake's: name, wanted value, actual value."""
    sql = f"SELECT option_name, value FROM ducklake_options({literal(config.alias)}) WHERE scope = 'GLOBAL'"
    actual = dict(con.execute(sql).fetchall())
    return [
        (name, wanted, actual.get(name))
        for name, wanted in config.options.items()
        if not _same(actual.get(name), wanted)
    ]


def _same(actual: str | None, wanted: Any) -> bool:
    if actual is None:
        return False
    if str(actual).lower() == str(wanted).lower():
        return True
    try:
        return parse_size(actual) == parse_size(str(wanted))  # the engine stores `1MB` as 1000000
    except ValueError:
        return False
