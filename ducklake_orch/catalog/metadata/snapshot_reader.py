"""Read the metadata tables at one snapshot.

The entry point is `reading`, which gives a `Metadata`. The number of queries is constant: it does not depend on the
number of tables and files.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any
from uuid import NAMESPACE_URL, uuid5

import duckdb

from ducklake_orch.catalog.metadata import change_tokens
from ducklake_orch.catalog.metadata.cell_values import maybe_int, text, truth
from ducklake_orch.catalog.metadata.damaged_cells import naming_damage
from ducklake_orch.catalog.metadata.file_paths import as_listed
from ducklake_orch.catalog.metadata.lake_mark import MARK_OPTION, lake_mark
from ducklake_orch.catalog.metadata.table_model import SnapshotRow, TableDef, View
from ducklake_orch.catalog.metadata.table_reader import build_columns, read_table_rows
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classified, classify
from ducklake_orch.engine.formats import FORMAT, NEWER_FORMAT, NEWER_PREFIX
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.engine.session import Session, open_metadata
from ducklake_orch.engine.snapshots import metadata
from ducklake_orch.errors import CatalogVersionError, DuckLakeOrchError, ObjectNotFoundError

# Values by key, scope (None for the lake, `schema` or `table`) and the id of that.
Settings = Mapping[tuple[str, str | None, int | None], str]


class Metadata:
    """The metadata tables, as one connection sees them.

    Args:
        con: A connection that has not entered the lake. In an entered connection the extension would resolve names in a
            transaction of its own, and on SQLite the two transactions would block each other.
        config: The lake.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection, config: LakeConfig) -> None:
        self._con = con
        self.config = config
        self.dialect = dialect_of(config)
        self._values: Settings | None = None

    @property
    def con(self) -> duckdb.DuckDBPyConnection:
        """The connection to read with."""
        return self._con

    def table_sql(self, name: str) -> str:
        """Return the qualified name of a metadata table."""
        return metadata(self.config, name)

    def of_inlined(self, column: str) -> str:
        """Return the name of a column that tables of inlined rows have besides the user's: `row_id`, for example."""
        return column if self.format == FORMAT else f"{NEWER_PREFIX}{column}"

    def live_inlined(self, at: int) -> str:
        """Return the SQL condition for inlined rows that are live at a snapshot."""
        return _live(at, self.of_inlined(""))

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Run a query."""
        return self.con.execute(sql).fetchall()

    def latest(self) -> SnapshotRow:
        """Return the latest snapshot, from a query that the catalog itself runs."""
        return self._snapshots("order by snapshot_id desc limit 1")[0]

    def snapshot(self, snapshot_id: int) -> SnapshotRow | None:
        """Return a snapshot, or None if there is none with that id."""
        return next(iter(self._snapshots(f"where snapshot_id = {snapshot_id}")), None)

    def _snapshots(self, which: str) -> list[SnapshotRow]:
        columns = f"snapshot_id, schema_version, next_catalog_id, next_file_id, {self.dialect.now_sql()} as read_at"
        sql = f"select {columns} from {self.dialect.table('ducklake_snapshot')} {which}"
        return [SnapshotRow(*(int(value) for value in row)) for row in self.rows(self.dialect.query(sql))]

    def table(self, wanted: TableName, at: int) -> TableDef:
        """Return a table at a snapshot.

        Raises:
            ObjectNotFoundError: When no table has that name; the error suggests similar names.
        """
        table_def = self.find_table(wanted, at)
        if table_def is None:
            names = [f"{schema}.{name}" for schema, name in self.table_names(at)]
            raise ObjectNotFoundError(
                f"Lake `{self.config.name}` has no table `{wanted}`.",
                remedy=nearest(str(wanted), names) if names else "The lake has no tables yet.",
            )
        return table_def

    def table_names(self, at: int) -> list[tuple[str, str]]:
        """Return the schema and name of each table at a snapshot."""
        sql = (
            f"SELECT s.schema_name, t.table_name FROM {self.table_sql('ducklake_table')} t"
            f" JOIN {self.table_sql('ducklake_schema')} s USING (schema_id) WHERE {live(at, 't')} AND {live(at, 's')}"
        )
        return [(text(schema) or "", text(name) or "") for schema, name in self.rows(sql)]

    def find_schema(self, name: str, at: int) -> tuple[int, str] | None:
        """Return the id and the folder of a schema at a snapshot, or None if no schema has that name."""
        columns = "schema_id, schema_name, path, path_is_relative"
        for row in self.rows(f"SELECT {columns} FROM {self.table_sql('ducklake_schema')} WHERE {live(at)}"):
            if folded(text(row[1]) or "") == folded(name):
                return int(row[0]), join_path(self.data_path(), row[2], row[3])
        return None

    def has_view(self, schema: str, name: str, at: int) -> bool:
        """Return whether a view has a name at a snapshot; tables and views share one namespace."""
        return any(TableName(schema, name).names(*view.name) for view in self.views(at))

    def views(self, at: int) -> list[View]:
        """Return the views at a snapshot."""
        rows = self.rows(f"""
            SELECT s.schema_name, v.view_name, v.sql, v.column_aliases FROM {self.table_sql("ducklake_view")} v
            JOIN {self.table_sql("ducklake_schema")} s USING (schema_id) WHERE {live(at, "v")} AND {live(at, "s")}""")
        texts = ([text(cell) or "" for cell in row] for row in rows)
        return [View(TableName(schema, name), sql, aliases) for schema, name, sql, aliases in texts]

    def macros(self, at: int) -> list[tuple[str, str]]:
        """Return the names of the macros at a snapshot, each with its SQL."""
        rows = self.rows(f"""
            SELECT m.macro_name, i.sql FROM {self.table_sql("ducklake_macro")} m
            JOIN {self.table_sql("ducklake_macro_impl")} i USING (macro_id) WHERE {live(at, "m")}""")
        return [(text(name) or "", text(sql) or "") for name, sql in rows]

    def is_taken(self, name: TableName, at: int) -> bool:
        """Return whether a table or a view has a name at a snapshot."""
        return self._table_row(name, at) is not None or self.has_view(*name, at)

    def find_table(self, wanted: TableName, at: int) -> TableDef | None:
        """Return a table at a snapshot, or None if no table has that name."""
        row = self._table_row(wanted, at)
        if row is None:
            return None
        table_id, schema_id = int(row[0]), int(row[2])
        data_path, table_rows = self.data_path(), read_table_rows(self.con, self.config, table_id, at)
        schema_folder = join_path(data_path, row[4], truth(row[5]))
        return TableDef(
            table_id=table_id,
            uuid=text(row[1]) or "",
            schema_id=schema_id,
            schema=text(row[3]) or "",
            name=text(row[6]) or "",
            folder=join_path(schema_folder if truth(row[8]) else data_path, row[7], truth(row[8])),
            data_path=data_path,
            columns=build_columns(table_rows.columns, at),
            partition=table_rows.partition,
            sort=table_rows.sort,
            schema_versions=table_rows.schema_versions,
            inlined=table_rows.inlined,
            options=self.options(schema_id, table_id),
            encrypted=self.encrypted(),
            lake_mark=self.lake_mark(),
            past_columns=table_rows.columns,
            past_specs=table_rows.specs,
        )

    def data_path(self) -> str:
        """Return the root of the lake's files: the configured one if it overrides the one in the catalog."""
        if self.config.override_data_path and self.config.data_path:
            return self.config.data_path
        return join_path("", self.settings()[("data_path", None, None)], relative=False)

    def requires_message(self) -> bool:
        """Return whether the lake requires a message for every commit."""
        return bool(truth(self.settings().get(("require_commit_message", None, None))))

    def lake_id(self) -> str:
        """Return the identity of the lake, which does not depend on its name: the UUID of its first schema."""
        name = self.dialect.table("ducklake_schema")
        column = self.dialect.texts(["schema_uuid"])
        sql = f"select {column} from {name} order by begin_snapshot, schema_id limit 1"
        return next((text(row[0]) or "" for row in self.rows(self.dialect.query(sql))), "")

    def snapshot_time(self, snapshot: int) -> int | None:
        """Return the time of a snapshot, in microseconds since the epoch; None if there is no such snapshot."""
        sql = f"SELECT epoch_us(snapshot_time::TIMESTAMPTZ) FROM {self.table_sql('ducklake_snapshot')}"
        return next((int(row[0]) for row in self.rows(f"{sql} WHERE snapshot_id = {snapshot}")), None)

    def encrypted(self) -> bool:
        """Return whether the lake's files are encrypted."""
        return bool(truth(self.settings().get(("encrypted", None, None))))

    def lake_mark(self) -> str:
        """Return the mark of the lake, which is part of the names of all files that its writers create."""
        if (mark := self.settings().get((MARK_OPTION, None, None))) is not None:
            return mark
        return lake_mark(*(self.settings().get(("lake", part, None)) for part in ("main schema", "catalog")))

    def options(self, schema_id: int | None = None, table_id: int | None = None) -> dict[str, str]:
        """Return the options that apply to a table: its own override its schema's, which override the lake's."""
        scopes: list[tuple[str | None, int | None]] = [(None, None), ("schema", schema_id), ("table", table_id)]
        options: dict[str, str] = {}
        for scope in scopes:
            options |= {key: value for (key, kind, owner), value in self.settings().items() if (kind, owner) == scope}
        return options

    def own_options(self, table_id: int) -> dict[str, str]:
        """Return the options that are set for a table itself."""
        return {key: value for (key, *scope), value in self.settings().items() if tuple(scope) == ("table", table_id)}

    def comment(self, table_id: int) -> str | None:
        """Return the comment of a table at the latest snapshot."""
        of_table = f"object_id = {table_id} AND key = 'comment' AND end_snapshot IS NULL"
        rows = self.rows(f"SELECT value FROM {self.table_sql('ducklake_tag')} WHERE {of_table}")
        return text(rows[0][0]) if rows else None

    @property
    def format(self) -> str:
        """The version of the lake's format."""
        return self.settings()[("version", None, None)]

    def settings(self) -> Settings:
        """Return the options that the catalog stores, and what the mark of the lake is computed from."""
        if self._values is not None:
            return self._values
        name = self.dialect.table("ducklake_metadata")
        # The alias is needed because an unqualified `key` is a reserved word in MySQL.
        columns = self.dialect.texts(["m.key", "m.scope", "m.scope_id", "m.value"])
        # The same query also reads what the mark of the lake is computed from.
        schemas = self.dialect.table("ducklake_schema")
        main = self.dialect.texts(["'lake'", "'main schema'", "null", "s.schema_uuid"])
        catalog = self.dialect.texts(["'lake'", "'catalog'", "null", self.dialect.catalog_name()])
        sql = (
            f"select {columns} from {name} m union all select {main} from {schemas} s where s.schema_id = 0"
            f" union all select {catalog}"
        )
        rows = self.rows(self.dialect.query(sql))
        values = {(text(r[0]) or "", text(r[1]), maybe_int(r[2])): text(r[3]) or "" for r in rows}
        version = values.get(("version", None, None), "none")
        if version not in (FORMAT, NEWER_FORMAT):
            raise CatalogVersionError(
                f"The catalog of lake `{self.config.name}` has format {version}; supported is {FORMAT}.",
                remedy="Use a version of ducklake-orch that supports it, or migrate the catalog.",
            )
        self._values = values
        return values

    def _table_row(self, wanted: TableName, at: int) -> tuple[Any, ...] | None:
        columns = ["t.table_id", "t.table_uuid", "s.schema_id", "s.schema_name", "s.path", "s.path_is_relative"]
        columns += ["t.table_name", "t.path", "t.path_is_relative"]
        tables, schemas = (self.dialect.table(name) for name in ("ducklake_table", "ducklake_schema"))
        sql = (
            f"select {self.dialect.texts(columns)} from {tables} t"
            f" join {schemas} s on s.schema_id = t.schema_id where {live(at, 't')} and {live(at, 's')}"
        )
        rows = self.rows(self.dialect.query(sql))
        found = [row for row in rows if wanted.names(text(row[3]) or "", text(row[6]) or "")]
        if len(found) > 1 and self.format != FORMAT:
            raise CatalogVersionError(
                f"Lake `{self.config.name}` has several tables `{wanted}`, in nested schemas of the same name.",
                remedy="Rename one of the schemas: ducklake-orch knows a nested schema by its last name.",
            )
        return found[0] if found else None

    def first_free_column(self, table_id: int) -> int:
        """Return the id for the table's next new column; ids of dropped columns are never reused."""
        rows = self.rows(f"SELECT max(column_id) FROM {self.table_sql('ducklake_column')} WHERE table_id = {table_id}")
        return int(rows[0][0] or 0) + 1


