"""The lake's persisted options: write them, and compare what is configured with what the catalog says."""

from typing import Any

import duckdb

from ducklake_orch.config.lake import PERSISTED_OPTIONS, LakeConfig, Scalar
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.units import parse_size
from ducklake_orch.engine.quoting import TableName, literal
from ducklake_orch.errors import ConfigError


def check_option(name: str) -> None:
    """Refuse an option that the engine does not know.

    Raises:
        ConfigError: Names the nearest one.
    """
    if name not in PERSISTED_OPTIONS:
        raise ConfigError(f"Unknown option `{name}`.", remedy=nearest(name, PERSISTED_OPTIONS))


def set_option_sql(
    alias: str, name: str, value: Scalar, *, schema: str | None = None, table: TableName | None = None
) -> str:
    """Return the statement that sets an option for the lake, a schema, or a table."""
    scope = f", schema => {literal(schema)}" if schema else ""
    if table:
        scope = f", schema => {literal(table.schema)}, table_name => {literal(table.table)}"
    return f"CALL ducklake_set_option({literal(alias)}, {literal(name)}, {literal(value)}{scope})"


def drift(config: LakeConfig, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any, str | None]]:
    """Return the configured options that the lake does not have: name, wanted value, actual value."""
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
        return parse_size(actual) == parse_size(str(wanted))  # the engine keeps `1MB` as 1000000
    except ValueError:
        return False
