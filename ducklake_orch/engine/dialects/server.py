"""What PostgreSQL and MySQL have in common as catalogs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ducklake_orch.config.catalogs import MySQLCatalog, PostgresCatalog
from ducklake_orch.engine.dialects.base import CATALOG_SECRET, Dialect
from ducklake_orch.engine.quoting import identifier, literal, options

if TYPE_CHECKING:
    import duckdb

    from ducklake_orch.engine.connection import LakeConnection

ServerT = TypeVar("ServerT", PostgresCatalog, MySQLCatalog)


class ServerDialect(Dialect[ServerT]):
    """A catalog on a database server, whose connection stays attached between uses.

    Attributes:
        extension: The prefix of DuckDB's functions for this server.
    """

    is_server = True
    extension: ClassVar[str]

    def metadata_attach(self, alias: str, *, read_only: bool) -> str:
        values = {"type": self.extension, "secret": self.secret_name} | ({"read_only": True} if read_only else {})
        return f"ATTACH {literal(self.connection_string())} AS {identifier(alias)} {options(values)}"

    def connection_string(self) -> str:
        """Return the connection parameters that are not in the secret."""
        return ""

    @property
    def secret_name(self) -> str:
        """The secret that holds the credentials."""
        return self.catalog.secret_name or CATALOG_SECRET

    def attach_options(self, *, writable: bool) -> dict[str, Any]:
        return {"meta_secret": self.secret_name}

    def secret(self) -> dict[str, Any] | None:
        catalog = self.catalog
        if catalog.secret_name:
            return None
        values: dict[str, Any] = {"type": self.extension, "host": catalog.host, "port": catalog.port}
        return values | {"database": catalog.database, "user": catalog.user, "password": catalog.password}

    def query(self, sql: str, *, alias: str | None = None) -> str:
        called = f"{self.extension}_query({literal(alias or self.config.metadata_alias)}, {literal(sql)})"
        return f"SELECT * FROM {called}"

    def execute(self, sql: str) -> str:
        """Return the DuckDB statement that runs a statement on the server, within the current transaction."""
        return f"CALL {self.extension}_execute({literal(self.config.metadata_alias)}, {literal(sql)})"

    def first_statements(self) -> Sequence[str]:
        # A session that changes inlined rows and never ends its transaction must not block all writers for ever.
        return [self.waits(self.config.lock_timeout.total_seconds())]

    def change(self, name: str, statement: str) -> str:
        return self.execute(statement.replace("{}", self.table(name), 1))

    def drop(self, name: str) -> str:
        return self.execute(f"DROP TABLE IF EXISTS {self.table(name)}")

    def drop_together(self, names: Sequence[str]) -> list[str]:
        return [self.execute(f"DROP TABLE IF EXISTS {', '.join(map(self.table, names))}")] if names else []

    def names(self, con: "duckdb.DuckDBPyConnection | LakeConnection", prefix: str) -> list[str]:
        pattern = literal(prefix.replace("_", "!_") + "%")
        sql = (
            f"select {self.texts(['table_name'])} from information_schema.tables"
            f" where table_name like {pattern} escape '!' and table_schema = {self.current_schema()}"
        )
        return [str(row[0]) for row in con.execute(self.query(sql)).fetchall()]

    def exists(self, con: "duckdb.DuckDBPyConnection | LakeConnection", name: str) -> bool:
        sql = (
            f"select 1 from information_schema.tables"
            f" where table_name = {literal(name)} and table_schema = {self.current_schema()}"
        )
        return con.execute(self.query(sql)).fetchone() is not None

    def inlined_type(self, kind: str, sql_type: str) -> str | None:
        if kind in ("geometry", "variant"):
            return None
        if kind == "blob":
            return "BLOB"
        if kind in ("uint8", "uint16"):
            return "INTEGER"
        same = ("boolean", "int8", "int16", "int32", "int64", "uint32", "time")
        like = ("decimal", "float", "time_", "timetz", "interval", "uuid")
        return sql_type if kind in same or kind.startswith(like) else "VARCHAR"
