"""Run a user's SQL in a draft, and commit to the lake what it did to the tables: `draft_sql`.

The extension itself runs the statements, on the SQLite catalog of the draft. The files that it writes there are
replaced by ducklake-orch's own when the changes are folded, so they have the table's layout, exact statistics and the
names by which files of a failed write are found.
"""

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

from ducklake_orch.catalog.commit import ExactRows, TableChange
from ducklake_orch.catalog.metadata import (
    DELETING_CHANGES,
    Metadata,
    TableDef,
    Token,
    folder_name,
    inlines,
    parse_tokens,
    paths_of_tables,
    refuse_reserved,
    text,
)
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions.draft import AdoptedTable, Draft
from ducklake_orch.catalog.transactions.publishing import publish, remove_unpublished
from ducklake_orch.catalog.transactions.table_copy import FIRST_DRAFT_FILE
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.drafted_sql import UnpublishableError
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.engine.session import Session, open_metadata
from ducklake_orch.engine.stored_files import remove_unused
from ducklake_orch.errors import DataError, DuckLakeOrchError, StatementError

log = logging.getLogger("ducklake_orch")
_TABLE_CHANGES = frozenset(
    ("created_table", "dropped_table", "altered_table", "inserted_into_table", "deleted_from_table", "inlined_delete")
)
# What the extension can do in every catalog, by what it records in the snapshot.
_OF_EXTENSION = {
    "created_schema": "CREATE SCHEMA",
    "dropped_schema": "DROP SCHEMA",
    "created_view": "CREATE VIEW",
    "dropped_view": "DROP VIEW",
    "created_scalar_macro": "CREATE MACRO",
    "created_table_macro": "CREATE MACRO",
    "dropped_scalar_macro": "DROP MACRO",
    "dropped_table_macro": "DROP MACRO",
}


@contextmanager
def draft_sql(session: Session, write: Write, texts: Sequence[str] | None) -> "Iterator[DraftedSql]":
    """Open a draft for SQL; what it does is lost unless it is published.

    Args:
        session: The lake, in whose writers' queue the caller holds the lock.
        write: Identity of the transaction; its snapshots are filled in.
        texts: The draft gets the tables that these texts name; None for all tables.
    """
    draft = Draft(session.config, write, session=session)
    try:
        _adopt_named(draft, texts)
        _inline_nothing(draft)
        write.before = draft.base.snapshot_id
        yield DraftedSql(session, write, draft)
    finally:
        remove_unpublished(draft, write)
        _remove_files_of_extension(draft)
        draft.remove()


@dataclass(frozen=True)
class DraftedSql:
    """A draft in which the extension runs statements."""

    session: Session
    write: Write
    draft: Draft

    def attached(self) -> AbstractContextManager[None]:
        """Attach the draft in place of the lake for a block."""
        return self.session.attached_to(self.draft.config)

    def publish(self) -> None:
        """Commit what the statements committed to the draft to the lake, as one snapshot.

        Raises:
            UnpublishableError: When they changed more than tables; nothing is committed then.
            ConflictError: When another program changed what they depend on.
        """
        with planning(self.draft.config, f"Reading what {self.write.purpose} did", reads=True) as drafted:
            changes = list(_Changes(self.draft, drafted))
        self._refuse_reserved(changes)
        for change in changes:
            self.draft.tables.setdefault(change.table.key, None)
        self.draft.recording.changes += changes
        self.write.after = publish(self.draft, self.write).snapshot_id if changes else self.write.before

    def _refuse_reserved(self, changes: Sequence[TableChange]) -> None:
        """Refuse new columns whose names the extension cannot inline, by the options of the lake, not of the draft."""
        try:
            with self.draft.reading_lake("Checking the names of new columns") as metadata:
                for change in changes:
                    known = change.known.columns if change.known else ()
                    new = [column for column in change.target.columns if column not in known]
                    options = change.known.options if change.known else metadata.options(change.target.schema_id)
                    table = replace(change.target, options=options)
                    refuse_reserved(new, inlines=inlines(self.draft.lake, table))
            return
        except DataError as error:
            failure = StatementError(error.message, remedy=error.remedy)
        raise failure


