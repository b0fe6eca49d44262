"""The known faults of the extension, by name. Where one applies, the engine is not asked or not believed.

The plan reader is always asked. The test avoids some faults:

- T3: tables are flushed immediately before a rewrite. Otherwise the rewrite fails, or the flush corrupts its result.
- T4: structs are not inlined on SQLite and Postgres.
- F9: a rewrite drops the bounds of a column that is NULL throughout the oldest remaining file, and the engine's next
  INSERT sets bounds of its own rows only. fsck repairs the lake after every write of the engine.
- F10: a connection that has cached a table's statistics before SET DATA TYPE drops the column's bounds at its next
  INSERT, and the INSERT after that sets bounds of its own rows only. A native write after each SET DATA TYPE makes the
  connection reload the statistics.
- F13: an INSERT or a flush whose first file has only NULLs in a column drops the column's bounds in the same way. Too
  narrow bounds do not only hide rows: a sort packs values by them, so a rewrite of a sorted table turns -1 into 255.
- F11: Postgres stores inlined texts as bytes, and a flush restores deleted rows whose partition keys are texts that
  differ from their bytes. On Postgres, tables that inline rows have no such keys.
- F16: an ALTER by a program that inlines nothing creates no table for inlined rows of the new schema version. Another
  program then inserts its rows into the table of the earlier version: its INSERT fails, or values are lost. Here, the
  program that inlines runs each ALTER.
- F17: with a column named `_ducklake_internal_row_id` or `_ducklake_internal_snapshot_id`, the engine's own files have
  two columns of that name, both with the column's field id. Row ids and earlier snapshots are then unreadable.
- F18: the engine hashes a UUID as the text of another row where rows were filtered. On Postgres, its flush of a table
  with such a bucket key restores deleted rows, loses others, or crashes. Here, only ducklake-orch flushes tables that
  have or had such a key.
"""

import re

from tests.catalog.differential.filters import Condition
from tests.catalog.differential.model import Model, Table
from tests.catalog.differential.shapes import keys
from tests.catalog.differential.values import PROMOTIONS, Scalar, sql_type

FLUSHED_LATE = "T1: a flush adds a second delete file to an ended data file, which earlier snapshots then scan twice"
FLOAT_EXPONENT = "F1: a FLOAT constant with an exponent is compared as a DOUBLE, which excludes matching files"
FLOAT_PROMOTED = "F2: bounds of a FLOAT column are inexact after its promotion to DOUBLE and exclude matching rows"
INLINED_DROPPED = "F3: an open connection queries a table of inlined rows that a flush has dropped"
INLINED_DROPPED_ERRORS = (
    "Failed to read inlined data",
    # The message of libpq if the server reports the error in the middle of a result.
    "Attempting to fetch from an unsuccessful query result",
    "Attempted to access index 0 within vector of size 0",
)
NARROWED = "F4: a rewrite narrows the table's bounds to the live rows, and earlier snapshots use these bounds"
NAN_BESIDE = "F6: `<>` excludes a file with NaN whose other numbers all equal the constant"
BUCKET_ADDED = "F7: a condition on a column with a bucket key excludes all files that are older than the key"
UNRECORDED = "F8: reading inlined rows of a schema version that altered nothing corrupts reads of its snapshots"
UNKNOWN_PLACE = "F15: inlined rows of a schema version without a time in the catalog are read under its column names"
PROMOTED_SINCE = "F5: a condition on a column at a snapshot before its promotion is an INTERNAL error"
BLOB_IN_FILTER = "F14: `=` on a BLOB probes Bloom filters with its printed form and excludes matching rows"
ZERO_IN_FILTER = "F15: `=` on FLOAT or DOUBLE probes Bloom filters with 0.0 and excludes rows with -0.0"
REMEMBERED = "F12: a merge of files corrupts reads of snapshots before the table's last ALTERs on the same connection"
# Errors that fsck may report: the results of T1 and F7, and NULLs of some types that the engine does not count.
LEFT_BEHIND = {"delete-files-overlap", "file-without-bucket", "table-hides-nulls"}


def fault_of(model: Model, table: Table, at: int, where: Condition) -> str | None:
    """Return the known fault because of which the engine is not asked for the rows that meet a condition, if any."""
    buckets = {key.column for key in keys(table) if key.transform.startswith("bucket")}
    for name in where.columns:
        column = table.column(name)
        if name in buckets and table.name in model.laid_out:
            return BUCKET_ADDED
        if column.type in (Scalar("FLOAT"), Scalar("DOUBLE")) and ("<>" in where.sql or "NOT" in where.sql):
            return NAN_BESIDE
        if column.type in (Scalar("FLOAT"), Scalar("DOUBLE")) and re.search(r"(=|IN \() ?(0|CAST\('-0')", where.sql):
            return ZERO_IN_FILTER
        if column.type == Scalar("BLOB") and ("=" in where.sql or " IN " in where.sql):
            return BLOB_IN_FILTER
        if column.type == Scalar("FLOAT") and re.search(r"\de[+-]?\d+' AS FLOAT", where.sql):
            return FLOAT_EXPONENT
        if column.type == Scalar("DOUBLE") and column.was == Scalar("FLOAT"):
            return FLOAT_PROMOTED
        if sql_type(column.type) in PROMOTIONS and at < model.promoted.get(table.name, 0):
            return PROMOTED_SINCE
    return None
