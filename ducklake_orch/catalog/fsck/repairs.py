"""The repairs: for each code a query and a function that changes what the query finds. None of them guesses.

The queries run over a copy of the catalog, and each repair changes only the rows that its query returns.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ducklake_orch.catalog.commit import add_inlined_table, stored_path
from ducklake_orch.catalog.fsck.fold import fold_deletes
from ducklake_orch.catalog.fsck.repair_context import RepairContext
from ducklake_orch.catalog.fsck.snapshot_checks import readable
from ducklake_orch.catalog.metadata import ColumnDef, duckdb_type
from ducklake_orch.engine.quoting import TableName, literal

Rows = Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class Repair:
    """How findings of some codes are repaired.

    Attributes:
        codes: The codes of the checks.
        query: The query for what to change, over a copy of the catalog.
        apply: Changes what the query returns.
        from_files: Whether the query needs files or the storage; it then runs before the transaction.
        folds: Whether the repair writes a file for each row of the query.
    """

    codes: tuple[str, ...]
    query: str
    apply: Callable[[RepairContext, Rows], None]
    from_files: bool = False
    folds: bool = False


def commit_only(context: RepairContext, rows: Rows) -> None:
    """Do nothing more: the snapshot that every repair commits is the repair."""


# --- snapshots ---------------------------------------------------------------------------------------------------


def drop_changes(context: RepairContext, rows: Rows) -> None:
    """Remove recorded changes of snapshots that do not exist."""
    context.delete_each("ducklake_snapshot_changes", "snapshot_id", [row[0] for row in rows])


def clean_changes(context: RepairContext, rows: Rows) -> None:
    """Keep only those recorded changes that the engine can read."""
    for snapshot, changes in rows:
        left = context.text(readable(changes))
        context.update("ducklake_snapshot_changes", f"changes_made = {left}", f"snapshot_id = {snapshot}")


# --- files -------------------------------------------------------------------------------------------------------


def unschedule(context: RepairContext, rows: Rows) -> None:
    """Remove files from the list of files that clean-up deletes."""
    for number, path in rows:
        context.delete(
            "ducklake_files_scheduled_for_deletion", f"data_file_id = {number} AND path = {context.text(path)}"
        )


def respell(context: RepairContext, rows: Rows) -> None:
    """Write paths in the spelling of a listing of the storage."""
    for what, number, path, listed, folder in rows:
        if _same_object(path, listed):
            stored, relative = stored_path(listed, folder)
            values = f"path = {context.text(stored)}, path_is_relative = {literal(relative)}"
            kind = what.replace(" ", "_")
            context.update(f"ducklake_{kind}", values, f"{kind}_id = {number}")


def _same_object(path: str, listed: str) -> bool:
    """Return whether two spellings provably mean one file: on disk the same file, elsewhere only another scheme."""
    if "://" in path:
        return path.partition("://")[2] == listed.partition("://")[2]
    return os.path.exists(path) and os.path.exists(listed) and os.path.samefile(path, listed)


def end_with_table(context: RepairContext, rows: Rows) -> None:
    """End files of a dropped table at the snapshot that dropped it."""
    for what, number, end in rows:
        kind = what.replace(" ", "_")
        context.update(f"ducklake_{kind}", f"end_snapshot = {end}", f"{kind}_id = {number}")


def set_file(column: str) -> Callable[[RepairContext, Rows], None]:
    """Return the repair that writes a value from the file itself."""

    def apply(context: RepairContext, rows: Rows) -> None:
        for what, number, value in rows:
            kind = what.replace(" ", "_")
            set_value, condition = f"{column} = {int(value)}", f"{kind}_id = {number}"
            context.update(f"ducklake_{kind}", set_value, condition)
            # Later repairs count with this value.
            context.copy.con.execute(f"UPDATE ducklake_{kind} SET {set_value} WHERE {condition}")

    return apply


def set_partition(context: RepairContext, rows: Rows) -> None:
    """Write the partition value that all rows of a file have."""
    for number, index, value in rows:
        context.update(
            "ducklake_file_partition_value",
            f"partition_value = {context.text(value)}",
            f"data_file_id = {number} AND partition_key_index = {index}",
        )


# --- deletes -----------------------------------------------------------------------------------------------------


def fold(context: RepairContext, rows: Rows) -> None:
    """Merge all deletes of a data file into one delete file."""
    for (number,) in rows:
        fold_deletes(context, int(number))


def drop_deletes(context: RepairContext, rows: Rows) -> None:
    """Remove delete files whose data file does not exist."""
    context.delete_each("ducklake_delete_file", "delete_file_id", [row[0] for row in rows])


def keep_one_delete(context: RepairContext, rows: Rows) -> None:
    """Keep the earliest of several inlined deletes of one row."""
    for table_id, file_id, position, first in rows:
        name = f"ducklake_inlined_delete_{table_id}"
        context.delete(name, f"file_id = {file_id} AND row_id = {position}")
        row = {"file_id": file_id, "row_id": position, "begin_snapshot": first}
        context.transaction.insert_row(name, row)


# --- statistics --------------------------------------------------------------------------------------------------


def insert_counts(context: RepairContext, rows: Rows) -> None:
    """Insert the counts of a table that has none."""
    for table_id, count, next_row, size in rows:
        row = {"table_id": table_id, "record_count": count, "next_row_id": next_row, "file_size_bytes": size}
        context.transaction.insert_row("ducklake_table_stats", row)


def raise_counter(column: str) -> Callable[[RepairContext, Rows], None]:
    """Return the repair that sets a counter of a table."""

    def apply(context: RepairContext, rows: Rows) -> None:
        for table_id, value in rows:
            context.update("ducklake_table_stats", f"{column} = {int(value)}", f"table_id = {table_id}")

    return apply


def widen(context: RepairContext, rows: Rows) -> None:
    """Widen a column's statistics to cover what is known about its live values."""
    for table_id, column_id, kind in rows:
        condition = f"table_id = {table_id} AND column_id = {column_id}"
        typed = "VARCHAR" if kind in ("geometry", "variant") else duckdb_type(ColumnDef(column_id, "", kind, True))
        low, high, null, nan = context.copy.con.execute(f"""
            SELECT arg_min(low, TRY_CAST(low AS {typed})), arg_max(high, TRY_CAST(high AS {typed})),
                   bool_or(some_null), bool_or(some_nan)
            FROM (SELECT min_value, max_value, null_count > 0, contains_nan FROM column_fact WHERE {condition}
                  UNION ALL
                  SELECT min_value, max_value, contains_null, contains_nan FROM ducklake_table_column_stats
                  WHERE {condition}) q(low, high, some_null, some_nan)""").fetchall()[0]
        values = f"min_value = {context.text(low)}, max_value = {context.text(high)}"
        values += f", contains_null = {literal(null)}, contains_nan = {literal(nan)}"
        context.update("ducklake_table_column_stats", values, condition)


