"""PostgreSQL as a catalog; each schema is a lake."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ducklake_orch.config.catalogs import PostgresCatalog
from ducklake_orch.engine.dialects.base import Connect
from ducklake_orch.engine.dialects.server import ServerDialect
from ducklake_orch.engine.quoting import conninfo, identifier, literal
from ducklake_orch.errors import CatalogUnreachableError

if TYPE_CHECKING:
    import duckdb

    from ducklake_orch.engine.connection import LakeConnection
    from ducklake_orch.engine.locks import Queue
    from ducklake_orch.errors import DuckLakeOrchError

APPLICATION_NAME = "ducklake-orch"
# The most bytes that PostgreSQL keeps of a name, and the column names that it reserves in every table.
_LONGEST_NAME = 63
_SYSTEM_COLUMNS = ("ctid", "xmin", "xmax", "cmin", "cmax", "tableoid")
# libpq's own messages, which are never translated: the server was not reached, or closed the connection.
_NOT_REACHED = (
    "Connection refused",
    "Is the server running",
    "could not translate",
    "timeout expired",
    "closed the conn",
)


class PostgresDialect(ServerDialect[PostgresCatalog]):
    """A schema of a PostgreSQL database."""

    extension = "postgres"
    home_database = "postgres"
    most_columns = 1600
    cache_reset = "CALL pg_clear_cache()"
    plans_by_indexes = True
    analysis = "ANALYZE {}"
    sends_together = True
    inlines_structs_as_sql = True

    def metadata_path(self) -> str:
        return f"postgres:{self.connection_string()}"

    def connection_string(self) -> str:
        catalog = self.catalog
        return conninfo(
            {"application_name": APPLICATION_NAME, "service": catalog.service, "sslmode": catalog.sslmode}
            | {"options": catalog.options}
            | catalog.parameters
        )

    def refused(self, failure: "DuckLakeOrchError") -> bool:
        if not self.catalog.database or self.catalog.secret_name:
            return False
        reached = not any(sign in failure.message for sign in _NOT_REACHED)
        return isinstance(failure, CatalogUnreachableError) and reached

    def database_exists_sql(self) -> str:
        return f"select 1 from pg_database where datname = {literal(self.catalog.database or '')}"

    def lakes_sql(self) -> str | None:
        return "select table_schema from information_schema.tables where table_name = 'ducklake_metadata' order by 1"

    def table(self, name: str) -> str:
        return f"{identifier(self.config.metadata_schema or 'public')}.{name}"

    def current_schema(self) -> str:
        return literal(self.config.metadata_schema or "public")

    def catalog_name(self) -> str:
        return f"concat(current_database(), '.', {self.current_schema()})"

    def text_literal(self, text: str) -> str:
        # The server's setting `standard_conforming_strings` decides whether a backslash is an escape, except here.
        escaped = text.replace("\\", "\\\\")
        return f"E{literal(escaped)}" if "\\" in text else literal(text)

    def typed_text(self, text: str) -> str:
        return self.text_literal(text)

    def by_bytes(self, expression: str) -> str:
        # The order of other collations changes when the operating system is upgraded, and indexes are then wrong.
        return f'({expression}) COLLATE "C"'

    def key_type(self, length: int) -> str:
        return "TEXT"

    def clock_sql(self) -> str | None:
        return "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)"

    def size_sql(self) -> str | None:
        return (
            "select cast(sum(pg_total_relation_size(c.oid)) as bigint) as n from pg_class c"
            " join pg_namespace s on s.oid = c.relnamespace where c.relkind = 'r'"
            f" and s.nspname = {self.current_schema()} and c.relname like {literal('ducklake!_%')} escape '!'"
        )

    def waits(self, seconds: float) -> str:
        return self.execute(f"set local lock_timeout = {max(1, int(seconds * 1000))}")

    def exists(self, con: "duckdb.DuckDBPyConnection | LakeConnection", name: str) -> bool:
        # Much faster than `information_schema`, which also checks rights. `to_regclass` would find tables that were
        # created after the transaction began, which DuckDB does not see.
        sql = (
            "select 1 from pg_catalog.pg_class c join pg_catalog.pg_namespace s on s.oid = c.relnamespace"
            f" where c.relname = {literal(name)} and s.nspname = {self.current_schema()}"
        )
        return con.execute(self.query(sql)).fetchone() is not None

    def together(self, statements: Sequence[str]) -> str:
        return self.execute("; ".join(statements))

    def writer_queue(self, connect: Connect) -> "Queue":
        from ducklake_orch.engine.locks import PostgresQueue

        return PostgresQueue(connect(), self)

    def named_lock(self, connect: Connect, name: str) -> "Queue":
        from ducklake_orch.engine.locks import PostgresQueue

        return PostgresQueue(connect(), self, name=name)

    def inlined_type(self, kind: str, sql_type: str) -> str | None:
        # Stored as bytes, because PostgreSQL texts cannot hold every character (NUL).
        return "BLOB" if kind in ("varchar", "json") else super().inlined_type(kind, sql_type)

    def takes_inlined_column(self, name: str) -> bool:
        return len(name.encode()) <= _LONGEST_NAME and name not in _SYSTEM_COLUMNS

    def inlined_text(self, kind: str, column: str) -> str:
        text = super().inlined_text(kind, column)
        return f"encode({text})" if kind in ("varchar", "json") else text

    def inlined_value(self, kind: str, stored: str) -> str:
        return f"decode({stored})" if kind in ("varchar", "json") else stored
