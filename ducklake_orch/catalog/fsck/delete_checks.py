"""Checks of deletes: delete files and inlined deletes."""

from ducklake_orch.catalog.fsck.check import Check

CHECKS = [
    Check(
        "two-live-delete-files",
        "error",
        "The data file is read once for each delete file: rows appear twice, and deleted rows are visible again.",
        "`repair=True` merges all deletes of the data file into one delete file. Let one program at a time delete"
        " from a table.",
        repairable=True,
        proof="unproven_deletes",
        sql="""
            SELECT d.table_id, p.full_path, 'delete files ' || d.first_file || ' and ' || d.second_file
            FROM shared_delete d JOIN data_path_of p ON p.id = d.data_file_id WHERE d.live""",
    ),
    Check(
        "delete-files-overlap",
        "error",
        "Time travel to the snapshots that both cover reads the data file twice: rows appear twice, or deleted rows"
        " are visible again.",
        "`repair=True` merges all deletes of the data file into one delete file. The engine creates this state when"
        " it flushes after a rewrite: flush first.",
        repairable=True,
        proof="unproven_deletes",
        sql="""
            SELECT d.table_id, p.full_path, 'delete files ' || d.first_file || ' and ' || d.second_file
                   || ' are both valid at snapshot ' || d.since
            FROM shared_delete d JOIN data_path_of p ON p.id = d.data_file_id WHERE NOT d.live""",
    ),
    Check(
        "delete-without-data-file",
        "info",
        "None for readers; the file takes up space.",
        "`repair=True` removes the row; the file is then an orphan, which orphan clean-up deletes.",
        repairable=True,
        sql="""
            SELECT d.table_id, p.full_path, 'delete file ' || d.delete_file_id || ' of data file ' || d.data_file_id
            FROM ducklake_delete_file d ANTI JOIN ducklake_data_file f USING (data_file_id)
            JOIN known_path p ON p.what = 'delete file' AND p.id = d.delete_file_id""",
    ),
    Check(
        "delete-of-other-table",
        "error",
        "Readers do not apply the deletes: deleted rows are visible again.",
        "Set `table_id` in ducklake_delete_file to that of the data file.",
        sql="""
            SELECT f.table_id, p.full_path, 'delete file ' || d.delete_file_id || ' belongs to table ' || d.table_id
            FROM ducklake_delete_file d JOIN ducklake_data_file f USING (data_file_id)
            JOIN data_path_of p ON p.id = d.data_file_id WHERE d.table_id <> f.table_id""",
    ),
    Check(
        "more-deletes-than-rows",
        "error",
        "`count(*)` is too low, even negative, and differs from the rows that are read.",
        "Run `fsck(deep=True)`, which reports the wrong deletes.",
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
        "The delete is lost: it was committed after the file had been replaced, and the rows are still live in the"
        " new file.",
        "Delete the rows again; the detail gives their number and the snapshot.",
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
        "The delete is lost: a merge copied the rows to another file without it, so they are visible again.",
        "Delete the rows again; the detail gives their number and the snapshot.",
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
        "`count(*)` is too low: it subtracts deleted positions that the file does not have.",
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
        "`repair=True` keeps only the earliest of these deletes.",
        repairable=True,
        sql="""
            SELECT i.table_id, p.full_path, 'position ' || i.row_id || ' of data file ' || i.file_id || ': '
                   || count(*) || ' times'
            FROM inlined_delete i JOIN data_path_of p ON p.id = i.file_id
            GROUP BY i.table_id, p.full_path, i.row_id, i.file_id HAVING count(*) > 1""",
    ),
]
