"""Check a planned change for conflicts with what was committed since, at the finest granularity that is safe.

A replacement finds the rows that it retires inside its commit. So earlier commits conflict with it only if they changed
the table that its files were written for. Where it must rewrite files, it also searches the rows that were committed
since its plan (`late_rows.py`). `docs/concurrency.md` lists every pair of concurrent changes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ducklake_orch.catalog.commit.table_change import ExactRows, TableChange
from ducklake_orch.catalog.metadata import (
    DATA_CHANGES,
    DELETING_CHANGES,
    ColumnDef,
    DataFile,
    Metadata,
    TableDef,
    folder_name,
    parse_tokens,
)
from ducklake_orch.errors import (
    ConfigError,
    ObjectExistsError,
    SchemaConflictError,
    StalePlanError,
    TableDroppedError,
)


def judge_table(change: TableChange, current: TableDef | None) -> bool:
    """Compare the current table with the table that the change was planned on.

    Returns:
        Whether the commit still has to run the change's DDL; False if a concurrent commit has done the same DDL.

    Raises:
        TableDroppedError: When the table was dropped, or another table has its name.
        ObjectExistsError: When the change must create the table and the table exists.
        SchemaConflictError: When a concurrent commit created a different table of that name.
        StalePlanError: When the columns or partition keys have changed, or the table to create was created in another
            folder; the write can succeed once planned again.
    """
    known = change.known
    if known is None:
        if current is None:
            return True
        if change.only_new:
            raise ObjectExistsError(
                f"A concurrent commit created the table `{change.table}`.",
                remedy="Use mode `ignore` to keep it, `append` to add to it.",
            )
        if not _same_layout(current, change.target):
            raise SchemaConflictError(
                f"A concurrent write created a different table `{change.table}`.",
                remedy="Compare its definition with yours, and write to it as it is.",
            )
        if current.folder != change.target.folder:  # engines name the folders of tables with unusual names differently
            raise StalePlanError(
                f"A concurrent commit created the table `{change.table}`, with another folder.",
                remedy="Retry the write: planned again, it can succeed.",
            )
        return False
    if current is None or current.table_id != known.table_id:
        event = "was dropped" if current is None else "was dropped and created again"
        raise TableDroppedError(
            f"The table `{change.table}` {event} during the write.",
            remedy="Check that this is intended, then run the write again.",
        )
    if _same_layout(current, known):
        _judge_altered_columns(change, known, current)
        return change.alters
    if not replace(change, known=current).alters:
        return False
    raise StalePlanError(
        f"The columns or partition keys of `{change.table}` changed during the write.",
        remedy="Retry the write: planned again, it can succeed.",
    )


def _judge_altered_columns(change: TableChange, known: TableDef, current: TableDef) -> None:
    """Check the columns that the change alters against concurrent commits that kept the layout.

    Raises:
        StalePlanError: When another commit changed such a column, or changed the sort keys while this change drops or
            renames a column.
    """
    names = {column.column_id: column.name for column in change.target.columns}
    if current.sort != known.sort and any(names.get(column.column_id) != column.name for column in known.columns):
        raise StalePlanError(
            f"The sort keys of `{change.table}` changed during the write.",
            remedy="Retry the change: planned again, it can succeed.",
        )
    now, target = ({column.column_id: column for column in table.columns} for table in (current, change.target))
    for column in known.columns:
        if target.get(column.column_id) != column != now[column.column_id]:
            raise StalePlanError(
                f"The column `{column.name}` of `{change.table}` changed during the write.",
                remedy="Retry the change: planned again, it can succeed.",
            )


def judge_new_buckets(metadata: Metadata, current: TableDef, target: TableDef) -> None:
    """Check that a table that gets a bucket key has no files: the engine would not find their rows by that key.

    Raises:
        ConfigError: When it has files.
    """
    new = [field for field in target.key_fields if field not in current.key_fields]
    if any(field.transform.startswith("bucket(") for field in new):
        files = metadata.table_sql("ducklake_data_file")
        if metadata.rows(f"SELECT 1 FROM {files} WHERE table_id = {current.table_id} AND end_snapshot IS NULL LIMIT 1"):
            raise ConfigError(
                f"`{current}` has files: DuckDB would not find their rows by a new bucket key.",
                remedy="Create a table with this key, and write the rows to it.",
            )


def judge_new_table(metadata: Metadata, table: TableDef, at: int) -> None:
    """Check that a new table can be created, and that its files are in the folder that it gets.

    Raises:
        ObjectExistsError: When a view has its name.
        StalePlanError: When its schema was created or dropped concurrently and now has another folder.
    """
    if metadata.has_view(table.schema, table.name, at):
        raise ObjectExistsError(f"`{table}` is a view.", remedy="Choose another name for the table.")
    schema = metadata.find_schema(table.schema, at)
    folder = schema[1] if schema else f"{metadata.data_path()}{folder_name(table.schema)}"
    if f"{folder}{folder_name(table.schema, table.name)}" != table.folder:
        raise StalePlanError(
            f"The schema `{table.schema}` was created or dropped during the write of `{table}`.",
            remedy="Retry the write: planned again, it can succeed.",
        )


def judge_new_columns(metadata: Metadata, current: TableDef, target: TableDef) -> None:
    """Check that no other column has had the ids of new columns; a dropped column keeps its id.

    Raises:
        StalePlanError: When a concurrent commit added a column that was dropped again.
    """
    known = {leaf.column_id for column in current.columns for leaf in column.leaves()}
    new = [leaf.column_id for column in target.columns for leaf in column.leaves() if leaf.column_id not in known]
    if new and min(new) < metadata.first_free_column(current.table_id):
        raise StalePlanError(
            f"Columns of `{current}` were added and dropped during the write.",
            remedy="Retry the write: planned again, it can succeed.",
        )


def _same_layout(table: TableDef, other: TableDef) -> bool:
    return _shape(table.columns) == _shape(other.columns) and table.key_fields == other.key_fields


def _shape(columns: Iterable[ColumnDef]) -> tuple[object, ...]:
    """Return the column properties that a data file depends on; it does not depend on defaults for later writes."""
    return tuple(
        (column.column_id, column.name, column.type, column.nullable, _shape(column.children)) for column in columns
    )


# The deletions of a data file: the ids of its delete files, and its number of inlined deletions.
FileState = tuple[tuple[int, ...], int]


def planned_files(change: TableChange) -> list[DataFile]:
    """Return the data files that a change was planned from and that must be unchanged when it commits."""
    removed = change.remove.whole if isinstance(change.remove, ExactRows) else ()
    return [*removed, *(change.deletes.files if change.deletes else ())]


def judge_files(change: TableChange, now: Mapping[int, FileState]) -> None:
    """Compare the data files that a change was planned from with their current state.

    Args:
        change: The change.
        now: The states of those files that are still live, by data file id.

    Raises:
        StalePlanError: When one of the files was retired, or has other deletions.
    """
    for file in planned_files(change):
        state = now.get(file.data_file_id)
        if state != (tuple(delete.delete_file_id for delete in file.deletes), file.inlined_deletes):
            event = "was retired" if state is None else "has other deletions"
            raise StalePlanError(
                f"A concurrent write changed `{change.table}`: the file {file.path} {event}.",
                remedy="Retry the change: planned again, it can succeed.",
            )


def data_changes(rows: Iterable[tuple[int, str | None]], table_id: int, *, deleting: bool = False) -> list[int]:
    """Return the snapshots that changed rows of a table.

    Args:
        rows: Snapshot ids with their `changes_made` tokens.
        table_id: The table.
        deleting: Return only the snapshots that deleted rows.
    """
    kinds = DELETING_CHANGES if deleting else DATA_CHANGES
    return [
        snapshot
        for snapshot, tokens in rows
        if any(token.id == table_id and token.kind in kinds for token in parse_tokens(tokens))
    ]
