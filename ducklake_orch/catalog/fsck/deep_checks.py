"""Checks that compare the catalog's rows about files with the files themselves."""

from ducklake_orch.catalog.fsck.check import Check
from ducklake_orch.catalog.metadata import ROW_ID_FIELD, SNAPSHOT_ID_FIELD

_FOOTER = "known_path p JOIN footer r ON r.path = p.full_path"
_FILE_FOOTER = f"""{_FOOTER} JOIN ducklake_data_file f ON f.data_file_id = p.id
                WHERE p.what = 'data file' AND r.columns IS NOT NULL"""
_BOUNDS_REMEDY = (
    "`repair=True` writes the real statistics and widens the table's to cover them. Find the program that writes"
    " wrong statistics."
)


def _stats(code: str, effect: str, detail: str, condition: str) -> Check:
    return Check(
        code,
        "error",
        effect,
        _BOUNDS_REMEDY,
        repairable=True,
        proof="unproven_path",
        sql=f"""
            SELECT s.table_id, p.full_path, 'column ' || s.column_name || ': ' || {detail}
            FROM wrong_stats s JOIN data_path_of p ON p.id = s.data_file_id WHERE s.{condition}""",
    )


def _size(code: str, severity: str, column: str, real: str, effect: str) -> Check:
    return Check(
        code,
        severity,  # type: ignore[arg-type]
        effect,
        "`repair=True` writes the value of the file: everything else that the catalog records about the file matches.",
        repairable=True,
        proof="unproven_path",
        sql=f"""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ': {column} is ' || f.{column} || ', the file has '
                   || r.{real}
            FROM {_FOOTER} JOIN known_file f USING (what, id)
            WHERE f.{column} <> r.{real}""",
    )


