"""Read the metadata tables at one snapshot: a constant number of queries, however many tables and files there are."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import duckdb

from ducklake_orch.catalog import changes
from ducklake_orch.catalog.model import (
    ColumnDef,
    InlinedTable,
    PartitionField,
    PartitionSpec,
    SnapshotRow,
    SortKey,
    TableDef,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.model import nearest
from ducklake_orch.engine import server_sql
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.snapshots import metadata
from ducklake_orch.errors import CatalogVersionError, DuckLakeOrchError, ObjectNotFoundError

# The format that this module reads and writes.
FORMAT_VERSION = "1.0"


class Metadata:
    """The metadata tables, as one connection sees them.

    Args:
        con: A connection that is not in the lake: in it, names would be looked up by the extension, which opens a
            transaction of its own and, on SQLite, blocks itself.
        config: The lake.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, config: LakeConfig) -> None:
        self.con = con
        self.config = config
        self._values: dict[tuple[str, str | None, int | None], str] | None = None

    def table_sql(self, name: str) -> str:
        """Return the qualified name of a metadata table."""
        return metadata(self.config, name)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query; `{name}` stands for a metadata table."""
        return self.con.execute(sql).fetchall()

    def latest(self) -> SnapshotRow:
        """Return the latest snapshot, asked of the catalog itself."""
        columns = "snapshot_id, schema_version, next_catalog_id, next_file_id"
        name = server_sql.table(self.config, "ducklake_snapshot")
        sql = f"select {columns} from {name} order by snapshot_id desc limit 1"
        row = self.rows(server_sql.query(self.config, sql))[0]
        return SnapshotRow(*(int(value) for value in row))

    def table(self, wanted: TableName, at: int) -> TableDef:
        """Return a table at a snapshot.

        Raises:
            ObjectNotFoundError: When there is none of that name; names the nearest.
        """
        found = self.find_table(wanted, at)
        if found is None:
            known = [f"{schema}.{name}" for schema, name in self.rows(self._names_sql(at))]
            raise ObjectNotFoundError(
                f"Lake `{self.config.name}` has no table `{wanted}`.",
                remedy=nearest(str(wanted), known) if known else "It has no tables yet.",
            )
        return found

    def _names_sql(self, at: int) -> str:
        return (
            f"SELECT s.schema_name, t.table_name FROM {self.table_sql('ducklake_table')} t"
            f" JOIN {self.table_sql('ducklake_schema')} s USING (schema_id) WHERE {live(at, 't')} AND {live(at, 's')}"
        )

    def find_schema(self, name: str, at: int) -> tuple[int, str] | None:
        """Return the id and the folder of a schema at a snapshot, if there is one of that name."""
        columns = "schema_id, schema_name, path, path_is_relative"
        for row in self.rows(f"SELECT {columns} FROM {self.table_sql('ducklake_schema')} WHERE {live(at)}"):
            if (text(row[1]) or "").lower() == name.lower():
                return int(row[0]), join_path(self.data_path(), row[2], row[3])
        return None

    def has_view(self, schema: str, name: str, at: int) -> bool:
        """Whether a view has a name at a snapshot; tables and views share theirs."""
        rows = self.rows(f"""
            SELECT s.schema_name, v.view_name FROM {self.table_sql("ducklake_view")} v
            JOIN {self.table_sql("ducklake_schema")} s USING (schema_id) WHERE {live(at, "v")} AND {live(at, "s")}""")
        return any(TableName(schema, name).names(text(row[0]) or "", text(row[1]) or "") for row in rows)

    def find_table(self, wanted: TableName, at: int) -> TableDef | None:
        """Return a table at a snapshot, if there is one of that name."""
        row = self._table_row(wanted, at)
        if row is None:
            return None
        table_id, schema_id = int(row[0]), int(row[2])
        data_path = self.data_path()
        schema_folder = join_path(data_path, row[4], row[5])
        return TableDef(
            table_id=table_id,
            uuid=text(row[1]) or "",
            schema_id=schema_id,
            schema=text(row[3]) or "",
            name=text(row[6]) or "",
            folder=join_path(data_path if not row[8] else schema_folder, row[7], row[8]),
            data_path=data_path,
            columns=self._columns(table_id, at),
            partition=self._partition(table_id, at),
            sort=self._sort(table_id, at),
            schema_versions=self._schema_versions(table_id),
            inlined=self._inlined(table_id),
            options=self.options(schema_id, table_id),
            encrypted=self.encrypted(),
        )

    def data_path(self) -> str:
        """Return the root of the lake's files: the configured one where it overrides what the lake was made with."""
        if self.config.override_data_path and self.config.data_path:
            return self.config.data_path
        stored = self._settings()[("data_path", None, None)]
        return stored if stored.endswith("/") else f"{stored}/"

    def encrypted(self) -> bool:
        """Whether the lake's files are encrypted."""
        return bool(truth(self._settings().get(("encrypted", None, None))))

    def options(self, schema_id: int | None = None, table_id: int | None = None) -> dict[str, str]:
        """Return the options that hold for a table: its own, else its schema's, else the lake's."""
        scopes: list[tuple[str | None, int | None]] = [(None, None), ("schema", schema_id), ("table", table_id)]
        found: dict[str, str] = {}
        for scope in scopes:
            found |= {key: value for (key, kind, owner), value in self._settings().items() if (kind, owner) == scope}
        return found

    def _settings(self) -> dict[tuple[str, str | None, int | None], str]:
        if self._values is not None:
            return self._values
        rows = self.rows(f"SELECT key, scope, scope_id, value FROM {self.table_sql('ducklake_metadata')}")
        values = {(text(r[0]) or "", text(r[1]), _maybe_int(r[2])): text(r[3]) or "" for r in rows}
        version = values.get(("version", None, None), "none")
        if version != FORMAT_VERSION:
            raise CatalogVersionError(
                f"The catalog of lake `{self.config.name}` has format {version}; this package knows {FORMAT_VERSION}.",
                remedy="Use a ducklake-orch that knows it, or bring the catalog up to date.",
            )
        self._values = values
        return values

    def _table_row(self, wanted: TableName, at: int) -> tuple[Any, ...] | None:
        rows = self.rows(f"""
            SELECT t.table_id, t.table_uuid, s.schema_id, s.schema_name, s.path, s.path_is_relative,
                   t.table_name, t.path, t.path_is_relative
            FROM {self.table_sql("ducklake_table")} t JOIN {self.table_sql("ducklake_schema")} s USING (schema_id)
            WHERE {live(at, "t")} AND {live(at, "s")}""")
        return next((row for row in rows if wanted.names(text(row[3]) or "", text(row[6]) or "")), None)

    def _columns(self, table_id: int, at: int) -> tuple[ColumnDef, ...]:
        rows = self.rows(f"""
            SELECT column_id, column_name, column_type, nulls_allowed, initial_default, default_value,
                   default_value_type, parent_column
            FROM {self.table_sql("ducklake_column")} WHERE table_id = {table_id} AND {live(at)}
            ORDER BY column_order, column_id""")
        return build_columns(rows)

    def first_free_column(self, table_id: int) -> int:
        """Return the id that the table's next new column gets; ids of dropped columns are not used again."""
        rows = self.rows(f"SELECT max(column_id) FROM {self.table_sql('ducklake_column')} WHERE table_id = {table_id}")
        return int(rows[0][0] or 0) + 1

    def _partition(self, table_id: int, at: int) -> PartitionSpec | None:
        rows = self.rows(f"""
            SELECT p.partition_id, c.column_id, c.transform
            FROM {self.table_sql("ducklake_partition_info")} p
            JOIN {self.table_sql("ducklake_partition_column")} c USING (partition_id)
            WHERE p.table_id = {table_id} AND {live(at, "p")} ORDER BY c.partition_key_index""")
        # RESET PARTITIONED BY leaves a spec without keys.
        fields = tuple(PartitionField(int(r[1]), text(r[2]) or "") for r in rows)
        return PartitionSpec(int(rows[0][0]), fields) if rows else None

    def _sort(self, table_id: int, at: int) -> tuple[SortKey, ...]:
        rows = self.rows(f"""
            SELECT e.expression, e.sort_direction, e.null_order
            FROM {self.table_sql("ducklake_sort_info")} s
            JOIN {self.table_sql("ducklake_sort_expression")} e USING (sort_id)
            WHERE s.table_id = {table_id} AND {live(at, "s")} ORDER BY e.sort_key_index""")
        return tuple(SortKey(text(r[0]) or "", text(r[1]) or "ASC", text(r[2]) or "NULLS_LAST") for r in rows)

    def _schema_versions(self, table_id: int) -> tuple[tuple[int, int], ...]:
        rows = self.rows(f"""
            SELECT begin_snapshot, schema_version FROM {self.table_sql("ducklake_schema_versions")}
            WHERE table_id = {table_id} ORDER BY 1""")
        return tuple((int(r[0]), int(r[1])) for r in rows)

    def _inlined(self, table_id: int) -> tuple[InlinedTable, ...]:
        rows = self.rows(f"""
            SELECT table_name, schema_version FROM {self.table_sql("ducklake_inlined_data_tables")}
            WHERE table_id = {table_id} ORDER BY schema_version""")
        return tuple(InlinedTable(text(r[0]) or "", int(r[1])) for r in rows)


