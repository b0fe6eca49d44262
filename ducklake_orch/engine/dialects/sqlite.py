"""SQLite files as catalogs, shared by the processes of one machine."""

import os
from collections.abc import Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.catalogs import SQLiteCatalog
from ducklake_orch.engine.dialects.base import Connect, FileDialect
from ducklake_orch.engine.quoting import folded, identifier, literal

if TYPE_CHECKING:
    import duckdb

    from ducklake_orch.engine.connection import LakeConnection
    from ducklake_orch.engine.locks import Queue

# SQLite's write-ahead log only grows while a connection is open; small writes keep it open up to this size.
_LONGEST_LOG = 4 * 1024 * 1024
# The columns of the metadata tables; in tables of inlined rows, only those that every such table has.
_TYPED_COLUMNS = """
    select t.name as v0, c.name as v1, c.type as v2 from sqlite_master t join pragma_table_info(t.name) c
    where t.type = 'table' and t.name like 'ducklake!_%' escape '!' and c.type in ('BIGINT', 'VARCHAR')
    and (t.name not glob 'ducklake_inlined_data_[0-9]*' or c.name in ('row_id', 'begin_snapshot', 'end_snapshot'))"""
_LONGEST_SHOWN = 60
_INTEGERS = ("boolean", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


class SQLiteDialect(FileDialect[SQLiteCatalog]):
    """A SQLite file in WAL mode."""

    database_type = "sqlite"
    reads_one_moment = False
    plans_by_indexes = True
    filters_scans = False
    inlines_structs_as_sql = True
    # DuckDB converts SQLite's values to text outside of the lock of the connection, which all scans of a transaction
    # share: with several threads, the process may crash.
    scans_in_threads = False
    most_columns = 2000
    # DuckDB scans a SQLite table in ranges of row numbers, up to the last row that the transaction has seen. A file
    # that a compaction adds meanwhile, in place of those it removes, is beyond it: the transaction would read neither.
    settings = MappingProxyType({"sqlite_disable_multithreaded_scans": True})

    def metadata_path(self) -> str:
        return f"sqlite:{self.path}"

    def attach_options(self, *, writable: bool) -> dict[str, Any]:
        # The plain BUSY_TIMEOUT option never reaches SQLite's pragma; these two options do. WAL lets readers run while
        # a writer commits.
        values: dict[str, Any] = {"meta_busy_timeout": self.catalog.busy_timeout}
        return values | {"meta_journal_mode": "WAL" if writable else None}

    def attached(self, name: str) -> str:
        # CREATE INDEX takes a name of two parts for one with a schema.
        return f"{identifier(self.config.metadata_alias)}.main.{identifier(name)}"

    def table(self, name: str) -> str:
        return name

    def query(self, sql: str, *, alias: str | None = None) -> str:
        return f"SELECT * FROM sqlite_query({literal(alias or self.config.metadata_alias)}, {literal(sql)})"

    def names(self, con: "duckdb.DuckDBPyConnection | LakeConnection", prefix: str) -> list[str]:
        pattern = literal(prefix.replace("_", "!_") + "%")
        sql = f"select name from sqlite_master where type = 'table' and name like {pattern} escape '!'"
        return [str(row[0]) for row in con.execute(self.query(sql)).fetchall()]

    def mistyped_cells(self, con: "duckdb.DuckDBPyConnection | LakeConnection") -> list[str]:
        columns = con.execute(self.query(_TYPED_COLUMNS)).fetchall()
        found = []
        for table, column, kind in columns:
            types = "'integer', 'null'" if kind == "BIGINT" else "'text', 'integer', 'real', 'null'"
            name = f'"{column}"'
            wrong = f'select quote({name}) from "{table}" where typeof({name}) not in ({types}) limit 1'
            found += [
                f"`{table}.{column}` is {str(value)[:_LONGEST_SHOWN]}, in a column of type {kind}"
                for (value,) in con.execute(self.query(wrong)).fetchall()
            ]
        return found

    def exists(self, con: "duckdb.DuckDBPyConnection | LakeConnection", name: str) -> bool:
        sql = f"select 1 from sqlite_master where name = {literal(name)}"
        return con.execute(self.query(sql)).fetchone() is not None

    def first_statements(self) -> Sequence[str]:
        # DuckDB begins with a read. SQLite cannot upgrade a reading transaction while others write, so write first.
        return [self.query("update ducklake_metadata set value = value where key = 'version' returning 1")]

    def one_moment_statements(self) -> Sequence[str]:
        # DuckDB scans SQLite tables outside the transaction, each at its current state, until the transaction has
        # changed something. After a DELETE of no rows it reads all tables as of one moment.
        return [f"DELETE FROM {self.attached('ducklake_metadata')} WHERE false"]

    def change(self, name: str, statement: str) -> str:
        if not name.startswith("ducklake_inlined_data_"):
            return super().change(name, statement)
        # DuckDB identifies the rows that it changes by SQLite's `rowid`, which a user's column of that name hides.
        return self.query(f"{statement.replace('{}', self.table(name), 1)} returning 1")

    def writer_queue(self, connect: Connect) -> "Queue":
        from ducklake_orch.engine.locks import FileQueue

        return FileQueue(self.path)

    def stays_open_for_small_writes(self) -> bool:
        # Closing the last connection checkpoints the WAL and deletes it, and a connection that opens at that moment
        # stalls for up to a second.
        try:
            return os.stat(f"{self.path}-wal").st_size < _LONGEST_LOG
        except OSError:
            return True

    def inlined_type(self, kind: str, sql_type: str) -> str | None:
        if kind in ("geometry", "variant"):
            return None
        return "BIGINT" if kind in _INTEGERS else "BLOB" if kind == "blob" else "VARCHAR"

    def inlined_text(self, kind: str, column: str) -> str:
        return super().inlined_text(kind, f"CAST({column} AS BIGINT)" if kind == "boolean" else column)

    def flushes_column(self, name: str) -> bool:
        return folded(name) != "rowid"
