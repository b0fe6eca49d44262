"""Choose names for helper columns that collide with no user column, and refuse user columns with reserved names.

A user's column can have any name, in upper or lower case. So a helper column gets a name that no column of the table
has, and stored columns are read under names that no helper column has. A table with a column that has one of the
engine's names has no inlined rows.
"""

from collections.abc import Iterable, Sequence

from ducklake_orch.catalog.metadata.table_model import ROW_ID, SNAPSHOT_ID, ColumnDef
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import DataError

# The position of a row in its file.
_POSITION = "__ducklake_orch_position"
# The engine refuses these names for columns of a table whose rows it may inline.
RESERVED = ("row_id", "begin_snapshot", "end_snapshot", ROW_ID, SNAPSHOT_ID)


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return `name`, or `name` with underscores appended, so that it is not taken."""
    used = {folded(other) for other in taken}
    while folded(name) in used:
        name += "_"
    return name


def free_column_name(name: str, columns: Iterable[ColumnDef]) -> str:
    """Return the name for a helper column that collides with no column of a table."""
    return free_name(name, (column.name for column in columns))


def position_name(columns: Iterable[ColumnDef]) -> str:
    """Return the name for the helper column with the position of a row in its file."""
    return free_column_name(_POSITION, columns)


def row_id_name(columns: Iterable[ColumnDef]) -> str:
    """Return the name for the row id column, also in files; only in encrypted ones, readers find it by this name."""
    return free_column_name(ROW_ID, columns)


def snapshot_id_name(columns: Iterable[ColumnDef]) -> str:
    """Return the name for the column with the snapshot that added a row, also in files."""
    return free_column_name(SNAPSHOT_ID, columns)


def stored_name(name: str) -> str:
    """Return the name under which a stored column is read; no helper column's name has this prefix."""
    return f"column {name}"


def reserved_column(columns: Iterable[ColumnDef]) -> str | None:
    """Return the first column name that is reserved by the engine, or None."""
    return next((column.name for column in columns if folded(column.name) in RESERVED), None)


def refuse_reserved(columns: Sequence[ColumnDef], *, inlines: bool) -> None:
    """Refuse new columns whose names break the table, or whose names the engine refuses while it may inline rows.

    The engine writes row ids and snapshots into data files as columns `ROW_ID` and `SNAPSHOT_ID`. If a user's column
    has such a name, the engine writes its own column with the field id of the user's column. It can then read neither
    row ids nor earlier snapshots.

    Args:
        columns: The new columns.
        inlines: Whether the engine inlines small inserts into their table.

    Raises:
        DataError: When a column has such a name; names the first one.
    """
    broken = next((column.name for column in columns if folded(column.name) in (ROW_ID, SNAPSHOT_ID)), None)
    if broken is not None:
        raise DataError(
            f"The name of column `{broken}` is reserved by DuckLake: an UPDATE or a rewrite by the engine would make"
            " the table unreadable.",
            remedy="Rename the column.",
        )
    if inlines and (name := reserved_column(columns)) is not None:
        raise DataError(
            f"The name of column `{name}` is reserved by DuckLake while the lake inlines rows.",
            remedy='Rename the column, or disable inlining: lake.set_option("data_inlining_row_limit", 0).',
        )
