"""Checks of deletes: delete files and inlined deletes."""

from ducklake_orch.catalog.fsck.check import Check

CHECKS = [
    Check(
        "two-live-delete-files",
        "error",
        "The data file is read once for each of them: rows come twice, and rows that were deleted come back.",
        "`repair=True` puts all deletes of the data file into one delete file. Let one program at a time delete from a"
        " table.",
        repairable=True,
        proof="unproven_deletes",
        sql="""
            SELECT d.table_id, p.full_path, 'delete files ' || d.one || ' and ' || d.other
            FROM shared_delete d JOIN data_path_of p ON p.id = d.data_file_id WHERE d.live""",
    ),
    Check(
        "delete-files-overlap",
        "error",
        "Time travel to the snapshots they share reads the data file twice: rows come twice or come back.",
        "`repair=True` puts all deletes of the data file into one delete file. The engine makes such a state when it"
        " flushes after a rewrite: flush before.",
        repairable=True,
        proof="unproven_deletes",
        sql="""
            SELECT d.table_id, p.full_path, 'delete files ' || d.one || ' and ' || d.other
                   || ' both hold at snapshot ' || d.since
            FROM shared_delete d JOIN data_path_of p ON p.id = d.data_file_id WHERE NOT d.live""",
    ),
    Check(
        "delete-without-data-file",
        "info",
        "None: nobody reads it. It takes up room.",
        "`repair=True` removes the row; the file is then a stray one, which clean-up of orphans deletes.",
        repairable=True,
        sql="""
            SELECT d.table_id, p.full_path, 'delete file ' || d.delete_file_id || ' of data file ' || d.data_file_id
            FROM ducklake_delete_file d ANTI JOIN ducklake_data_file f USING (data_file_id)
            JOIN known_path p ON p.what = 'delete file' AND p.id = d.delete_file_id""",
    ),
    Check(
        "delete-of-other-table",
        "error",
        "The deletes are not seen: deleted rows are back.",
        "Set `table_id` in ducklake_delete_file to that of the data file.",
        sql="""
            SELECT f.table_id, p.full_path, 'delete file ' || d.delete_file_id || ' is of table ' || d.table_id
            FROM ducklake_delete_file d JOIN ducklake_data_file f USING (data_file_id)
            JOIN data_path_of p ON p.id = d.data_file_id WHERE d.table_id <> f.table_id""",
    ),
    Check(
        "more-deletes-than-rows",
        "error",
        "`count(*)` is too low, even negative, and disagrees with the rows that are read.",
        "`fsck(deep=True)` tells which of the deletes are wrong.",
        sql="""
            SELECT f.table_id, p.full_path, f.record_count || ' rows, ' || coalesce(d.deleted, 0)
                   || ' deleted in delete files, ' || coalesce(i.deleted, 0) || ' in the catalog'
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN (SELECT data_file_id, max(delete_count) AS deleted FROM ducklake_delete_file
                       WHERE end_snapshot IS NULL GROUP BY 1) d USING (data_file_id)
            LEFT JOIN (SELECT file_id AS data_file_id, count(DISTINCT row_id) AS deleted FROM inlined_delete
                       GROUP BY 1) i USING (data_file_id)
            WHERE f.end_snapshot IS NULL AND coalesce(d.deleted, 0) + coalesce(i.deleted, 0) > f.record_count""",
    ),
    Check(
        "delete-on-ended-file",
        "error",
        "The delete is lost: the file had been replaced when it was committed, and the rows live on in its successor.",
        "Delete the rows again; the details name how many there were and when.",
        sql="""
            SELECT f.table_id, p.full_path, count(*) || ' rows deleted in the catalog from snapshot '
                   || min(i.begin_snapshot) || ' on, the data file ended at ' || f.end_snapshot
            FROM inlined_delete i JOIN ducklake_data_file f ON f.data_file_id = i.file_id
            JOIN data_path_of p ON p.id = i.file_id JOIN known_table t ON t.table_id = f.table_id
            WHERE i.begin_snapshot >= f.end_snapshot GROUP BY f.table_id, p.full_path, f.end_snapshot""",
    ),
    Check(
        "delete-on-missing-file",
        "error",
        "The delete is lost: a merge put the file into another one without it, and the rows are back.",
        "Delete the rows again; the details name how many there were and when.",
        # Expiry of a file also expires the snapshots of its deletes. If such a snapshot is still retained, a merge
        # removed the file.
        sql="""
            SELECT i.table_id, NULL, count(*) || ' rows of data file ' || i.file_id
                   || ', deleted in the catalog from snapshot ' || min(i.begin_snapshot) || ' on'
            FROM inlined_delete i SEMI JOIN ducklake_snapshot s ON s.snapshot_id = i.begin_snapshot
            ANTI JOIN ducklake_data_file f ON f.data_file_id = i.file_id AND f.table_id = i.table_id
            SEMI JOIN known_table t ON t.table_id = i.table_id GROUP BY i.table_id, i.file_id""",
    ),
    Check(
        "deleted-position-out-of-range",
        "error",
        "`count(*)` is too low: rows are counted as deleted that the file does not have.",
        "Remove the rows from the table `ducklake_inlined_delete_…`.",
        sql="""
            SELECT f.table_id, p.full_path, 'position ' || max(i.row_id) || ' of ' || f.record_count || ' rows'
            FROM inlined_delete i JOIN ducklake_data_file f ON f.data_file_id = i.file_id
            JOIN data_path_of p ON p.id = i.file_id
            WHERE i.row_id >= f.record_count OR i.row_id < 0 GROUP BY f.table_id, p.full_path, f.record_count""",
    ),
    Check(
        "deleted-twice-in-catalog",
        "error",
        "`count(*)` is too low: the row is counted as deleted twice.",
        "`repair=True` keeps the earliest of them.",
        repairable=True,
        sql="""
            SELECT i.table_id, p.full_path, 'position ' || i.row_id || ' of data file ' || i.file_id || ': '
                   || count(*) || ' times'
            FROM inlined_delete i JOIN data_path_of p ON p.id = i.file_id
            GROUP BY i.table_id, p.full_path, i.row_id, i.file_id HAVING count(*) > 1""",
    ),
]
