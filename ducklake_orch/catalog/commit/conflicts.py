"""Judge a planned change against what really committed since: at the finest level that is safe.

What a replace retires is worked out inside its commit, so nothing that came first is in its way but a change of what
its files were written for. The table of all pairs is in docs/concurrency.md.
"""

from collections.abc import Iterable, Mapping

from ducklake_orch.catalog.commit.table_change import ExactFiles, ExactRows, Rollback, TableChange
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
    ObjectExistsError,
    SchemaConflictError,
    StalePlanError,
    TableDroppedError,
)


def judge_table(change: TableChange, current: TableDef | None) -> bool:
    """Compare the table with what the change was planned on.

    Returns:
        Whether the change's own DDL is still to be done; not when somebody else has done the same meanwhile.

    Raises:
        TableDroppedError: When the table is gone, or another one has its name.
        ObjectExistsError: When it must not be there and is.
        SchemaConflictError: When somebody else made a table of that name that is not the same.
        StalePlanError: When its columns or its partition keys have changed: planned anew, the write can pass.
    """
    known = change.known
    if known is None:
        if current is None:
            return True
        if change.only_new:
            raise ObjectExistsError(
                f"The table `{change.table}` exists.", remedy="Mode `ignore` keeps it, `append` adds to it."
            )
        if not _same_layout(current, change.target):
            raise SchemaConflictError(
                f"Somebody else has just made a table `{change.table}` that is not the same.",
                remedy="Look at it, and write to it as it is.",
            )
        return False
    if current is None or current.table_id != known.table_id:
        what = "was dropped" if current is None else "was dropped and made anew"
        raise TableDroppedError(
            f"The table `{change.table}` {what} while it was being written.",
            remedy="Write to it again, if it is meant.",
        )
    evolves = _shape(known.columns) != _shape(change.target.columns)
    if _same_layout(current, known):
        return evolves
    if evolves and _same_layout(current, change.target):
        return False
    raise StalePlanError(
        f"The columns or partition keys of `{change.table}` have changed while it was being written.",
        remedy="The same write, planned anew, can pass.",
    )


def judge_place(metadata: Metadata, table: TableDef, at: int) -> None:
    """Look whether a new table can be made, and its files lie where its folder is going to be.

    Raises:
        ObjectExistsError: When a view has its name.
        StalePlanError: When its schema was made or dropped meanwhile, and has another folder now.
    """
    if metadata.has_view(table.schema, table.name, at):
        raise ObjectExistsError(f"`{table}` is a view.", remedy="Choose another name for the table.")
    schema = metadata.find_schema(table.schema, at)
    folder = schema[1] if schema else f"{metadata.data_path()}{folder_name(table.schema)}"
    if f"{folder}{folder_name(table.schema, table.name)}" != table.folder:
        raise StalePlanError(
            f"The schema `{table.schema}` was made or dropped while `{table}` was being written.",
            remedy="The same write, planned anew, can pass.",
        )


def _same_layout(one: TableDef, other: TableDef) -> bool:
    return _shape(one.columns) == _shape(other.columns) and _keys(one) == _keys(other) and one.folder == other.folder


def _keys(table: TableDef) -> object:
    # A spec without keys and no spec are the same to a file.
    return table.partition.fields if table.partition else ()


def _shape(columns: Iterable[ColumnDef]) -> tuple[object, ...]:
    """Return what of the columns a file depends on; not their defaults, which only later writes get."""
    return tuple((one.column_id, one.name, one.type, one.nullable, _shape(one.children)) for one in columns)


# What deletions a file has: its delete files, and how many rows are deleted in the catalog itself.
FileState = tuple[tuple[int, ...], int]


def planned_files(change: TableChange) -> list[DataFile]:
    """Return the files that a change was worked out from, and that must still be as they were."""
    match change.remove:
        case ExactFiles(files):
            removed = files
        case ExactRows():
            removed = change.remove.whole
        case Rollback():
            removed = change.remove.kept + change.remove.files
        case _:
            removed = ()
    return [*removed, *(change.deletes.files if change.deletes else ())]


def judge_files(change: TableChange, now: Mapping[int, FileState]) -> None:
    """Compare the files that a change was worked out from with what they are now.

    Args:
        change: The change.
        now: Those of its files that are still live, by id.

    Raises:
        StalePlanError: When one is gone, or has other deletions.
    """
    for file in planned_files(change):
        state = now.get(file.data_file_id)
        if state != (tuple(one.delete_file_id for one in file.deletes), file.inlined_deletes):
            what = "is gone" if state is None else "has lost other rows"
            raise StalePlanError(
                f"Somebody else changed `{change.table}` meanwhile: the file {file.path} {what}.",
                remedy="The same work, planned anew, can pass.",
            )


def data_changes(rows: Iterable[tuple[int, str | None]], table_id: int, *, deleting: bool = False) -> list[int]:
    """Return the snapshots that changed rows of a table, of those given with their tokens."""
    kinds = DELETING_CHANGES if deleting else DATA_CHANGES
    return [
        snapshot
        for snapshot, tokens in rows
        if any(token.id == table_id and token.kind in kinds for token in parse_tokens(tokens))
    ]
