"""The catalogs: one dialect for each, and the only place that knows which catalog a lake has.

`dialect_of(config)` returns the dialect of a lake. To add a catalog, see "How to add a catalog" in
docs/architecture.md.
"""

from typing import TYPE_CHECKING, Any

from ducklake_orch.engine.dialects.base import CATALOG_SECRET, Dialect
from ducklake_orch.engine.dialects.duckdb import DuckDBDialect
from ducklake_orch.engine.dialects.motherduck import MotherDuckDialect
from ducklake_orch.engine.dialects.mysql import MySQLDialect
from ducklake_orch.engine.dialects.postgres import PostgresDialect
from ducklake_orch.engine.dialects.sqlite import SQLiteDialect

if TYPE_CHECKING:
    from ducklake_orch.config.lake import LakeConfig

__all__ = ["CATALOG_SECRET", "Dialect", "dialect_of"]

AnyDialect = Dialect[Any]
_DIALECTS: dict[str, type[AnyDialect]] = {
    "duckdb": DuckDBDialect,
    "sqlite": SQLiteDialect,
    "postgres": PostgresDialect,
    "mysql": MySQLDialect,
    "motherduck": MotherDuckDialect,
}


def dialect_of(config: "LakeConfig") -> AnyDialect:
    """Return the dialect of a lake's catalog."""
    return _DIALECTS[config.catalog.type](config)
