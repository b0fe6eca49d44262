"""The lake's persisted options: compare what is configured with what the catalog says."""

from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.units import parse_size
from ducklake_orch.engine.quoting import identifier

if TYPE_CHECKING:
    import duckdb


def drift(config: LakeConfig, con: "duckdb.DuckDBPyConnection") -> list[tuple[str, Any, str | None]]:
    """Return the configured options that the lake does not have: name, wanted value, actual value."""
    sql = f"SELECT option_name, value FROM {identifier(config.alias)}.options() WHERE scope = 'GLOBAL'"
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
