"""Checks of data files: their paths, their row counts and row ids, and whether several catalog rows claim one file."""

from ducklake_orch.catalog.fsck.check import Check

CHECKS = [
    Check(
        "path-lives-twice",
        "error",
        "The file's rows are read once for each of its catalog rows; a DELETE affects only one copy.",
        "If no delete file refers to the newer row in ducklake_data_file, remove that row with its statistics and"
        " partition values; otherwise copy the rows to a separate file.",
        sql="""
            SELECT min(table_id), min(full_path), string_agg(what || ' ' || id, ', ' ORDER BY id)
                   || CASE WHEN count(DISTINCT table_id) > 1
                           THEN ' of tables ' || string_agg(DISTINCT table_id, ', ' ORDER BY table_id) ELSE '' END
            FROM known_path SEMI JOIN (SELECT canonical_path FROM known_path WHERE end_snapshot IS NULL
                                       GROUP BY canonical_path HAVING count(*) > 1) twice USING (canonical_path)
            WHERE end_snapshot IS NULL GROUP BY canonical_path""",
    ),
    Check(
        "path-lives-and-ended",
        "error",
        "Reads are correct, but once the snapshots of the ended row expire, clean-up deletes the live file.",
        "Write the rows of the file to a new one (`UPDATE` them, or compact) before any snapshots expire.",
        sql="""
            SELECT any_value(table_id), any_value(full_path), string_agg(what || ' ' || id
                   || CASE WHEN end_snapshot IS NULL THEN ' is live' ELSE ' ended at ' || end_snapshot END, ', ')
            FROM known_path GROUP BY canonical_path
            HAVING count(*) FILTER (end_snapshot IS NULL) > 0 AND count(end_snapshot) > 0""",
    ),
    Check(
        "scheduled-but-in-use",
        "error",
        "The next clean-up of old files deletes the file; after that the table cannot be read.",
        "`repair=True` removes the file from the list. Run no clean-up before the repair.",
        repairable=True,
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' is on the list of files to delete, as '
                   || d.data_file_id
            FROM (SELECT data_file_id, canonical(CASE WHEN path_is_relative THEN {data_path} || path ELSE path END)
                         AS canonical_path FROM ducklake_files_scheduled_for_deletion) d
            JOIN known_path p USING (canonical_path)""",
    ),
    Check(
        "odd-path",
        "error",
        "Orphan clean-up compares paths as text, so it treats the file as an orphan and deletes it.",
        "Write the path as a listing of the data path spells it. `repair=True` does so if both spellings provably"
        " refer to the same file. Run no orphan clean-up and no CHECKPOINT before the repair.",
        repairable=True,
        sql="""
            SELECT DISTINCT table_id, full_path, 'the listing has ' || listed_path
            FROM odd_path JOIN known_path USING (full_path)""",
    ),
    Check(
        "file-of-dropped-table",
        "warning",
        "None for readers; the file takes up space.",
        "`repair=True` ends the file at the snapshot that dropped its table, so that expiry and clean-up remove it.",
        repairable=True,
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' is live, its table ended at ' || t.ended_at
            FROM known_path p JOIN known_table t USING (table_id)
            WHERE p.end_snapshot IS NULL AND t.ended_at IS NOT NULL""",
    ),
    Check(
        "file-without-table",
        "warning",
        "None for readers; expiry does not remove the row, and orphan clean-up deletes the file itself.",
        "Remove the file's rows from the catalog, or restore its table from a backup.",
        sql="""
            SELECT table_id, full_path, what || ' ' || id || ' belongs to table ' || table_id
                   || ', which does not exist'
            FROM known_path ANTI JOIN known_table USING (table_id)""",
    ),
    Check(
        "row-ids-overlap",
        "warning",
        "Two rows have the same row id: change feeds pair the wrong rows.",
        "Rewrite the rows of one of the files (`UPDATE` them): they get new row ids.",
        sql="""
            SELECT table_id, full_path, 'row ids start at ' || row_id_start
                   || ', data file ' || earlier || ' has row ids up to ' || (taken - 1)
            FROM (SELECT table_id, data_file_id, row_id_start, record_count,
                         max(row_id_start + record_count) OVER before AS taken,
                         arg_max(data_file_id, row_id_start + record_count) OVER before AS earlier
                  FROM numbered_file WHERE end_snapshot IS NULL AND record_count > 0
                  WINDOW before AS (PARTITION BY table_id ORDER BY row_id_start, data_file_id
                                    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING))
            JOIN data_path_of p ON p.id = data_file_id WHERE row_id_start < taken""",
    ),
    Check(
        "partial-max-out-of-range",
        "error",
        "Time travel shows rows of the file too early, or fails.",
        "Set `partial_max` to the newest snapshot id in the file's column `_ducklake_internal_snapshot_id`.",
        sql="""
            SELECT table_id, full_path, what || ' ' || p.id || ' begins with snapshot ' || p.begin_snapshot
                   || ', partial_max is ' || f.partial_max
            FROM known_path p JOIN known_file f USING (what, id), latest
            WHERE f.partial_max < p.begin_snapshot OR f.partial_max > latest.snapshot_id""",
    ),
    Check(
        "file-without-key",
        "error",
        "The lake is encrypted and the file is not: every read of the table fails.",
        "Retire the file from the catalog and insert its rows through the engine, which encrypts them.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' has no encryption_key' FROM known_path p
            JOIN known_file f USING (what, id)
            WHERE f.encryption_key IS NULL AND p.end_snapshot IS NULL AND EXISTS (
                FROM ducklake_metadata WHERE key = 'encrypted' AND value = 'true')""",
    ),
    Check(
        "file-with-key",
        "error",
        "The lake is not encrypted, so readers do not use the key of this file and cannot read it.",
        "If the lake was created encrypted, set `encrypted` to `true` in ducklake_metadata; otherwise retire the file.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' has an encryption_key' FROM known_path p
            JOIN known_file f USING (what, id)
            WHERE f.encryption_key <> '' AND p.end_snapshot IS NULL AND NOT EXISTS (
                FROM ducklake_metadata WHERE key = 'encrypted' AND value = 'true')""",
    ),
    Check(
        "unknown-mapping",
        "error",
        "The table cannot be read, because the names of the file's columns are unknown.",
        "Restore the mapping from a backup, or set `mapping_id` to NULL if the file has the table's field ids.",
        sql="""
            SELECT f.table_id, p.full_path, 'mapping ' || f.mapping_id || coalesce(' belongs to table ' || m.table_id,
                   ' does not exist')
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN ducklake_column_mapping m USING (mapping_id)
            WHERE f.end_snapshot IS NULL AND f.mapping_id IS NOT NULL AND m.table_id IS DISTINCT FROM f.table_id""",
    ),
    Check(
        "mapping-lacks-column",
        "error",
        "The values of the column are read as NULL, though the file has some.",
        "Restore the rows of the mapping in ducklake_name_mapping from a backup.",
        sql="""
            SELECT f.table_id, p.full_path, 'mapping ' || f.mapping_id || ' does not name column ' || s.column_id
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            JOIN ducklake_file_column_stats s USING (data_file_id)
            JOIN ducklake_column_mapping USING (mapping_id)
            ANTI JOIN ducklake_name_mapping n ON n.mapping_id = f.mapping_id AND n.target_field_id = s.column_id
            WHERE f.end_snapshot IS NULL AND s.value_count > 0""",
    ),
    Check(
        "unknown-partition-spec",
        "error",
        "The engine cannot compact the table's files, and other readers cannot prune them or assign them to"
        " partitions.",
        "Set `partition_id` to the layout of the file, or set it to NULL and remove the file's partition values.",
        sql="""
            SELECT f.table_id, p.full_path, 'layout ' || f.partition_id || coalesce(' belongs to table ' || s.table_id,
                   ' does not exist')
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN ducklake_partition_info s USING (partition_id)
            WHERE f.end_snapshot IS NULL AND f.partition_id IS NOT NULL AND s.table_id IS DISTINCT FROM f.table_id""",
    ),
    Check(
        "partition-values-do-not-fit",
        "error",
        "Queries that filter on a bucket key miss the file's rows; compaction mixes partitions.",
        "Write one value for each key of the layout to ducklake_file_partition_value, with key indexes from 0, or"
        " rewrite the rows (`UPDATE` them).",
        sql="""
            SELECT f.table_id, p.full_path, 'layout ' || coalesce(f.partition_id::VARCHAR, 'none') || ' has keys '
                   || coalesce(k.keys, [])::VARCHAR || ', the file has values for ' || coalesce(v.keys, [])::VARCHAR
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN (SELECT partition_id, list(partition_key_index ORDER BY partition_key_index) AS keys
                       FROM ducklake_partition_column GROUP BY 1) k USING (partition_id)
            LEFT JOIN (SELECT data_file_id, list(partition_key_index ORDER BY partition_key_index) AS keys
                       FROM ducklake_file_partition_value GROUP BY 1) v USING (data_file_id)
            WHERE f.end_snapshot IS NULL AND coalesce(k.keys, []) <> coalesce(v.keys, [])""",
    ),
    Check(
        "file-without-bucket",
        "error",
        "The file is older than the table's bucket keys: if a query, UPDATE or DELETE names a value of such a column,"
        " the engine skips the file and misses its rows.",
        "Rewrite the rows (mode `overwrite`, or `UPDATE` all of them), or remove the bucket key (`SET PARTITIONED"
        " BY`).",
        sql="""
            SELECT f.table_id, p.full_path, 'no ' || k.transform || ' of ' || shown(c.column_name)
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            JOIN ducklake_partition_info i ON i.table_id = f.table_id AND i.end_snapshot IS NULL
            JOIN ducklake_partition_column k ON k.partition_id = i.partition_id AND k.transform LIKE 'bucket(%'
            JOIN ducklake_column c ON c.table_id = f.table_id AND c.column_id = k.column_id AND c.end_snapshot IS NULL
            LEFT JOIN ducklake_partition_info o ON o.partition_id = f.partition_id AND o.table_id = f.table_id
            LEFT JOIN ducklake_partition_column same ON same.partition_id = f.partition_id
                AND same.column_id = k.column_id AND same.transform = k.transform
                AND same.partition_key_index = k.partition_key_index
            WHERE f.end_snapshot IS NULL AND (f.partition_id IS NULL OR o.partition_id IS NOT NULL)
                AND same.partition_id IS NULL""",
    ),
    Check(
        "scattered-partition",
        "warning",
        "`merge_adjacent_files` and CHECKPOINT fail with an INTERNAL error (`Files have different hive partition"
        " path`), after which the connection is unusable.",
        "Rewrite the rows of these files (`UPDATE` them), or compact with ducklake-orch, which merges all of them.",
        sql="""
            SELECT table_id, full_path, 'data file ' || first_id || ' of the same partition is in '
                   || coalesce(nullif(folder, ''), 'the folder of the table')
            FROM (SELECT f.table_id, p.full_path, first_value(f.data_file_id) OVER partition AS first_id,
                         first_value(regexp_replace(replace(p.full_path, t.folder, ''), '/?[^/]*$', ''))
                         OVER partition AS folder
                  FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
                  JOIN known_table t ON t.table_id = f.table_id
                  JOIN (SELECT data_file_id, list(partition_value ORDER BY partition_key_index) AS values
                        FROM ducklake_file_partition_value GROUP BY 1) v ON v.data_file_id = f.data_file_id
                  ASOF LEFT JOIN ducklake_schema_versions s
                       ON s.table_id = f.table_id AND s.begin_snapshot <= f.begin_snapshot
                  WHERE f.end_snapshot IS NULL AND f.partition_id IS NOT NULL
                  WINDOW partition AS (PARTITION BY f.table_id, f.partition_id, v.values, s.schema_version
                                       ORDER BY f.begin_snapshot, f.row_id_start, f.data_file_id))
            WHERE NOT contains(full_path, folder)""",
    ),
]