@contextmanager
def reading(session: Session, doing: str) -> Iterator[Metadata]:
    """Open a transaction that reads the metadata tables of a lake, for the duration of a block.

    Args:
        session: The lake; it need not be entered.
        doing: The purpose of the read, for error messages.
    """
    with naming_damage(session.config, doing, lambda: closing(session.instance.root.cursor())):
        failure: DuckLakeOrchError | None = None
        in_threads = dialect_of(session.config).scans_in_threads
        lone = nullcontext() if in_threads else session.instance.one_thread()
        with lone, closing(session.instance.root.cursor()) as con:
            try:
                con.execute("BEGIN")
                reader = Metadata(con, session.config)
                if not session.access.read_only:
                    for statement in reader.dialect.one_moment_statements():
                        con.execute(statement)
                yield reader
            except duckdb.Error as error:
                failure = classify(error, session.config, f"{doing} failed")
            finally:
                # Roll back explicitly: if the server is unreachable, close() with an open transaction crashes the
                # process.
                with suppress(duckdb.Error):
                    con.execute("ROLLBACK")
        if failure is not None:
            session.broken = True
            raise failure


@contextmanager
def reading_shared(config: LakeConfig, doing: str) -> Iterator[Metadata | None]:
    """Read the metadata tables of a catalog that only one process can write, while other processes read it too.

    Yields None if the lake itself must be opened instead: other kinds of catalogs are shared anyway, and this catalog
    may have to be created or migrated first.
    """
    path = config.catalog_file
    if not dialect_of(config).attached_by_one_process or config.automatic_migration or not (path and path.exists()):
        yield None
        return
    with open_metadata(config, trusted=True) as con, classified(config, f"{doing} failed"):
        reader = Metadata(con.unwrap(), config)
        yield reader if reader.dialect.exists(con.unwrap(), "ducklake_snapshot") else None


def folder_name(*names: str) -> str:
    """Return the folder of a schema or table: its name if that is plain, else a UUID computed from the name.

    The result is the same for every writer, so that two concurrent first writers use the same folder.
    """
    name = names[-1]
    plain = name.isascii() and name.replace("_", "").isalnum()
    return f"{name}/" if plain else f"{uuid5(NAMESPACE_URL, change_tokens.quoted_path(*names))}/"


def live(at: int, alias: str | None = None) -> str:
    """Return the SQL condition for rows that are live at a snapshot."""
    return _live(at, f"{alias}." if alias else "")


def _live(at: int, prefix: str) -> str:
    return f"{prefix}begin_snapshot <= {at} AND ({prefix}end_snapshot IS NULL OR {prefix}end_snapshot > {at})"


def join_path(root: str, path: Any, relative: Any) -> str:
    """Return the absolute path, with a closing slash, of a folder that the catalog stores."""
    folder = f"{root}{text(path) or ''}" if relative else as_listed(text(path) or "")
    return folder if folder.endswith("/") else f"{folder}/"
