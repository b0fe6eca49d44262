"""Insert delete files into the catalog; they replace all earlier deletions of their data files."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from ducklake_orch.catalog.commit.recording import recording_of
from ducklake_orch.catalog.commit.retire import Retired
from ducklake_orch.catalog.commit.staged_deletes import inlined_deletes
from ducklake_orch.catalog.commit.staged_files import stored_path
from ducklake_orch.catalog.metadata import (
    NOW,
    MetadataTransaction,
    NewDeleteFile,
    Relation,
    TableDef,
    TableHistory,
    deletions_table,
)
from ducklake_orch.catalog.parquet import read_vectors
from ducklake_orch.catalog.scan import LiveFiles
from ducklake_orch.catalog.writing import Loss, write_delete_files

_DELETES = {
    "ordinal": "BIGINT",
    "data_file_id": "BIGINT",
    "path": "VARCHAR",
    "path_is_relative": "BOOLEAN",
    "delete_count": "BIGINT",
    "file_size_bytes": "BIGINT",
    "footer_size": "BIGINT",
    "begin_snapshot": "BIGINT",
    "end_snapshot": "BIGINT",
    "partial_max": "BIGINT",
    "encryption_key": "VARCHAR",
}
_SCHEDULED = {"data_file_id": "BIGINT", "path": "VARCHAR", "path_is_relative": "BOOLEAN"}


def delete_files_of_retired(
    transaction: MetadataTransaction, table: TableDef, retired: Retired, snapshot: int, write_id: str
) -> list[NewDeleteFile]:
    """Write and return delete files for retired data files with inlined deletions; they end with their data files.

    Otherwise a later flush would write these deletions to a new delete file for the retired data file. Together with
    the delete file that the data file already had, two would then be valid at the snapshots in between. A draft is
    never flushed, and a reader of a stage may not write.
    """
    if not retired.file_count or recording_of(transaction.config) is not None:
        return []
    deletions = inlined_deletes(transaction.metadata, table, None if retired.all_files else retired.file_ids)
    if not deletions:
        return []
    history, at = TableHistory(transaction.metadata, table), transaction.latest.snapshot_id
    live = LiveFiles(history, at, deletions_table(transaction.metadata, table)).fetch()
    with closing(transaction.session.instance.root.cursor()) as con:
        files = read_vectors(con, [file for file, _ in live if file.data_file_id in deletions])
        losses = [Loss(file, deletions[file.data_file_id], None) for file in files]
        return [replace(file, end_snapshot=snapshot) for file in write_delete_files(con, table, write_id, losses)]


def insert_delete_files(
    transaction: MetadataTransaction, table: TableDef, deletes: Sequence[NewDeleteFile], first_id: int
) -> None:
    """Insert delete files; remove the deletions that they absorb, and schedule absorbed delete files for deletion.

    Args:
        transaction: The commit.
        table: The table.
        deletes: The delete files.
        first_id: Id of the first delete file.
    """
    if not deletes:
        return
    absorbed = [delete for new in deletes for delete in new.data_file.deletes]
    statement = f"DELETE FROM {{}} WHERE table_id = {table.table_id} AND"
    transaction.change_each(
        "ducklake_delete_file", statement, "delete_file_id", [file.delete_file_id for file in absorbed]
    )
    inlined = [delete.data_file.data_file_id for delete in deletes if delete.data_file.inlined_deletes]
    if inlined and (name := deletions_table(transaction.metadata, table)) is not None:
        transaction.change_each(name, "DELETE FROM {} WHERE", "file_id", inlined)
    transaction.insert(
        "ducklake_files_scheduled_for_deletion",
        Relation.of(_SCHEDULED, [(file.delete_file_id, *stored_path(file.path, table.data_path)) for file in absorbed]),
        constants={"schedule_start": NOW},
    )
    rows = [
        (
            n,
            delete.data_file.data_file_id,
            *stored_path(delete.path, table.folder),
            delete.delete_count,
            delete.file_size,
            delete.footer_size,
            delete.begin_snapshot,
            delete.end_snapshot,
            delete.partial_max,
            delete.encryption_key,
        )
        for n, delete in enumerate(deletes)
    ]
    transaction.insert(
        "ducklake_delete_file",
        Relation.of(_DELETES, rows),
        constants={"table_id": table.table_id, "format": "parquet"},
        shifts={"delete_file_id": ("ordinal", first_id)},
    )
