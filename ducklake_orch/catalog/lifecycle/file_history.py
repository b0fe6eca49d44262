"""Live data files with the history of their rows: every delete file and every inlined deletion."""

from collections import defaultdict
from collections.abc import Sequence

from ducklake_orch.catalog.metadata import DeleteFile, TableHistory, deletions_table
from ducklake_orch.catalog.parquet import FileLife, with_vectors
from ducklake_orch.catalog.scan import DELETE_FILE, FILE, data_file, delete_file


def file_lives(history: TableHistory, ids: Sequence[int]) -> dict[int, FileLife]:
    """Return those of the given files that are live, with the history of their rows."""
    metadata, name = history.metadata, history.metadata.table_sql
    id_list = ", ".join(map(str, ids))
    condition = f"table_id = {history.table.table_id} AND data_file_id IN ({id_list})"
    deletes: dict[int, list[DeleteFile]] = defaultdict(list)
    columns = ["data_file_id", *DELETE_FILE]
    sql = f"SELECT {', '.join(columns)} FROM {name('ducklake_delete_file')} WHERE {condition} ORDER BY delete_file_id"
    for row in metadata.rows(sql):
        delete = delete_file(history.table.folder, dict(zip(columns, row, strict=True)), 0)
        deletes[int(row[0])].append(delete)
    deleted: dict[int, list[tuple[int, int]]] = defaultdict(list)
    if (deletions := deletions_table(metadata, history.table)) is not None:
        sql = f"SELECT file_id, row_id, begin_snapshot FROM {name(deletions)} WHERE file_id IN ({id_list})"
        for file_id, position, snapshot in metadata.rows(sql):
            deleted[int(file_id)].append((int(position), int(snapshot)))
    lives = []
    sql = f"SELECT {', '.join(FILE)} FROM {name('ducklake_data_file')} WHERE {condition} AND end_snapshot IS NULL"
    for row in metadata.rows(sql):
        values = dict(zip(FILE, row, strict=True))
        number = int(values["data_file_id"])
        file = data_file(history, values, deletes=tuple(deletes[number]))
        lives.append(FileLife(file, deleted=tuple(deleted[number])))
    return {life.file.data_file_id: life for life in with_vectors(metadata.con, lives)}
