"""What differs between the databases that can hold a lake's metadata.

Each catalog has one class that overrides what differs. No module outside this package and `config/` asks which catalog
a lake has. The defaults are those of a catalog that DuckDB itself stores.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import escape
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from ducklake_orch.engine.quoting import identifier, literal, options

if TYPE_CHECKING:
    import duckdb

    from ducklake_orch.config.lake import LakeConfig
    from ducklake_orch.engine.connection import LakeConnection
    from ducklake_orch.engine.locks import Queue
    from ducklake_orch.errors import DuckLakeOrchError

CATALOG_SECRET = "ducklake_orch_catalog"  # noqa: S105 - a name, not a secret
CatalogT = TypeVar("CatalogT")
Connect = Callable[[], "duckdb.DuckDBPyConnection"]


class Dialect(Generic[CatalogT]):
    """How one lake's catalog is opened, queried, locked and written.

    Attributes:
        config: The lake.
        catalog: Its catalog.
        is_server: Whether the catalog is a database server, which several lakes can share.
        attached_by_one_process: Whether only one process can have the catalog attached, unless all of them only read.
        reads_one_moment: Whether a transaction that only reads sees all metadata tables as of one moment.
        create_commits: Whether CREATE TABLE commits the transaction that runs it.
        drafts_sql: Whether a user's SQL changes tables in a draft, because the extension cannot do so in the catalog.
        stores_comments: Whether the engine can store comments of tables and columns.
        keeps_rows: Whether `inline="auto"` may keep rows in the catalog.
        plans_by_indexes: Whether its own queries use indexes, and see what their transaction sees.
        scans_in_threads: Whether threads of DuckDB can scan several metadata tables at once in a transaction.
        filters_scans: Whether DuckDB reads only the rows of a metadata table that meet the condition of a query.
        inlines_structs_as_sql: Whether the engine stores inlined structs as SQL expressions, which it cannot read.
        most_columns: How many columns a metadata table can have, if that is limited and DuckDB does not check it.
        settings: DuckDB settings of every connection to the lake, unless the configuration has others.
        analysis: The statement that updates the planner's statistics of a table, where its indexes depend on them.
        cache_reset: The statement that clears DuckDB's cached list of the catalog's tables, if there is one.
    """

    is_server: ClassVar[bool] = False
    attached_by_one_process: ClassVar[bool] = False
    reads_one_moment: ClassVar[bool] = True
    create_commits: ClassVar[bool] = False
    drafts_sql: ClassVar[bool] = False
    stores_comments: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    plans_by_indexes: ClassVar[bool] = False
    scans_in_threads: ClassVar[bool] = True
    filters_scans: ClassVar[bool] = True
    inlines_structs_as_sql: ClassVar[bool] = False
    most_columns: ClassVar[int | None] = None
    settings: ClassVar[Mapping[str, bool]] = MappingProxyType({})
    analysis: ClassVar[str | None] = None
    cache_reset: ClassVar[str | None] = None

    def __init__(self, config: "LakeConfig") -> None:
        self.config = config
        self.catalog = cast("CatalogT", config.catalog)

    # --- opening -------------------------------------------------------------------------------------------------

    def metadata_path(self) -> str:
        """Return what follows `ducklake:` in ATTACH, without credentials, which are in the secret."""
        raise NotImplementedError

    def metadata_attach(self, alias: str, *, read_only: bool) -> str:
        """Return the ATTACH that opens the metadata database itself under a name."""
        raise NotImplementedError

    def attach_options(self, *, writable: bool) -> dict[str, Any]:
        """Return the options of the lake's ATTACH that only this catalog has."""
        return {}

    def secret(self) -> dict[str, Any] | None:
        """Return the parameters of the secret for the catalog; None if it needs none."""
        return None

    @property
    def uses_storage_secret(self) -> bool:
        """Whether this process reads and writes the files, and so needs the storage's secret."""
        return True

    def login_statements(self, *, reveal: bool) -> list[str]:
        """Return the settings that log in to the catalog, for catalogs that use no secret."""
        return []

    def database_statements(self, *, create: bool, reveal: bool) -> list[str]:
        """Return the statements that run before the lake's own ATTACH."""
        return []

    @property
    def attaches_lake(self) -> bool:
        """Whether this process attaches the lake with the DuckLake extension."""
        return True

    # --- diagnosis -----------------------------------------------------------------------------------------------

    # The database to connect to if the lake's own may be missing; None for the server's default.
    home_database: ClassVar[str | None] = None

    def refused(self, failure: "DuckLakeOrchError") -> bool:
        """Whether the server refused an ATTACH with a message that depends on the server's language."""
        return False

    def database_exists_sql(self) -> str:
        """Return the query that has a row if the lake's database exists."""
        raise NotImplementedError

    def lakes_sql(self) -> str | None:
        """Return the query for the schemas that hold a lake; None if a catalog holds one lake."""
        return None

    # --- the catalog's own SQL -----------------------------------------------------------------------------------

    def attached(self, name: str) -> str:
        """Return a metadata table as DuckDB's SQL names it."""
        schema = f"{identifier(self.config.metadata_schema)}." if self.config.metadata_schema else ""
        return f"{identifier(self.config.metadata_alias)}.{schema}{identifier(name)}"

    def table(self, name: str) -> str:
        """Return a metadata table as the catalog's own SQL names it."""
        return f"{identifier(self.config.metadata_alias)}.{identifier(self.config.metadata_schema or 'main')}.{name}"

    def current_schema(self) -> str:
        """Return the expression for the schema that holds the metadata tables."""
        return literal(self.config.metadata_schema or "main")

    def quoted(self, name: str) -> str:
        """Return a name in the catalog's own quotes."""
        return identifier(name)

    def catalog_name(self) -> str:
        """Return the expression for the catalog's name, which is the same on every host that reaches it."""
        raise NotImplementedError

    def query(self, sql: str, *, alias: str | None = None) -> str:
        """Return the DuckDB SELECT that runs a query in the catalog and returns its rows.

        The query runs in the transaction of its connection. SQLite returns texts only.

        Args:
            sql: The query, in the catalog's own SQL.
            alias: Name under which the catalog is attached; by default the extension's own.
        """
        return sql

    def lake_option(self, name: str) -> str:
        """Return the DuckDB SELECT for a persisted option of the whole lake; it has one row, with a text or NULL."""
        # MySQL reserves the word `key`, except after a qualifier such as `m.`.
        options = f"{self.table('ducklake_metadata')} m where m.key = {literal(name)} and m.scope is null"
        return self.query(f"select {self.texts(['max(m.value)'])} from {options}")

    def texts(self, values: Iterable[str]) -> str:
        """Return expressions converted to texts for a SELECT in the catalog's own SQL, named v0, v1 and so on."""
        return ", ".join(f"{self.as_text(value)} as v{n}" for n, value in enumerate(values))

    def as_text(self, expression: str) -> str:
        """Return an expression converted to text."""
        return f"cast({expression} as varchar)"

    def text_literal(self, text: str) -> str:
        """Return a text as a literal of the catalog's own SQL, to compare with columns of `key_type` and with paths."""
        return literal(text)

    def typed_text(self, text: str) -> str:
        """Return a text as a literal of the catalog's own SQL, to store in a text column."""
        return literal(text)

    def by_bytes(self, expression: str) -> str:
        """Return a text so that the catalog's own SQL compares and sorts it by its bytes, in indexes as well."""
        return expression

    def key_type(self, length: int) -> str:
        """Return the type of a column that is part of a primary key and compares texts exactly."""
        return "VARCHAR"

    def names(self, con: "duckdb.DuckDBPyConnection | LakeConnection", prefix: str) -> list[str]:
        """List the tables of inlined rows and deletions whose names begin with a prefix."""
        # The engine lists the tables of a database that was attached directly, as `open_metadata` does, but not of one
        # that the extension has attached. There only the catalog itself tells which tables of inlined rows there are.
        alias = literal(self.config.metadata_alias)
        if con.execute(f"SELECT 1 FROM duckdb_databases() WHERE database_name = {alias}").fetchall():
            sql = (
                f"SELECT table_name FROM duckdb_tables() WHERE database_name = {alias}"
                f" AND schema_name = {self.current_schema()} AND starts_with(table_name, {literal(prefix)})"
            )
            return [str(row[0]) for row in con.execute(sql).fetchall()]
        sql = (
            f"SELECT table_name FROM {self.table('ducklake_inlined_data_tables')}"
            f" UNION SELECT 'ducklake_inlined_delete_' || table_id FROM {self.table('ducklake_table')}"
        )
        names = [str(row[0]) for row in con.execute(sql).fetchall()]
        return [name for name in names if name.startswith(prefix) and self.exists(con, name)]

    def mistyped_cells(self, con: "duckdb.DuckDBPyConnection | LakeConnection") -> list[str]:
        """Return the values of the metadata tables that have another type than their column, in words."""
        return []

    def exists(self, con: "duckdb.DuckDBPyConnection | LakeConnection", name: str) -> bool:
        """Whether the metadata database has a table or an index; other sessions create and drop some of them."""
        import duckdb

        from ducklake_orch.engine.temporary_setting import temporary_setting

        # The engine hides this database from all lists of tables, so the table is queried. If it does not exist, DuckDB
        # by default searches every attached catalog for a similar name, which would take nine tenths of the time.
        try:
            with temporary_setting(con, "catalog_error_max_schemas", "0"):
                con.execute(f"SELECT NULL FROM {self.table(name)} LIMIT 0")
        except duckdb.CatalogException:
            return False
        return True

    def refresh_tables(self, con: "duckdb.DuckDBPyConnection") -> None:
        """Make DuckDB see the tables that other sessions have created since it attached the catalog."""

    # --- time and size -------------------------------------------------------------------------------------------

    def clock_sql(self) -> str | None:
        """Return the expression for the server's time in microseconds; None where the catalog has no clock."""
        return None

    def now_sql(self) -> str:
        """Return the expression for the time in microseconds, by the catalog's clock if it has one."""
        return self.clock_sql() or str(time.time_ns() // 1000)

    def size_sql(self) -> str | None:
        """Return the query for the size of the metadata tables on a server, in bytes."""
        return None

    # --- transactions --------------------------------------------------------------------------------------------

    def first_statements(self) -> Sequence[str]:
        """Return the statements that a writing transaction runs right after BEGIN."""
        return ()

    def waits(self, seconds: float) -> str:
        """Return the statement that limits how long the statements of this transaction wait for locks of a server."""
        raise NotImplementedError

    def one_moment_statements(self) -> Sequence[str]:
        """Return the statements after which a reading transaction sees all metadata tables as of one moment."""
        return ()

    def change(self, name: str, statement: str) -> str:
        """Return the DuckDB statement that runs an UPDATE, DELETE or INSERT on a metadata table, or creates it.

        Args:
            name: The table.
            statement: The statement, in SQL that every catalog accepts; `{}` stands for the table.
        """
        return statement.replace("{}", self.attached(name), 1)

    # Whether several statements that write can be sent to the catalog as one.
    sends_together: ClassVar[bool] = False

    def together(self, statements: Sequence[str]) -> str:
        """Return the DuckDB statement that runs statements in the catalog's own SQL, where `sends_together`."""
        raise NotImplementedError

    def drop(self, name: str) -> str:
        """Return the DuckDB statement that drops a metadata table, if it exists."""
        return f"DROP TABLE IF EXISTS {self.attached(name)}"

    def drop_together(self, names: Sequence[str]) -> list[str]:
        """Return the DuckDB statements that drop existing metadata tables, all or none of them."""
        return ["BEGIN", *map(self.drop, names), "COMMIT"]

    def holds_nothing(self, con: "duckdb.DuckDBPyConnection") -> bool:
        """Whether the database, attached by itself, is a file without tables and views."""
        return False

    def remove_database(self) -> None:
        """Delete the database, which holds nothing and has no connection left, if it is a file."""

    # --- locks ---------------------------------------------------------------------------------------------------

    def writer_queue(self, connect: Connect) -> "Queue":
        """Return the queue in which writers wait.

        Args:
            connect: Returns a connection that has the catalog attached as `LOCK_ALIAS`; only servers need one.
        """
        from ducklake_orch.engine.locks import NoQueue

        return NoQueue()

    def named_lock(self, connect: Connect, name: str) -> "Queue":
        """Return a lock of this lake other than the writers' queue; `connect` as for `writer_queue`."""
        from ducklake_orch.engine.locks import NoQueue

        return NoQueue()

    def attach_lock(self, *, shared: bool) -> "Queue":
        """Return the lock that is held while the catalog is attached."""
        from ducklake_orch.engine.locks import NoQueue

        return NoQueue()

    def stays_open_for_small_writes(self) -> bool:
        """Whether a small write is faster if it keeps the catalog open throughout."""
        return False

    # --- inlined rows --------------------------------------------------------------------------------------------

    def inlined_type(self, kind: str, sql_type: str) -> str | None:
        """Return the type in which the engine stores inlined values; None if it cannot store them.

        Args:
            kind: The column's type as the catalog names it.
            sql_type: The column's type as DuckDB names it.
        """
        return None if kind == "geometry" else sql_type

    def takes_inlined_column(self, name: str) -> bool:
        """Whether a table of inlined rows can have a column of this name."""
        return True

    def inlined_text(self, kind: str, column: str) -> str:
        """Return the SQL that converts an inlined value to text or bytes, from which the column's type is cast."""
        return column if kind == "blob" else f"CAST({column} AS VARCHAR)"

    def inlined_value(self, kind: str, stored: str) -> str:
        """Return the SQL that reads a stored value, to be cast to the column's type."""
        return stored

    def flushes_column(self, name: str) -> bool:
        """Whether the engine can flush inlined rows with a column of this name."""
        return True


class FileDialect(Dialect[CatalogT]):
    """A catalog in one file, attached only while it is used.

    Attributes:
        database_type: What DuckDB calls such a file in ATTACH.
    """

    database_type: ClassVar[str]

    @property
    def path(self) -> Path:
        """The catalog file."""
        path = self.config.catalog_file
        assert path is not None  # noqa: S101 - the catalog is a file
        return path

    def metadata_attach(self, alias: str, *, read_only: bool) -> str:
        values = {"type": self.database_type} | ({"read_only": True} if read_only else {})
        return f"ATTACH {literal(str(self.path))} AS {identifier(alias)} {options(values)}"

    def catalog_name(self) -> str:
        return literal(self.path.resolve().name)

    def holds_nothing(self, con: "duckdb.DuckDBPyConnection") -> bool:
        in_database = f"WHERE database_name = {literal(self.config.metadata_alias)} AND NOT internal"
        sql = f"SELECT 1 FROM duckdb_tables() {in_database} UNION ALL SELECT 1 FROM duckdb_views() {in_database}"
        return con.execute(sql).fetchone() is None

    def remove_database(self) -> None:
        for file in (self.path, *self.path.parent.glob(f"{escape(self.path.name)}[.-]wal")):
            file.unlink(missing_ok=True)

    def named_lock(self, connect: Connect, name: str) -> "Queue":
        from ducklake_orch.engine.locks import FileQueue

        return FileQueue(self.path, name=name)
