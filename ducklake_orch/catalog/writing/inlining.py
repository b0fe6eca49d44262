"""Prepare small writes as inlined rows, which the catalog itself stores, so that such a commit writes no file.

`verbs/row_source.py` decides which writes are small.
"""

import tempfile
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import duckdb

from ducklake_orch.catalog.metadata import NewFile, Relation, TableDef, free_column_name, stored_types
from ducklake_orch.catalog.writing.cast_to_table import explain
from ducklake_orch.catalog.writing.file_writer import fitted, write_files
from ducklake_orch.engine.dialects import Dialect, dialect_of
from ducklake_orch.engine.quoting import identifier

if TYPE_CHECKING:
    from ducklake_orch.config.lake import LakeConfig

_DEFAULT_LIMIT = 10
_FEW = "__ducklake_orch_few"


@dataclass(frozen=True)
class InlinableRows:
    """Rows to inline in the catalog.

    Attributes:
        stored: The rows as texts, which are cast to the catalog's types, and numbered from 0.
        ordinal: The name of the column with the number.
        as_files: The files that the rows would be, for their statistics and partition keys.
        part: The name of a column that says which of several consecutive snapshots adds the row, counted from 0; None
            if one snapshot adds all rows.
    """

    stored: Relation
    ordinal: str
    as_files: tuple[NewFile, ...]
    part: str | None = None


def row_limit(config: "LakeConfig", table: TableDef) -> int:
    """Return the maximum number of rows that one write inlines; 0 if the catalog would not return the values intact."""
    limit = table.options.get("data_inlining_row_limit", config.data_inlining_row_limit)
    return int(_DEFAULT_LIMIT if limit is None else limit) if _can_inline(dialect_of(config), table) else 0


def _can_inline(dialect: Dialect[Any], table: TableDef) -> bool:
    return (
        dialect.keeps_rows
        # The catalog does not return all such values intact: for example, texts in structs lose their apostrophes.
        and not any(column.children or column.type in ("geometry", "variant") for column in table.columns)
        and stored_types(dialect, table.columns) is not None
        and all(dialect.flushes_column(column.name) for column in table.columns)
    )


def inline_limit(limit: int, reader: Any) -> tuple[bool, Any]:
    """Return whether a pyarrow.RecordBatchReader has at most `limit` rows, and a new reader with the same rows."""
    import pyarrow as pa

    if not limit:
        return False, reader
    seen, count = [], 0
    for batch in reader:
        seen.append(batch)
        count += batch.num_rows
        if count > limit:
            break
    return count <= limit, pa.RecordBatchReader.from_batches(reader.schema, chain(seen, reader))


def inlinable_rows(
    con: duckdb.DuckDBPyConnection,
    dialect: Dialect[Any],
    table: TableDef,
    source: str,
    only: str | None,
    part: str | None = None,
) -> InlinableRows | None:
    """Prepare rows to inline in the catalog; return None if there are none.

    Args:
        con: Any DuckDB connection.
        dialect: The catalog's dialect.
        table: The table to write for.
        source: The FROM item that reads the rows; it is read once.
        only: A predicate; rows that do not match it are left out.
        part: The name of an additional column of the source; see `InlinableRows`.
    """
    try:
        con.execute(f"CREATE TEMP TABLE {_FEW} AS {fitted(con, table, source, only, beside=part)}")
    except duckdb.Error as error:
        failure = explain(error, table)
        if failure is None:
            raise
        raise failure from None
    try:
        few = _FEW if part is None else f"(SELECT * EXCLUDE ({part}) FROM {_FEW})"
        with tempfile.TemporaryDirectory() as folder:
            files = write_files(con, replace(table, folder=f"{folder}/", data_path=f"{folder}/"), few, "few")
        named = ((column.type, identifier(column.name)) for column in table.columns)
        texts = ", ".join(f"{dialect.inlined_text(kind, name)} AS {name}" for kind, name in named)
        ordinal = free_column_name("ordinal", table.columns)
        numbers = f"row_number() OVER () - 1 AS {ordinal}" + ("" if part is None else f", {part}")
        rows = con.execute(f"SELECT {numbers}, {texts} FROM {_FEW}").to_arrow_table()
    finally:
        con.execute(f"DROP TABLE {_FEW}")
    if not len(rows):
        return None
    types = {name: "BIGINT" for name in (ordinal, part) if name is not None}
    types |= {column.name: "VARCHAR" for column in table.columns}
    return InlinableRows(Relation(types, [()] * len(rows), rows), ordinal, tuple(files), part)