@contextmanager
def reading(session: Session, doing: str) -> Iterator[Metadata]:
    """Read the metadata of a lake in one transaction, for a block.

    Args:
        session: The lake; it need not be entered.
        doing: What for, in the message of an error.
    """
    failure: DuckLakeOrchError | None = None
    with closing(session.instance.root.cursor()) as con:
        try:
            con.execute("BEGIN")
            yield Metadata(con, session.config)
        except duckdb.Error as error:
            failure = classify(error, session.config, f"{doing} failed")
        finally:
            # Not left to close(): when the server is gone, an open transaction there takes the whole process with it.
            with suppress(duckdb.Error):
                con.execute("ROLLBACK")
    if failure is not None:
        session.broken = True
        raise failure


def folder_name(*names: str) -> str:
    """Return the folder of a schema or table: its name where that is plain, else something made of it.

    The same for every writer, so that the files of two first writers lie in one place.
    """
    name = names[-1]
    plain = name.isascii() and name.replace("_", "").isalnum()
    return f"{name}/" if plain else f"{uuid5(NAMESPACE_URL, changes.quoted(*names))}/"


def live(at: int, alias: str | None = None) -> str:
    """Return the condition for rows that hold at a snapshot."""
    prefix = f"{identifier(alias)}." if alias else ""
    return f"{prefix}begin_snapshot <= {at} AND ({prefix}end_snapshot IS NULL OR {prefix}end_snapshot > {at})"