def forget_bounds(context: RepairContext, rows: Rows) -> None:
    """Remove the table's statistics of a column; the engine then uses those of the files only."""
    for table_id, column_id in rows:
        condition = f"table_id = {table_id} AND column_id = {column_id}"
        context.delete("ducklake_table_column_stats", condition)
        context.copy.con.execute(f"DELETE FROM ducklake_table_column_stats WHERE {condition}")


def write_real(context: RepairContext, rows: Rows) -> None:
    """Write the statistics that the values of a column in a file really have."""
    for number, column_id, low, high, count, nulls, nan in rows:
        facts = f", value_count = {count}" + ("" if nulls is None else f", null_count = {nulls}")
        facts += "" if nan is None else f", contains_nan = {literal(nan)}"
        condition = f"data_file_id = {number} AND column_id = {column_id}"
        bounds = f"min_value = {context.text(low)}, max_value = {context.text(high)}"
        context.update("ducklake_file_column_stats", bounds + facts, condition)
        # Later repairs widen the table's statistics to these.
        bounds = f"min_value = {literal(low)}, max_value = {literal(high)}"
        context.copy.con.execute(f"UPDATE ducklake_file_column_stats SET {bounds}{facts} WHERE {condition}")


def drop_statistics(context: RepairContext, rows: Rows) -> None:
    """Remove statistics and partition values of files that do not exist."""
    ids: dict[tuple[str, int], list[int]] = defaultdict(list)
    for name, table_id, number in rows:
        ids[name, table_id].append(number)
    for (name, table_id), numbers in ids.items():
        context.delete_each(name, "data_file_id", numbers, f" table_id = {table_id} AND")


# --- inlined rows ------------------------------------------------------------------------------------------------


def add_current_inlined_table(context: RepairContext, rows: Rows) -> None:
    """Create a table for inlined rows with the current columns."""
    transaction = context.transaction
    for schema, name in rows:
        table = transaction.metadata.table(TableName(schema, name), transaction.latest.snapshot_id)
        add_inlined_table(transaction, table, table.schema_versions[-1][1])