PRESENCE_CHECKS = [
    Check(
        "missing-file",
        "error",
        "Every read that needs the file fails. `count(*)` succeeds, because it reads only the catalog.",
        "Restore the file from a backup or from the storage's own versions. If it is lost, retire it from the"
        " catalog: end its row in ducklake_data_file.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id FROM known_path p
            JOIN unreadable u ON u.path = p.full_path AND u.absent WHERE p.end_snapshot IS NULL""",
    ),
    Check(
        "missing-old-file",
        "error",
        "Time travel to these snapshots fails, and so do change feeds and rollbacks that need the file.",
        "Restore the file from a backup, or expire the snapshots that need it.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' of snapshots ' || min(s.snapshot_id) || ' to '
                   || max(s.snapshot_id)
            FROM known_path p JOIN unreadable u ON u.path = p.full_path AND u.absent
            JOIN ducklake_snapshot s ON s.snapshot_id >= p.begin_snapshot AND s.snapshot_id < p.end_snapshot
            WHERE p.end_snapshot IS NOT NULL GROUP BY p.table_id, p.full_path, p.what, p.id""",
    ),
    Check(
        "missing-expired-file",
        "info",
        "None: no retained snapshot needs the file.",
        "Nothing. The next expiry removes it from the catalog.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' of snapshots before ' || p.end_snapshot
            FROM known_path p JOIN unreadable u ON u.path = p.full_path AND u.absent
            WHERE p.end_snapshot IS NOT NULL AND NOT EXISTS (
                FROM ducklake_snapshot s WHERE s.snapshot_id >= p.begin_snapshot AND s.snapshot_id < p.end_snapshot)""",
    ),
]

CHECKS = [
    Check(
        "unreadable-file",
        "error",
        "Every read that needs the file fails.",
        "Restore the file from a backup. If it is lost, retire it from the catalog: end its row.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ': ' || u.reason FROM known_path p
            JOIN (SELECT path, min(reason) AS reason FROM unreadable WHERE NOT absent GROUP BY path) u
                 ON u.path = p.full_path""",
    ),
    Check(
        "misplaced-file",
        "error",
        "Readers get the rows of another file, or none; deletes affect the wrong rows.",
        "Restore each file under its own name from a backup. Before that, delete no rows of the table and repair"
        " nothing by hand.",
        sql="""
            SELECT f.table_id, p.full_path, 'its size, rows and values are those of data file ' || v.rival_id || ', '
                   || o.full_path
            FROM rival v JOIN ducklake_data_file f USING (data_file_id) JOIN data_path_of p ON p.id = f.data_file_id
            JOIN data_path_of o ON o.id = v.rival_id""",
    ),
    _size(
        "wrong-file-size",
        "error",
        "file_size_bytes",
        "file_size",
        "On S3 every read that needs the file fails: the engine trusts the size and reads the footer at the wrong"
        " offset.",
    ),
    _size(
        "wrong-footer-size",
        "error",
        "footer_size",
        "footer_size",
        "Every read that needs the file fails: `Parquet footer length stored in file is not equal to footer length"
        " provided`.",
    ),
    Check(
        "wrong-record-count",
        "error",
        "`count(*)`, answered from the catalog, differs from the rows; two files may have the same row ids.",
        "`repair=True` writes the number of rows in the file.",
        repairable=True,
        proof="unproven_path",
        sql=f"""
            SELECT p.table_id, p.full_path, 'record_count is ' || f.record_count || ', the file has ' || r.record_count
            FROM {_FOOTER} JOIN ducklake_data_file f ON f.data_file_id = p.id
            WHERE p.what = 'data file' AND f.record_count <> r.record_count""",
    ),
    Check(
        "file-without-field-ids",
        "error",
        "The engine matches the columns by position: after DROP COLUMN, or if the file has another order, values"
        " appear in the wrong columns. Other readers see NULL.",
        "Rewrite the rows of the file, or give it a name mapping.",
        sql=f"""
            SELECT p.table_id, p.full_path, 'no field ids and no mapping_id' FROM {_FILE_FOOTER}
            AND f.mapping_id IS NULL AND f.end_snapshot IS NULL
            AND NOT list_bool_or(list_transform(r.columns, lambda c: c.field_id IS NOT NULL))""",
    ),
    Check(
        "mapping-names-no-column",
        "error",
        "The values of the column are read as NULL.",
        "Set `source_name` in ducklake_name_mapping to the name of the column in the file.",
        sql=f"""
            SELECT p.table_id, p.full_path, 'mapping ' || f.mapping_id || ' names ' || n.source_name
                   || ', the file has no such column'
            FROM ducklake_name_mapping n, {_FILE_FOOTER}
            AND f.mapping_id = n.mapping_id AND f.end_snapshot IS NULL
            AND n.parent_column IS NULL AND NOT coalesce(n.is_partition, false)
            AND NOT list_bool_or(list_transform(r.columns, lambda c: lower(c.name) = lower(n.source_name)))""",
    ),
    Check(
        "row-snapshot-missing",
        "error",
        "Time travel and the change feed miss such rows of a data file. Those of a delete file are visible again, or"
        " the table cannot be read.",
        "Restore the file from a backup, or rewrite it with snapshots that exist.",
        sql="""
            SELECT p.table_id, p.full_path, u.what || ' ' || u.id || ' has ' || u.rows
                   || ' rows without a snapshot, or with one after the latest'
            FROM undated u JOIN known_path p USING (what, id)""",
    ),
    Check(
        "nested-column-without-field-id",
        "error",
        "The engine identifies nested columns by field id: without one, it reads NULL inside a list and fails for a"
        " map.",
        "Rewrite the file with field ids for nested columns (DuckDB's `COPY … FIELD_IDS`), or give it a name mapping.",
        sql=f"""
            SELECT p.table_id, p.full_path, 'inside ' || (SELECT any_value(detail) FROM nesting WHERE path = r.path)
            FROM {_FILE_FOOTER}
            AND r.path IN (SELECT path FROM nesting) AND f.mapping_id IS NULL AND f.end_snapshot IS NULL""",
    ),
    Check(
        "column-narrower-than-file",
        "error",
        "Reads of values that do not fit the column's type fail or return other values.",
        "Set `column_type` in the live row of ducklake_column to the type in the file: types can only be widened.",
        sql="""
            SELECT p.table_id, p.full_path, 'column ' || n.detail FROM narrowed n
            JOIN data_path_of d ON d.full_path = n.path JOIN known_path p ON p.what = 'data file' AND p.id = d.id""",
    ),
    Check(
        "file-without-row-ids",
        "error",
        "SELECT works; row ids, UPDATE and DELETE fail.",
        "Set `row_id_start` to the table's `next_row_id`, and raise `next_row_id` by the number of rows in the file.",
        sql=f"""
            SELECT p.table_id, p.full_path, 'no row_id_start and no _ducklake_internal_row_id' FROM {_FILE_FOOTER}
            AND f.row_id_start IS NULL AND f.end_snapshot IS NULL AND NOT has_field(r.columns, {ROW_ID_FIELD})""",
    ),
    Check(
        "file-without-snapshot-ids",
        "error",
        "Time travel to snapshots before `partial_max` fails or shows too many rows.",
        "If all rows belong to the snapshot in which the file begins, set `partial_max` to NULL.",
        sql=f"""
            SELECT p.table_id, p.full_path, 'partial_max is ' || f.partial_max
                   || ', but there is no _ducklake_internal_snapshot_id'
            FROM {_FILE_FOOTER} AND f.partial_max IS NOT NULL AND NOT has_field(r.columns, {SNAPSHOT_ID_FIELD})""",
    ),
    _stats(
        "file-bounds-exclude-values",
        "Queries with a WHERE on the column miss the file's rows.",
        "'from ' || coalesce(s.min_value, '?') || ' to ' || coalesce(s.max_value, '?') || ', really from '"
        " || coalesce(s.real_min, '?') || ' to ' || coalesce(s.real_max, '?')",
        "bounds",
    ),
    _stats(
        "file-hides-nulls",
        "Readers that skip files by their statistics, as ducklake-orch does, miss rows where the column is NULL.",
        "'null_count is 0, there are ' || s.real_nulls || ' NULLs'",
        "nulls",
    ),
    _stats(
        "file-hides-nan",
        "Comparisons with NaN, which is greater than all numbers, miss the file's rows.",
        "'contains_nan is false, there are some'",
        "nan",
    ),
    Check(
        "table-bounds-exclude-values",
        "error",
        "Queries with a WHERE on the column return no rows although matching rows exist: the engine reads no file.",
        "`repair=True` widens the bounds, or removes them if the file's own bounds are unknown.",
        repairable=True,
        sql="""
            SELECT e.table_id, p.full_path, 'column ' || e.column_name || ': the table has bounds '
                   || coalesce(e.min_value, '?') || ' to ' || coalesce(e.max_value, '?') || ', the file has '
                   || e.real_min || ' to ' || e.real_max
            FROM excluded_value e JOIN data_path_of p ON p.id = e.data_file_id
            QUALIFY row_number() OVER (PARTITION BY e.table_id, e.column_id ORDER BY e.data_file_id) = 1""",
    ),
    Check(
        "wrong-partition-value",
        "error",
        "Queries that filter on a bucket key miss the file's rows; replacing or pruning partitions affects the wrong"
        " rows.",
        "`repair=True` writes the value that all rows have. If the file holds several partitions, rewrite its rows"
        " (`UPDATE` them).",
        repairable=True,
        proof="unproven_path",
        sql="""
            SELECT v.table_id, p.full_path, 'key ' || v.partition_key_index || ' (' || k.transform || ' of '
                   || l.column_name || ') is ' || coalesce(v.partition_value, 'NULL') || ', the rows have '
                   || CASE WHEN r.low IS NULL THEN 'NULL' WHEN r.low = r.high THEN r.low ELSE r.low || ' to ' || r.high
                      END || CASE WHEN r.nulls > 0 AND r.low IS NOT NULL THEN ' and NULL' ELSE '' END
            FROM wrong_partition w JOIN real_partition r USING (data_file_id, partition_key_index)
            JOIN ducklake_file_partition_value v USING (data_file_id, partition_key_index)
            JOIN ducklake_data_file f USING (data_file_id)
            JOIN ducklake_partition_column k USING (partition_id, partition_key_index)
            JOIN leaf l ON l.table_id = f.table_id AND l.column_id = k.column_id
            JOIN data_path_of p ON p.id = w.data_file_id""",
    ),
    Check(
        "wrong-delete-count",
        "error",
        "`count(*)`, answered from the catalog, differs from the rows.",
        "`repair=True` writes the number of positions in the delete file.",
        repairable=True,
        proof="unproven_path",
        sql="""
            SELECT p.table_id, p.full_path, 'delete_count is ' || d.delete_count || ', the file names ' || r.positions
            FROM real_delete r JOIN ducklake_delete_file d USING (delete_file_id)
            JOIN known_path p ON p.what = 'delete file' AND p.id = d.delete_file_id
            WHERE d.delete_count <> r.positions""",
    ),
    Check(
        "delete-file-out-of-order",
        "error",
        "The table cannot be read: the engine refuses a delete file whose positions do not ascend.",
        "Rewrite the delete file with each position once and in ascending order.",
        sql="""
            SELECT p.table_id, p.full_path, r.unsorted || ' positions are not above the previous one'
            FROM real_delete r JOIN known_path p ON p.what = 'delete file' AND p.id = r.delete_file_id
            WHERE r.unsorted > 0""",
    ),
    Check(
        "deleted-position-beyond-file",
        "error",
        "`count(*)` is too low: it subtracts deleted positions that the data file does not have.",
        "Rewrite the delete file without these positions.",
        sql="""
            SELECT p.table_id, p.full_path, 'position ' || CASE WHEN r.low < 0 THEN r.low ELSE r.high END
                   || ', data file ' || f.data_file_id || ' has ' || f.record_count || ' rows'
            FROM real_delete r JOIN ducklake_delete_file d USING (delete_file_id)
            JOIN ducklake_data_file f USING (data_file_id)
            JOIN known_path p ON p.what = 'delete file' AND p.id = r.delete_file_id
            WHERE r.high >= f.record_count OR r.low < 0""",
    ),
    Check(
        "delete-file-of-other-data-file",
        "error",
        "Deleted rows are visible again and others are missing: the deletes of one data file are applied to another.",
        "If the data file that the delete file names has no delete file, set `data_file_id` in ducklake_delete_file"
        " to its id; otherwise restore the correct delete file from a backup.",
        sql="""
            SELECT p.table_id, p.full_path, 'it deletes rows of data file ' || p.data_file_id || ' but names data file '
                   || min(f.id)
            FROM real_delete r JOIN known_path p ON p.what = 'delete file' AND p.id = r.delete_file_id
            JOIN known_path f ON f.what = 'data file' AND f.id <> p.data_file_id
                 AND parse_filename(f.full_path) = parse_filename(r.other)
            GROUP BY p.table_id, p.full_path, p.data_file_id""",
    ),
    Check(
        "delete-file-names-other-file",
        "warning",
        "The engine ignores the name. Readers that match delete files by name, as Iceberg's do, do not delete the"
        " rows.",
        "Rewrite the delete file with the path of its data file.",
        sql="""
            SELECT p.table_id, p.full_path, 'it names ' || r.other FROM real_delete r
            JOIN known_path p ON p.what = 'delete file' AND p.id = r.delete_file_id
            WHERE r.other IS NOT NULL AND parse_filename(r.other) NOT IN (
                SELECT parse_filename(full_path) FROM data_path_of WHERE full_path IS NOT NULL)""",
    ),
    Check(
        "deleted-twice",
        "error",
        "Deleted rows are visible again and `count(*)` is too low: the engine does not handle a position that is both"
        " in a delete file and in the catalog.",
        "`repair=True` merges all deletes of the data file into one delete file.",
        repairable=True,
        proof="unproven_deletes",
        sql="""
            SELECT f.table_id, f.full_path, r.also_inlined || ' positions are in delete file ' || d.delete_file_id
                   || ' and in ducklake_inlined_delete_' || d.table_id
            FROM real_delete r JOIN ducklake_delete_file d USING (delete_file_id)
            JOIN known_path f ON f.what = 'data file' AND f.id = d.data_file_id
            WHERE r.also_inlined > 0 AND d.end_snapshot IS NULL AND f.end_snapshot IS NULL""",
    ),
]