def build_columns(rows: Sequence[tuple[Any, ...]]) -> tuple[ColumnDef, ...]:
    """Put columns and the columns inside them together.

    Args:
        rows: id, name, type, nullable, initial default, default, type of the default, parent; in order.
    """
    inside: dict[int | None, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        inside[_maybe_int(row[7])].append(row)

    def build(parent: int | None) -> tuple[ColumnDef, ...]:
        return tuple(
            ColumnDef(
                column_id=int(row[0]),
                name=text(row[1]) or "",
                type=text(row[2]) or "",
                nullable=bool(truth(row[3])),
                initial_default=text(row[4]),
                default=text(row[5]),
                default_type=text(row[6]) or "",
                children=build(int(row[0])),
            )
            for row in inside[parent]
        )

    return build(None)


def text(value: Any) -> str | None:
    """Return a text of the catalog; Postgres and MySQL hold some as bytes."""
    if isinstance(value, bytes | bytearray):
        return value.decode()
    return None if value is None else str(value)


def join_path(root: str, path: Any, relative: Any) -> str:
    """Return the absolute form of a folder as the catalog holds it, with its closing slash."""
    folder = f"{root}{text(path) or ''}" if relative else (text(path) or "")
    return folder if folder.endswith("/") else f"{folder}/"


def truth(value: Any) -> bool | None:
    """Return a truth value of the catalog; SQLite and MySQL have numbers for them, options are texts."""
    return None if value is None else text(value) in ("1", "true", "True", "t")


def _maybe_int(value: Any) -> int | None:
    return None if value is None else int(value)
