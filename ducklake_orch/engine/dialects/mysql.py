"""MySQL and MariaDB as catalogs; each database is a lake."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.catalogs import SSL_FILES, MySQLCatalog
from ducklake_orch.engine.dialects.base import Connect
from ducklake_orch.engine.dialects.server import ServerDialect
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import StatementError

if TYPE_CHECKING:
    import duckdb

    from ducklake_orch.engine.locks import Queue
    from ducklake_orch.errors import DuckLakeOrchError


class MySQLDialect(ServerDialect[MySQLCatalog]):
    """A database of a MySQL or MariaDB server.

    DuckDB's MySQL extension supports fewer writes than reads: it cannot update through a join, so the engine's own
    INSERT fails on a table that has rows already.
    """

    extension = "mysql"
    create_commits = True
    drafts_sql = True
    stores_comments = False
    keeps_rows = False
    cache_reset = "CALL mysql_clear_cache()"

    def metadata_path(self) -> str:
        return "mysql:"

    def query(self, sql: str, *, alias: str | None = None) -> str:
        # A query whose result is streamed has a connection of its own, outside the transaction. Read with other queries
        # of a plan, it would show a row twice, or not at all, that a concurrent commit moves.
        return f"{super().query(sql, alias=alias).removesuffix(')')}, stream_results = false)"

    def secret(self) -> dict[str, Any] | None:
        values = super().secret()
        if values is None:
            return None
        values["ssl_mode"] = self.catalog.ssl_mode
        for name in SSL_FILES:
            path = getattr(self.catalog, name)
            values[name] = None if path is None else str(path)
        if self.catalog.host and self.catalog.host.startswith("/"):
            values["host"], values["socket"] = None, self.catalog.host
        return values

    def refused(self, failure: "DuckLakeOrchError") -> bool:
        if not self.catalog.database or self.catalog.secret_name:
            return False
        return type(failure) is StatementError and "Attempted host" in failure.message  # the client names the host

    def database_exists_sql(self) -> str:
        name = (self.catalog.database or "").replace("\\", "\\\\")
        return f"select 1 from information_schema.schemata where schema_name = {literal(name)}"

    def lakes_sql(self) -> str | None:
        # In MySQL a schema is a database; only the configured one is searched.
        query = "select table_schema from information_schema.tables where table_name = 'ducklake_metadata'"
        return f"{query} and table_schema = database() order by 1"

    def table(self, name: str) -> str:
        return name

    def current_schema(self) -> str:
        return "database()"

    def quoted(self, name: str) -> str:
        return f"`{name.replace('`', '``')}`"

    def catalog_name(self) -> str:
        return "database()"

    def as_text(self, expression: str) -> str:
        return f"convert({expression} using utf8mb4)"

    def text_literal(self, text: str) -> str:
        # Whether a backslash is an escape depends on the server's SQL mode; bytes mean the same in all modes.
        return f"X'{text.encode().hex()}'"

    def typed_text(self, text: str) -> str:
        return f"CAST({self.text_literal(text)} AS CHAR CHARACTER SET utf8mb4)"

    def key_type(self, length: int) -> str:
        # MySQL compares texts ignoring case and trailing spaces; bytes are compared exactly.
        return f"VARBINARY({length})"

    def first_statements(self) -> Sequence[str]:
        return [*super().first_statements(), *self.one_moment_statements()]

    def one_moment_statements(self) -> Sequence[str]:
        # If the server's default is READ COMMITTED, each query sees what others have committed meanwhile. The level
        # cannot change within a transaction, so a new one begins on the same connection.
        level = "set session transaction isolation level repeatable read"
        return [self.execute(level), self.execute("start transaction")]

    def refresh_tables(self, con: "duckdb.DuckDBPyConnection") -> None:
        con.execute("CALL mysql_clear_cache()")  # DuckDB caches the list of a server's tables while it is attached

    def waits(self, seconds: float) -> str:
        limit = max(1, round(seconds))
        return self.execute(f"set session lock_wait_timeout = {limit}, innodb_lock_wait_timeout = {limit}")

    def clock_sql(self) -> str | None:
        return "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"

    def size_sql(self) -> str | None:
        return (
            "select cast(sum(data_length + index_length) as signed) as n from information_schema.tables"
            f" where table_schema = database() and table_name like {literal('ducklake!_%')} escape '!'"
        )

    def writer_queue(self, connect: Connect) -> "Queue":
        from ducklake_orch.engine.locks import MySQLQueue

        return MySQLQueue(connect(), self)

    def named_lock(self, connect: Connect, name: str) -> "Queue":
        from ducklake_orch.engine.locks import MySQLQueue

        return MySQLQueue(connect(), self, name=name)
