"""Merge all deletes of one data file into one delete file that records when each row was deleted.

The engine reads rows twice, or brings deleted rows back, if a data file has two live delete files, or if a position is
deleted both in a delete file and in the catalog. The repair guesses nothing: each row was deleted in the first snapshot
that any of its deletes names.
"""

from uuid import uuid4

from ducklake_orch.catalog.commit import stored_path
from ducklake_orch.catalog.fsck.repair_context import RepairContext
from ducklake_orch.catalog.metadata import (
    DELETED_PATH_FIELD,
    DELETED_POS_FIELD,
    NOW,
    SNAPSHOT_ID_FIELD,
    Token,
    file_prefix,
)
from ducklake_orch.engine.quoting import file_literal, literal

_SNAPSHOT = "_ducklake_internal_snapshot_id"


def fold_deletes(context: RepairContext, data_file_id: int) -> None:
    """Replace all deletes of a data file by one delete file; time travel stays exact."""
    if data_file_id in context.folded:
        return
    con = context.copy.con
    delete_files = con.execute(f"""
        SELECT d.id, d.full_path, d.begin_snapshot FROM known_path d
        WHERE d.what = 'delete file' AND d.data_file_id = {data_file_id} ORDER BY d.id""").fetchall()
    ((table_id, folder, data_path, end),) = con.execute(f"""
        SELECT f.table_id, t.folder, f.full_path, f.end_snapshot FROM known_path f JOIN known_table t USING (table_id)
        WHERE f.what = 'data file' AND f.id = {data_file_id}""").fetchall()
    inlined = f"file_id = {data_file_id}" + ("" if end is None else f" AND begin_snapshot < {end}")
    parts = [_positions_sql(context, path, begin) for _, path, begin in delete_files]
    parts.append(f"SELECT row_id, begin_snapshot FROM inlined_delete WHERE {inlined}")
    prefix = file_prefix(context.write_id, context.transaction.metadata.lake_mark())
    path = f"{folder}{prefix}-{uuid4()}-delete.parquet"
    ids = f"file_path: {DELETED_PATH_FIELD}, pos: {DELETED_POS_FIELD}, {_SNAPSHOT}: {SNAPSHOT_ID_FIELD}"
    rows = f"SELECT pos, min(since) AS since FROM ({' UNION ALL '.join(parts)}) q(pos, since) GROUP BY pos"
    con.execute(f"CREATE OR REPLACE TEMP TABLE folded AS {rows}")
    ((count, first, last),) = con.execute("SELECT count(*), min(since), max(since) FROM folded").fetchall()
    content = f"SELECT {literal(data_path)} AS file_path, pos, since AS {_SNAPSHOT} FROM folded ORDER BY pos"
    copy_to = f"COPY ({content}) TO {literal(path)} (FORMAT parquet, FIELD_IDS {{{ids}}}, RETURN_STATS true)"
    ((_, _, size, footer, *_),) = con.execute(copy_to).fetchall()
    stored, relative = stored_path(path, folder)
    row = {"delete_file_id": context.next_file_id, "table_id": table_id, "begin_snapshot": first, "end_snapshot": end}
    row |= {"data_file_id": data_file_id, "path": stored, "path_is_relative": relative, "format": "parquet"}
    row |= {"delete_count": count, "file_size_bytes": size, "footer_size": footer, "partial_max": last}
    context.next_file_id += 1
    context.delete("ducklake_delete_file", f"data_file_id = {data_file_id}")
    context.transaction.insert_row("ducklake_delete_file", row)
    for delete_file_id, old_path, _ in delete_files:
        stored, relative = stored_path(old_path, context.copy.data_path)
        values = {"data_file_id": delete_file_id, "path": stored, "path_is_relative": relative, "schedule_start": NOW}
        context.transaction.insert_row("ducklake_files_scheduled_for_deletion", values)
    context.tokens.append(Token("deleted_from_table", table_id))
    if context.copy.count(f"inlined_delete WHERE {inlined}"):
        context.delete(f"ducklake_inlined_delete_{table_id}", inlined)
        context.tokens.append(Token("inline_flush", table_id))
    # The engine does not notice that a delete file has replaced another one, but it does notice an altered table.
    context.tokens.append(Token("altered_table", table_id))
    context.folded.add(data_file_id)


def _positions_sql(context: RepairContext, path: str, begin: int) -> str:
    name = file_literal(path)
    has_snapshots = context.copy.count(f"parquet_schema({name}) WHERE name = {literal(_SNAPSHOT)}")
    return f"SELECT pos, {_SNAPSHOT if has_snapshots else begin} FROM read_parquet({name}, hive_partitioning = false)"
