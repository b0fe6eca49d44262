"""Checks of data files: their paths, their row counts and row ids, and whether several catalog rows claim one file."""

from ducklake_orch.catalog.fsck.check import Check

CHECKS = [
    Check(
        "path-lives-twice",
        "error",
        "Its rows are read once for each of them; a DELETE reaches only one copy.",
        "Remove the younger row from ducklake_data_file, with its statistics and partition values, when no delete"
        " files hang on it; else copy the rows to a file of their own.",
        sql="""
            SELECT min(table_id), min(full_path), string_agg(what || ' ' || id, ', ' ORDER BY id)
                   || CASE WHEN count(DISTINCT table_id) > 1
                           THEN ' of tables ' || string_agg(DISTINCT table_id, ', ' ORDER BY table_id) ELSE '' END
            FROM known_path SEMI JOIN (SELECT one_path FROM known_path WHERE end_snapshot IS NULL
                                       GROUP BY one_path HAVING count(*) > 1) twice USING (one_path)
            WHERE end_snapshot IS NULL GROUP BY one_path""",
    ),
    Check(
        "path-lives-and-ended",
        "error",
        "Reads are right, but once the snapshots of the ended row expire, clean-up deletes the live file.",
        "Expire no snapshots before the rows of the file have been written to a new one (`UPDATE` them, or compact).",
        sql="""
            SELECT any_value(table_id), any_value(full_path), string_agg(what || ' ' || id
                   || CASE WHEN end_snapshot IS NULL THEN ' lives' ELSE ' ended at ' || end_snapshot END, ', ')
            FROM known_path GROUP BY one_path
            HAVING count(*) FILTER (end_snapshot IS NULL) > 0 AND count(end_snapshot) > 0""",
    ),
    Check(
        "scheduled-but-in-use",
        "error",
        "Clean-up of old files deletes the file, and the table can no longer be read.",
        "`repair=True` takes it off the list. Run no clean-up before.",
        repairable=True,
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' is on the list of files to delete, as '
                   || d.data_file_id
            FROM (SELECT data_file_id, canonical(CASE WHEN path_is_relative THEN {data_path} || path ELSE path END)
                         AS one_path FROM ducklake_files_scheduled_for_deletion) d
            JOIN known_path p USING (one_path)""",
    ),
    Check(
        "odd-path",
        "error",
        "Clean-up of orphans compares texts: it takes the file for a stray one and deletes it.",
        "Write the path as a listing of the data path spells it. `repair=True` does so where both names provably mean"
        " the same file. Run no clean-up of orphans and no CHECKPOINT before.",
        repairable=True,
        sql="""
            SELECT DISTINCT table_id, full_path, 'the listing has ' || listed_path
            FROM odd_path JOIN known_path USING (full_path)""",
    ),
    Check(
        "file-of-dropped-table",
        "warning",
        "Nobody reads it; it takes up room.",
        "`repair=True` ends it with its table, so that expiry and clean-up remove it.",
        repairable=True,
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' lives, its table ended at ' || t.ended_at
            FROM known_path p JOIN known_table t USING (table_id)
            WHERE p.end_snapshot IS NULL AND t.ended_at IS NOT NULL""",
    ),
    Check(
        "file-without-table",
        "warning",
        "Nobody reads it, and no expiry removes it; clean-up of orphans deletes the file itself.",
        "Remove its rows from the catalog, or restore its table from a backup.",
        sql="""
            SELECT table_id, full_path, what || ' ' || id || ' is of table ' || table_id || ', which is not there'
            FROM known_path ANTI JOIN known_table USING (table_id)""",
    ),
    Check(
        "row-ids-overlap",
        "warning",
        "Two rows have the same row id: change feeds pair the wrong rows.",
        "Write the rows of one of the files anew (`UPDATE` them): they get row ids of their own.",
        sql="""
            SELECT table_id, full_path, 'rows from ' || row_id_start || ' on, data file ' || earlier || ' goes up to '
                   || (taken - 1)
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
                   || ', its newest row is said to be of snapshot ' || f.partial_max
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
        "The lake is not encrypted, so readers do not use the key of this file, and cannot read it.",
        "Set `encrypted` to `true` in ducklake_metadata if the lake was made encrypted; else retire the file.",
        sql="""
            SELECT p.table_id, p.full_path, p.what || ' ' || p.id || ' has an encryption_key' FROM known_path p
            JOIN known_file f USING (what, id)
            WHERE f.encryption_key <> '' AND p.end_snapshot IS NULL AND NOT EXISTS (
                FROM ducklake_metadata WHERE key = 'encrypted' AND value = 'true')""",
    ),
    Check(
        "unknown-mapping",
        "error",
        "The table cannot be read: nobody knows what the file's columns are called.",
        "Restore the mapping from a backup, or set `mapping_id` to NULL if the file carries the table's field ids.",
        sql="""
            SELECT f.table_id, p.full_path, 'mapping ' || f.mapping_id || coalesce(' is of table ' || m.table_id,
                   ' is not there')
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN ducklake_column_mapping m USING (mapping_id)
            WHERE f.end_snapshot IS NULL AND f.mapping_id IS NOT NULL AND m.table_id IS DISTINCT FROM f.table_id""",
    ),
    Check(
        "unknown-partition-spec",
        "error",
        "The engine cannot compact the table's files, and other readers cannot prune or place them.",
        "Set `partition_id` to the layout that the file has, or to NULL and remove its partition values.",
        sql="""
            SELECT f.table_id, p.full_path, 'layout ' || f.partition_id || coalesce(' is of table ' || s.table_id,
                   ' is not there')
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN ducklake_partition_info s USING (partition_id)
            WHERE f.end_snapshot IS NULL AND f.partition_id IS NOT NULL AND s.table_id IS DISTINCT FROM f.table_id""",
    ),
    Check(
        "partition-values-do-not-fit",
        "error",
        "Queries that name a bucket miss the file's rows; compaction mixes partitions.",
        "Write one value for each key of the layout into ducklake_file_partition_value, keys counted from 0; or write"
        " the rows anew (`UPDATE` them).",
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
        "Bucket keys were set when the file was there already: where a query, UPDATE or DELETE names a value of that"
        " column, the engine leaves the file out, and its rows are not found.",
        "Write the rows anew (mode `overwrite`, or `UPDATE` all of them), or take the bucket key away"
        " (`SET PARTITIONED BY`).",
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
        " path`), which makes the connection useless.",
        "Write the rows of the odd files anew (`UPDATE` them), or compact with this package, which takes them all.",
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
