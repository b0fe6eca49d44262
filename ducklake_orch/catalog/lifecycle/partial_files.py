"""Register files whose rows carry ids: files of merges and flushes hold rows that began in different snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.commit import PreparedFiles, prepare, stored_path
from ducklake_orch.catalog.metadata import MetadataTransaction, NewFile, Relation, TableDef

_FILES = {
    "ordinal": "BIGINT",
    "path": "VARCHAR",
    "path_is_relative": "BOOLEAN",
    "record_count": "BIGINT",
    "file_size_bytes": "BIGINT",
    "footer_size": "BIGINT",
    "begin_snapshot": "BIGINT",
    "partial_max": "BIGINT",
    "partition_id": "BIGINT",
    "encryption_key": "VARCHAR",
}


@dataclass(frozen=True)
class FileEntry:
    """A file, and where it belongs in the table's history.

    Attributes:
        file: The file; its rows carry their ids.
        begin: The first snapshot that reads it.
        partial_max: The last snapshot in which a row of the file began, if rows carry their snapshots; else None.
        partition_id: The partition spec that it was written with.
    """

    file: NewFile
    begin: int
    partial_max: int | None
    partition_id: int | None


def add_placed_files(
    transaction: MetadataTransaction, table: TableDef, files: Sequence[FileEntry], first_id: int
) -> PreparedFiles:
    """Insert the catalog rows of files, with partition values and statistics; return the totals.

    Args:
        transaction: The commit.
        table: The table that the files were written for.
        files: The files.
        first_id: The id of the first file.
    """
    ready = prepare(transaction.con, table, [file.file for file in files])
    rows = [
        (
            number,
            *stored_path(one.file.path, table.folder),
            one.file.record_count,
            one.file.file_size,
            one.file.footer_size,
            one.begin,
            one.partial_max,
            one.partition_id,
            one.file.encryption_key,
        )
        for number, one in enumerate(files)
    ]
    constants, numbers = {"table_id": table.table_id}, {"data_file_id": ("ordinal", first_id)}
    new = Relation.of(_FILES, rows)
    transaction.insert("ducklake_data_file", new, constants=constants | {"file_format": "parquet"}, shifts=numbers)
    transaction.insert("ducklake_file_partition_value", ready.values, constants=constants, shifts=numbers)
    transaction.insert("ducklake_file_column_stats", ready.stats, constants=constants, shifts=numbers)
    transaction.insert("ducklake_file_variant_stats", ready.variants, constants=constants, shifts=numbers)
    return ready


def recount(
    transaction: MetadataTransaction,
    table_id: int,
    added: Sequence[NewFile],
    *,
    removed_bytes: int = 0,
    rows_lost: int = 0,
) -> None:
    """Update the row count and size of a table; neither goes below 0, which the engine would reject.

    Args:
        transaction: The commit.
        table_id: The table.
        added: Files to add that are not in the catalog yet.
        removed_bytes: Size of the live files to remove that are still in the catalog.
        rows_lost: How many rows to subtract from the count.
    """
    name = transaction.metadata.table_sql
    live = f"FROM {name('ducklake_data_file')} WHERE table_id = {table_id} AND end_snapshot IS NULL"
    counts = f"(SELECT max(record_count) FROM {name('ducklake_table_stats')} WHERE table_id = {table_id})"
    found = transaction.metadata.rows(f"SELECT coalesce(sum(file_size_bytes), 0), {counts} {live}")
    size = int(found[0][0]) + sum(file.file_size for file in added) - removed_bytes
    rows = int(found[0][1] or 0) - rows_lost
    transaction.change(
        "ducklake_table_stats",
        f"UPDATE {{}} SET record_count = {max(rows, 0)}, file_size_bytes = {max(size, 0)} WHERE table_id = {table_id}",
    )