class _Changes:
    """What statements did to each table of a draft.

    Args:
        draft: The draft.
        drafted: Its metadata tables.
    """

    def __init__(self, draft: Draft, drafted: Metadata) -> None:
        self._draft, self._drafted = draft, drafted
        self._latest = drafted.latest().snapshot_id
        self._adopted = {table.table.table_id: table for table in draft.tables.values() if table is not None}

    def __iter__(self) -> Iterator[TableChange]:
        tables = {table.table_id: table for table in self._live()}
        self._refuse(tables)
        for number, adopted in self._adopted.items():
            if number not in tables:
                yield TableChange(_name(adopted.table), adopted.table, adopted.table, drops=True)
            elif any(token.id == number for token in self._tokens):
                yield self._changed(adopted, tables[number])
        for number, table in tables.items():
            if number not in self._adopted:
                yield TableChange(_name(table), None, replace(table, folder=self._folder(table)), only_new=True)

    @cached_property
    def _tokens(self) -> list[Token]:
        name, base = self._drafted.table_sql("ducklake_snapshot_changes"), self._draft.base.snapshot_id
        rows = self._drafted.rows(f"SELECT changes_made FROM {name} WHERE snapshot_id > {base}")
        return [token for row in rows for token in parse_tokens(text(row[0]))]

    def _live(self) -> Iterable[TableDef]:
        for name in self._drafted.table_names(self._latest):
            if (table := self._drafted.find_table(TableName(*name), self._latest)) is not None:
                yield table

    def _changed(self, adopted: AdoptedTable, table: TableDef) -> TableChange:
        kinds = {token.kind for token in self._tokens if token.id == table.table_id}
        base, files = self._draft.base.snapshot_id, adopted.plan.scan.files
        removal = ExactRows(base, None, files) if kinds & DELETING_CHANGES else None
        comment = self._new_comment(table.table_id)
        return TableChange(_name(table), adopted.table, table, remove=removal, comment=comment)

    def _new_comment(self, table_id: int) -> str | None:
        """Return the comment that the statements gave a table, an empty one if they removed it; None if neither."""
        tags, base = self._drafted.table_sql("ducklake_tag"), self._draft.base.snapshot_id
        changed = f"object_id = {table_id} AND key = 'comment' AND (begin_snapshot > {base} OR end_snapshot > {base})"
        if not self._drafted.rows(f"SELECT 1 FROM {tags} WHERE {changed}"):
            return None
        return self._drafted.comment(table_id) or ""

    def _folder(self, table: TableDef) -> str:
        """Return the folder that a new table will have in the lake."""
        made = any(token.kind == "created_schema" for token in self._tokens)
        known = None if made else self._drafted.find_schema(table.schema, self._latest)
        schema = known[1] if known else f"{self._drafted.data_path()}{folder_name(table.schema)}"
        return f"{schema}{folder_name(table.schema, table.name)}"

    def _refuse(self, tables: dict[int, TableDef]) -> None:
        """Refuse what cannot be committed from a draft."""
        done = {_OF_EXTENSION.get(token.kind, token.kind) for token in self._tokens} - _TABLE_CHANGES
        new = {folded(table.schema) for number, table in tables.items() if number not in self._adopted}
        if "CREATE SCHEMA" in done and self._made_schemas() <= new:
            done.discard("CREATE SCHEMA")  # a schema is committed with its first table
        known = {name for name, table in self._draft.tables.items() if table is not None}
        renamed = [n for n, table in self._adopted.items() if n in tables and _name(tables[n]) != _name(table.table)]
        if renamed:
            done.add("RENAME of a table")
        if any(number not in self._adopted and _name(table).key in known for number, table in tables.items()):
            done.add("DROP and CREATE of one table")
        catalog = self._draft.lake.catalog.type
        if "altered_view" in done:
            raise UnpublishableError(
                f"A {catalog} catalog stores no comments of views.", remedy="Comment on tables and columns only."
            )
        if done:
            failure = UnpublishableError(
                f"On a {catalog} catalog, {' and '.join(sorted(done))} cannot be part of a transaction that changes"
                " tables.",
                remedy="Run it as a command of its own, without `atomic` and outside of BEGIN … COMMIT.",
            )
            failure.fits_extension = True
            raise failure

    def _made_schemas(self) -> set[str]:
        schemas, base = self._drafted.table_sql("ducklake_schema"), self._draft.base.snapshot_id
        rows = self._drafted.rows(f"SELECT schema_name FROM {schemas} WHERE begin_snapshot > {base}")
        return {folded(text(row[0]) or "") for row in rows}


def _name(table: TableDef) -> TableName:
    return TableName(table.schema, table.name)


def _adopt_named(draft: Draft, texts: Sequence[str] | None) -> None:
    """Copy the tables whose names texts contain, and those that the views among these names read."""
    if texts is None:
        draft.adopt_all()
        return
    with draft.reading_lake("Finding the tables of a statement") as metadata:
        at = draft.base.snapshot_id
        names = metadata.table_names(at)
        stored = [(view.name.table, view.sql) for view in metadata.views(at)] + metadata.macros(at)
    found, new = list[str](), [folded(text) for text in texts]
    while new:
        found += new
        named = [(name, sql) for name, sql in stored if any(_is_in(name, text) for text in new)]
        stored = [each for each in stored if each not in named]
        new = [folded(sql) for _, sql in named]
    draft.adopt_tables(
        [TableName(schema, table) for schema, table in names if any(_is_in(table, text) for text in found)]
    )


def _is_in(name: str, text: str) -> bool:
    """Whether a text contains a name, be it in a string or a comment; more tables do no harm, fewer do."""
    written = re.escape(folded(name)).replace('"', '""?')
    return re.search(rf"(?<![\w$]){written}(?![\w$])", text) is not None


def _inline_nothing(draft: Draft) -> None:
    """Make the extension write Parquet files in a draft, whatever the lake's options: only these can be published."""
    with open_metadata(draft.config, read_only=False, trusted=True) as con:
        options = dialect_of(draft.config).attached("ducklake_metadata")
        con.execute(f"DELETE FROM {options} WHERE key IN ('data_inlining_row_limit', 'write_deletion_vectors')")


def _remove_files_of_extension(draft: Draft) -> None:
    """Delete the files that the extension wrote for a draft; the lake has others in their place."""
    try:
        with planning(draft.config, "Listing the files of a transaction", reads=True) as drafted:
            paths = paths_of_tables(drafted, first=FIRST_DRAFT_FILE)
    except DuckLakeOrchError as error:  # raising it would hide the outcome of the transaction
        log.warning("files that the extension wrote for a transaction are left to maintenance: %s", error)
        return
    if paths:
        remove_unused(draft.lake, sorted(paths))
