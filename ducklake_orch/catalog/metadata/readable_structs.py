"""Rewrite inlined structs that the engine has stored in a form which it cannot read; see `inlined_structs.py`."""

import logging
from typing import NamedTuple

from ducklake_orch.catalog.metadata.cell_values import text
from ducklake_orch.catalog.metadata.inlined_data import table_exists
from ducklake_orch.catalog.metadata.inlined_structs import readable_structs_sql
from ducklake_orch.catalog.metadata.snapshot_reader import Metadata, reading
from ducklake_orch.catalog.metadata.table_history import TableHistory
from ducklake_orch.catalog.metadata.table_model import TableDef
from ducklake_orch.catalog.metadata.transaction import MetadataTransaction, commit_metadata
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.formats import FORMAT
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")
_PURPOSE = "rewriting inlined structs"


class UnreadableStruct(NamedTuple):
    """A text that stands for a struct: in which column of which inlined-data table, and what it should be."""

    table: str
    column: str
    stored: str
    readable: str


def make_structs_readable(opened: Session | LakeConfig) -> None:
    """Rewrite the inlined structs that other programs or a user's own statements may have inserted.

    A failure is only logged, because those statements have been committed: the next flush writes the same values.

    Args:
        opened: The lake, in a session or as its configuration.
    """
    config = opened if isinstance(opened, LakeConfig) else opened.config
    if not dialect_of(config).inlines_structs_as_sql:
        return
    try:
        if isinstance(opened, Session):
            _make_readable(opened)
        else:
            with open_session(opened, entering=False) as session:
                _make_readable(session)
    except DuckLakeOrchError as error:
        log.warning("lake `%s`: inlined structs stay unreadable until the next flush: %s", config.name, error)


def _make_readable(session: Session) -> None:
    if not session.access.writable:
        return
    with reading(session, _PURPOSE) as metadata:
        tables = _tables_with_structs(metadata)
        structs = [struct for table in tables for struct in unreadable_structs(metadata, table)]
    if structs:
        commit_metadata(session, Write(_PURPOSE, marked=False, repeatable=True), lambda tx: _rewrite(tx, structs))


def unreadable_structs(metadata: Metadata, table: TableDef) -> list[UnreadableStruct]:
    """Return the inlined structs of a table that the engine cannot read, or reads as others."""
    if not metadata.dialect.inlines_structs_as_sql or metadata.format != FORMAT:
        return []
    found = []
    for inlined in table.inlined:
        columns = TableHistory(metadata, table).columns(inlined.schema_version)
        structs = [column for column in columns if column.type == "struct"]
        if structs and table_exists(metadata, inlined.name):
            for column in structs:
                rows = metadata.rows(readable_structs_sql(metadata.table_sql(inlined.name), column))
                found += [UnreadableStruct(inlined.name, column.name, *row) for row in rows]
    return found


def _tables_with_structs(metadata: Metadata) -> list[TableDef]:
    """Return the tables that may have inlined rows and that have, or had, a column of structs."""
    inlined, tables, schemas, columns = (
        metadata.dialect.table(f"ducklake_{name}") for name in ("inlined_data_tables", "table", "schema", "column")
    )
    sql = (
        f"select distinct {metadata.dialect.texts(['s.schema_name', 't.table_name'])} from {inlined} i"
        f" join {tables} t on t.table_id = i.table_id and t.end_snapshot is null"
        f" join {schemas} s on s.schema_id = t.schema_id and s.end_snapshot is null"
        f" join {columns} c on c.table_id = i.table_id and c.parent_column is null and c.column_type = 'struct'"
    )
    names = [TableName(text(row[0]) or "", text(row[1]) or "") for row in metadata.rows(metadata.dialect.query(sql))]
    at = metadata.latest().snapshot_id if names else 0
    return [table for name in names if (table := metadata.find_table(name, at)) is not None]


def _rewrite(transaction: MetadataTransaction, structs: list[UnreadableStruct]) -> None:
    dialect = transaction.dialect
    for struct in structs:
        column, new, old = dialect.quoted(struct.column), struct.readable, struct.stored
        change = f"{column} = {dialect.typed_text(new)} WHERE {column} = {dialect.typed_text(old)}"
        transaction.change(struct.table, f"UPDATE {{}} SET {change}")
