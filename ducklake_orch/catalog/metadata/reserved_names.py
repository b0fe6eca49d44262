"""Names of columns that no user gave: beside the columns of a table, in files, and in the catalog.

A user's column may be called like anything, in any case of letters. So a helper column beside columns of a table takes
a name that none of them has, stored columns are read under names that no helper column has, and a table with a column
that is called like one of the engine's keeps no rows in the catalog.
"""

from collections.abc import Iterable, Sequence

from ducklake_orch.catalog.metadata.table_model import ROW_ID, SNAPSHOT_ID, ColumnDef
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import DataError

# The position of a row in its file.
_POSITION = "__ducklake_orch_position"
# The engine refuses these while it may inline rows of the table.
RESERVED = ("row_id", "begin_snapshot", "end_snapshot", ROW_ID, SNAPSHOT_ID)


def free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken: this one, or a longer one."""
    known = {folded(one) for one in taken}
    while folded(name) in known:
        name += "_"
    return name


def beside(name: str, columns: Iterable[ColumnDef]) -> str:
    """Return the name of a helper column beside columns of a table."""
    return free_name(name, (one.name for one in columns))


def position_name(columns: Iterable[ColumnDef]) -> str:
    """Return what the position of a row in its file is called beside columns of a table."""
    return beside(_POSITION, columns)


def row_id_name(columns: Iterable[ColumnDef]) -> str:
    """Return what the id of a row is called beside columns of a table, also in files; readers go by its field id."""
    return beside(ROW_ID, columns)


def snapshot_id_name(columns: Iterable[ColumnDef]) -> str:
    """Return what the snapshot of a row is called beside columns of a table, also in files."""
    return beside(SNAPSHOT_ID, columns)


def stored_name(name: str) -> str:
    """Return what a stored column is called where it is read: no helper column's name begins like this."""
    return f"column {name}"


def reserved_column(columns: Iterable[ColumnDef]) -> str | None:
    """Return the first column that is called like one of the engine's own, if there is one."""
    return next((one.name for one in columns if folded(one.name) in RESERVED), None)


def refuse_reserved(columns: Sequence[ColumnDef], *, inlines: bool) -> None:
    """Refuse new columns whose names the engine refuses while it may inline rows, or breaks tables with.

    The engine writes row ids and snapshots into data files as columns `ROW_ID` and `SNAPSHOT_ID`. It gives them the
    field id of a user's column of that name, and can then read neither row ids nor earlier snapshots.

    Args:
        columns: The new columns.
        inlines: Whether the engine inlines small inserts into their table.

    Raises:
        DataError: Names the first.
    """
    broken = next((one.name for one in columns if folded(one.name) in (ROW_ID, SNAPSHOT_ID)), None)
    if broken is not None:
        raise DataError(
            f"The name of column `{broken}` is reserved by DuckLake: an UPDATE or a rewrite by the engine would make"
            " the table unreadable.",
            remedy="Rename the column.",
        )
    if inlines and (name := reserved_column(columns)) is not None:
        raise DataError(
            f"The name of column `{name}` is reserved by DuckLake while the lake inlines rows.",
            remedy='Rename the column, or turn inlining off: lake.set_option("data_inlining_row_limit", 0).',
        )
