"""Macros and views over the copied metadata tables that the checks share."""

MACROS = [
    """CREATE TEMP MACRO has_field(columns, wanted) AS
        list_contains(list_transform(columns, lambda c: c.field_id), wanted)""",
    # The spelling that a listing of the storage uses.
    r"CREATE TEMP MACRO as_listed(given) AS regexp_replace(given, '^file:(//localhost)?/+', '/', 'i')",
    # One spelling for every path to the same object.
    r"""CREATE TEMP MACRO canonical(given) AS
        regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(regexp_replace(
            regexp_replace(as_listed(given), '^s3[an]://', 's3://'), '^gcs://', 'gs://'), '^azure://', 'az://'),
            '([^:/])/{2,}', '\1/', 'g'), '/(\./)+', '/', 'g'),
            '/[^/]+/\.\./', '/'), '/[^/]+/\.\./', '/'), '/[^/]+/\.\./', '/')""",
    """CREATE TEMP MACRO shown(given) AS
        CASE WHEN regexp_matches(given, '[."]') THEN '"' || replace(given, '"', '""') || '"' ELSE given END""",
    # The identity of a table's columns at one snapshot; it leaves out names, which may change.
    """CREATE TEMP MACRO columns_at(wanted, moment) AS (
        SELECT list_sort(list(DISTINCT (column_id, column_type))) FROM ducklake_column
        WHERE table_id = wanted AND begin_snapshot <= moment
              AND (end_snapshot IS NULL OR end_snapshot > moment))""",
    # Whether one bound is less than another, as values of the column's type; NULL if they cannot be compared.
    r"""CREATE TEMP MACRO is_less(kind, value, other) AS CASE
        WHEN regexp_full_match(kind, 'u?int\d+') THEN TRY_CAST(value AS HUGEINT) < TRY_CAST(other AS HUGEINT)
        WHEN kind = 'float32' THEN TRY_CAST(value AS FLOAT) < TRY_CAST(other AS FLOAT)
        WHEN kind = 'float64' THEN TRY_CAST(value AS DOUBLE) < TRY_CAST(other AS DOUBLE)
        WHEN kind IN ('varchar', 'json') THEN value < other
        WHEN kind = 'boolean' THEN TRY_CAST(value AS BOOLEAN) < TRY_CAST(other AS BOOLEAN)
        WHEN kind = 'date' THEN TRY_CAST(value AS DATE) < TRY_CAST(other AS DATE)
        WHEN kind = 'time' THEN TRY_CAST(value AS TIME) < TRY_CAST(other AS TIME)
        WHEN kind = 'timestamptz' THEN TRY_CAST(value AS TIMESTAMPTZ) < TRY_CAST(other AS TIMESTAMPTZ)
        WHEN kind = 'timestamp_ns' THEN TRY_CAST(value AS TIMESTAMP_NS) < TRY_CAST(other AS TIMESTAMP_NS)
        WHEN starts_with(kind, 'timestamp') THEN TRY_CAST(value AS TIMESTAMP) < TRY_CAST(other AS TIMESTAMP)
        WHEN kind = 'uuid' THEN TRY_CAST(value AS UUID) < TRY_CAST(other AS UUID)
        WHEN NOT starts_with(kind, 'decimal') THEN NULL
        WHEN regexp_matches(kind, ',\s*\d\)') THEN TRY_CAST(value AS DECIMAL(38, 9)) < TRY_CAST(other AS DECIMAL(38, 9))
        ELSE TRY_CAST(value AS DECIMAL(38, 18)) < TRY_CAST(other AS DECIMAL(38, 18)) END""",
    # Whether a bound is outside the range of the column's type; false if that is unknown.
    r"""CREATE TEMP MACRO is_beyond(kind, bound) AS coalesce(CASE
        WHEN regexp_full_match(kind, 'u?int(8|16|32|64)') THEN TRY_CAST(bound AS HUGEINT) IS NOT NULL AND CASE kind
            WHEN 'int8' THEN TRY_CAST(bound AS TINYINT) WHEN 'uint8' THEN TRY_CAST(bound AS UTINYINT)
            WHEN 'int16' THEN TRY_CAST(bound AS SMALLINT) WHEN 'uint16' THEN TRY_CAST(bound AS USMALLINT)
            WHEN 'int32' THEN TRY_CAST(bound AS INTEGER) WHEN 'uint32' THEN TRY_CAST(bound AS UINTEGER)
            WHEN 'int64' THEN TRY_CAST(bound AS BIGINT) ELSE TRY_CAST(bound AS UBIGINT) END IS NULL
        WHEN kind = 'float32' THEN
            isfinite(TRY_CAST(bound AS DOUBLE)) AND abs(TRY_CAST(bound AS DOUBLE)) > 3.4028236e38::DOUBLE
        WHEN starts_with(kind, 'decimal') AND regexp_full_match(bound, '-?\d+(\.\d*)?') THEN
            length(ltrim(regexp_extract(bound, '\d+'), '0'))
            > regexp_extract(kind, '(\d+),', 1)::INTEGER - regexp_extract(kind, ',\s*(\d+)', 1)::INTEGER
        END, false)""",
    # Whether two bounds are the same value; the catalog has only the beginning of a long text.
    """CREATE TEMP MACRO same_bound(kind, value, other) AS
        coalesce(value = other OR NOT (is_less(kind, value, other) OR is_less(kind, other, value))
                 OR (kind IN ('varchar', 'json') AND length(value) > 200 AND left(value, 200) = left(other, 200)),
                 false)""",
]

VIEWS = [
    # The columns that hold values and have statistics.
    """CREATE TEMP VIEW leaf AS
        SELECT table_id, column_id, column_name, column_type FROM ducklake_column c
        WHERE end_snapshot IS NULL AND column_type NOT IN ('struct', 'list', 'map')""",
    "CREATE TEMP VIEW latest AS SELECT * FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
    # The ids that the counters of a snapshot must exceed.
    """CREATE TEMP VIEW file_number AS
        SELECT 'data file' AS thing, data_file_id AS id FROM ducklake_data_file
        UNION ALL SELECT 'delete file', delete_file_id FROM ducklake_delete_file
        UNION ALL SELECT 'name mapping', mapping_id FROM ducklake_column_mapping""",
    """CREATE TEMP VIEW catalog_number AS
        SELECT 'schema' AS thing, schema_id AS id FROM ducklake_schema
        UNION ALL SELECT 'table', table_id FROM ducklake_table
        UNION ALL SELECT 'view', view_id FROM ducklake_view
        UNION ALL SELECT 'macro', macro_id FROM ducklake_macro
        UNION ALL SELECT 'partition spec', partition_id FROM ducklake_partition_info
        UNION ALL SELECT 'sort spec', sort_id FROM ducklake_sort_info""",
    # The last name of each table, the snapshot in which it ended, if any, and the folder of its files.
    """CREATE TEMP TABLE known_table AS
        SELECT t.table_id, shown(coalesce(s.schema_name, '?')) || '.' || shown(t.table_name) AS name,
               t.end_snapshot AS ended_at, t.schema_id,
               CASE WHEN NOT t.path_is_relative THEN as_listed(t.path)
                    WHEN NOT s.path_is_relative THEN as_listed(s.path) || t.path
                    ELSE {data_path} || s.path || t.path END AS folder
        FROM (FROM ducklake_table QUALIFY row_number() OVER (
                  PARTITION BY table_id ORDER BY begin_snapshot DESC, end_snapshot NULLS FIRST) = 1) t
        LEFT JOIN ducklake_schema s USING (schema_id)""",
    # The path of every file in the catalog, live or ended.
    """CREATE TEMP TABLE known_path AS
        SELECT *, canonical(full_path) AS canonical_path FROM (
            SELECT f.what, f.id, f.data_file_id, f.table_id, f.begin_snapshot, f.end_snapshot,
                   CASE WHEN f.path_is_relative THEN t.folder || f.path ELSE as_listed(f.path) END AS full_path
            FROM (SELECT 'data file' AS what, data_file_id AS id, data_file_id, table_id, begin_snapshot, end_snapshot,
                         path, path_is_relative FROM ducklake_data_file
                  UNION ALL
                  SELECT 'delete file', delete_file_id, data_file_id, table_id, begin_snapshot, end_snapshot,
                         path, path_is_relative FROM ducklake_delete_file) f
            LEFT JOIN known_table t USING (table_id))""",
    # The columns that data files and delete files have in common.
    """CREATE TEMP VIEW known_file AS
        SELECT 'data file' AS what, data_file_id AS id, file_size_bytes, footer_size, encryption_key, partial_max,
               'parquet' AS format FROM ducklake_data_file
        UNION ALL SELECT 'delete file', delete_file_id, file_size_bytes, footer_size, encryption_key, partial_max,
                         format FROM ducklake_delete_file""",
    "CREATE TEMP VIEW data_path_of AS SELECT id, full_path FROM known_path WHERE what = 'data file'",
    # What is known about the live values of a column: for each file, and for the inlined rows of each schema version.
    """CREATE TEMP VIEW column_fact AS
        SELECT s.table_id, s.column_id, p.full_path AS file, s.min_value, s.max_value, s.value_count, s.null_count,
               s.contains_nan, s.data_file_id
        FROM ducklake_file_column_stats s JOIN known_path p ON p.what = 'data file' AND p.id = s.data_file_id
        WHERE p.end_snapshot IS NULL AND p.table_id = s.table_id
        UNION ALL
        SELECT table_id, column_id, NULL, min_value, max_value, value_count, null_count, contains_nan, NULL
        FROM inlined_stats""",
    # The table's statistics of each column, and the columns whose bounds the engine uses.
    """CREATE TEMP VIEW stated AS
        SELECT l.*, t.contains_null, t.contains_nan, t.min_value, t.max_value
        FROM leaf l JOIN ducklake_table_column_stats t USING (table_id, column_id)""",
    """CREATE TEMP VIEW bounded AS FROM stated
        WHERE column_type NOT IN ('blob', 'int128', 'uint128', 'timetz', 'interval', 'geometry', 'variant')
              AND (column_type NOT IN ('float32', 'float64') OR NOT contains_nan)""",
    # The tables for inlined rows, and the snapshots since which they have their columns.
    """CREATE TEMP VIEW inlined_table_columns AS
        SELECT r.table_id, r.table_name, r.schema_version, max(v.begin_snapshot) AS since
        FROM ducklake_inlined_data_tables r JOIN ducklake_schema_versions v
             ON v.table_id = r.table_id AND v.schema_version <= r.schema_version
        GROUP BY ALL""",
    # The newest of these tables whose columns are no longer those of the lake's table.
    """CREATE TEMP VIEW outdated_inlined_table AS
        SELECT p.table_id, table_name FROM (FROM inlined_table_columns QUALIFY row_number() OVER (
            PARTITION BY table_id ORDER BY schema_version DESC) = 1) p
        SEMI JOIN (FROM known_table WHERE ended_at IS NULL) t USING (table_id), latest
        WHERE columns_at(p.table_id, latest.snapshot_id) <> columns_at(p.table_id, since)""",
    # The snapshots that only inserted into a table. A quoted name may resemble a change.
    r"""CREATE TEMP TABLE insertion AS
        SELECT snapshot_id, split_part(change, ':', 2)::BIGINT AS table_id
        FROM (SELECT snapshot_id, unnest(regexp_extract_all(
                  regexp_replace(lower(changes_made), '"[^"]*"', '', 'g'),
                  '(?:inserted|deleted|altered|inlined|inline|flushed|merge|rewrite|compacted)_[a-z_]+:\d+')) AS change
              FROM ducklake_snapshot_changes)
        GROUP BY ALL HAVING bool_and(split_part(change, ':', 1) = 'inserted_into_table')""",
    # The files whose rows are numbered from `row_id_start` on. For other files it means nothing: they hold row ids of
    # their own. Only the files tell which these are; files of a snapshot that only inserted are certainly numbered.
    """CREATE TEMP VIEW numbered_file AS
        SELECT f.* FROM ducklake_data_file f SEMI JOIN insertion i
               ON i.snapshot_id = f.begin_snapshot AND i.table_id = f.table_id
        WHERE f.row_id_start IS NOT NULL AND f.partial_max IS NULL
        UNION FROM ducklake_data_file SEMI JOIN surely_numbered USING (data_file_id)""",
    # Temporary row ids, which the engine assigns when a transaction inserts and updates, belong to no counter.
    """CREATE TEMP VIEW last_row_id AS
        SELECT table_id, max(last) AS last FROM (
            SELECT table_id, row_id_start + record_count - 1 AS last FROM numbered_file
            UNION ALL SELECT table_id, row_id FROM inlined_row)
        WHERE last < 1000000000000000000 GROUP BY table_id""",
    # The rows of each live table: all rows in files and catalog, and those left after subtracting deletes.
    """CREATE TEMP VIEW live_rows AS
        SELECT t.table_id, coalesce(f.rows, 0) + coalesce(i.rows, 0) AS rows,
               coalesce(f.rows, 0) - coalesce(d.rows, 0) - coalesce(x.rows, 0) + coalesce(i.rows, 0) AS left_over
        FROM (FROM known_table WHERE ended_at IS NULL) t
        LEFT JOIN (SELECT table_id, sum(record_count) AS rows FROM ducklake_data_file WHERE end_snapshot IS NULL
                   GROUP BY 1) f USING (table_id)
        LEFT JOIN (SELECT d.table_id, sum(d.delete_count) AS rows FROM ducklake_delete_file d
                   JOIN ducklake_data_file f USING (data_file_id)
                   WHERE d.end_snapshot IS NULL AND f.end_snapshot IS NULL GROUP BY 1) d USING (table_id)
        LEFT JOIN (SELECT i.table_id, count(*) AS rows FROM inlined_delete i
                   JOIN ducklake_data_file f ON f.data_file_id = i.file_id
                   WHERE f.end_snapshot IS NULL GROUP BY 1) x USING (table_id)
        LEFT JOIN (SELECT table_id, count(*) AS rows FROM inlined_row WHERE end_snapshot IS NULL GROUP BY 1) i
                  USING (table_id)""",
    # Pairs of delete files that are valid at the same time.
    """CREATE TEMP VIEW shared_delete AS
        SELECT d.data_file_id, d.table_id, d.delete_file_id AS first_file, o.delete_file_id AS second_file,
               greatest(d.begin_snapshot, o.begin_snapshot) AS since,
               d.end_snapshot IS NULL AND o.end_snapshot IS NULL AND f.end_snapshot IS NULL AS live
        FROM ducklake_delete_file d JOIN ducklake_delete_file o USING (data_file_id)
        JOIN ducklake_data_file f USING (data_file_id), latest
        WHERE d.delete_file_id < o.delete_file_id
              AND greatest(d.begin_snapshot, o.begin_snapshot) < least(
                  coalesce(d.end_snapshot, f.end_snapshot, latest.snapshot_id + 1),
                  coalesce(o.end_snapshot, f.end_snapshot, latest.snapshot_id + 1))""",
    # The partition values that the rows of the file contradict.
    """CREATE TEMP VIEW wrong_partition AS
        SELECT v.data_file_id, v.partition_key_index FROM real_partition r
        JOIN ducklake_file_partition_value v USING (data_file_id, partition_key_index)
        JOIN ducklake_data_file f USING (data_file_id)
        JOIN ducklake_partition_column k USING (partition_id, partition_key_index)
        JOIN leaf l ON l.table_id = f.table_id AND l.column_id = k.column_id
        WHERE CASE WHEN v.partition_value IS NULL THEN r.low IS NOT NULL
                   WHEN r.nulls > 0 THEN true
                   WHEN k.transform <> 'identity' THEN r.low <> v.partition_value OR r.high <> v.partition_value
                   ELSE is_less(l.column_type, r.low, v.partition_value)
                        OR is_less(l.column_type, v.partition_value, r.high) END""",
    # The statistics of a file that its values contradict. NULLs of elements inside lists are not compared: DuckDB
    # counts missing lists among them, and then counts no values. For TIMETZ and INTERVAL the engine counts neither.
    """CREATE TEMP VIEW wrong_stats AS
        SELECT s.table_id, s.data_file_id, s.column_id, l.column_name, s.min_value, s.max_value,
               r.min_value AS real_min, r.max_value AS real_max, r.null_count AS real_nulls,
               is_less(l.column_type, r.min_value, s.min_value) OR is_less(l.column_type, s.max_value, r.max_value)
               OR (s.value_count = 0 AND r.value_count > 0 AND r.null_count IS NOT NULL
                   AND l.column_type NOT IN ('interval', 'timetz')) AS bounds,
               s.null_count = 0 AND r.null_count > 0
               AND NOT (s.value_count = 0 AND l.column_type IN ('interval', 'timetz')) AS nulls,
               NOT s.contains_nan AND r.contains_nan AS nan
        FROM real_stats r JOIN ducklake_file_column_stats s USING (data_file_id, column_id)
        JOIN leaf l ON l.table_id = s.table_id AND l.column_id = s.column_id WHERE bounds OR nulls OR nan""",
    # Columns whose table-wide bounds exclude a value of a file.
    """CREATE TEMP VIEW excluded_value AS
        SELECT t.*, r.data_file_id, r.min_value AS real_min, r.max_value AS real_max
        FROM real_stats r JOIN known_path p ON p.what = 'data file' AND p.id = r.data_file_id
        JOIN bounded t ON t.table_id = p.table_id AND t.column_id = r.column_id
        WHERE p.end_snapshot IS NULL AND (is_less(t.column_type, r.min_value, t.min_value)
                                          OR is_less(t.column_type, t.max_value, r.max_value))""",
    # Every path that the storage may contain.
    """CREATE TEMP VIEW expected_path AS
        SELECT full_path, canonical_path FROM known_path
        UNION SELECT full_path, canonical(full_path) FROM (
            SELECT CASE WHEN path_is_relative THEN {data_path} || path ELSE as_listed(path) END AS full_path
            FROM ducklake_files_scheduled_for_deletion)""",
    # The files whose spelling in a listing differs from that in the catalog.
    """CREATE TEMP VIEW odd_path AS
        SELECT full_path, {data_path} || substr(canonical_path, length(canonical({data_path})) + 1) AS listed_path
        FROM known_path WHERE starts_with(canonical_path, canonical({data_path})) AND full_path <> listed_path
        UNION FROM alias""",
    # Every catalog row that begins with one snapshot and ends with another.
    """CREATE TEMP VIEW life AS
        SELECT 'schema ' || schema_name AS what, NULL::BIGINT AS table_id, NULL::VARCHAR AS file, begin_snapshot,
               end_snapshot, true AS ddl
        FROM ducklake_schema
        UNION ALL SELECT 'table', table_id, NULL, begin_snapshot, end_snapshot, true FROM ducklake_table
        UNION ALL SELECT 'view ' || view_name, NULL, NULL, begin_snapshot, end_snapshot, true FROM ducklake_view
        UNION ALL SELECT 'macro ' || macro_name, NULL, NULL, begin_snapshot, end_snapshot, true FROM ducklake_macro
        UNION ALL SELECT 'tag ' || key, object_id, NULL, begin_snapshot, end_snapshot, true FROM ducklake_tag
        UNION ALL SELECT 'column ' || column_name, table_id, NULL, begin_snapshot, end_snapshot, true
                  FROM ducklake_column
        UNION ALL SELECT 'tag of a column ' || key, table_id, NULL, begin_snapshot, end_snapshot, true
                  FROM ducklake_column_tag
        UNION ALL SELECT 'partition spec', table_id, NULL, begin_snapshot, end_snapshot, true
                  FROM ducklake_partition_info
        UNION ALL SELECT 'sort spec', table_id, NULL, begin_snapshot, end_snapshot, true FROM ducklake_sort_info
        UNION ALL SELECT what, table_id, full_path, begin_snapshot, end_snapshot, false FROM known_path
        UNION ALL SELECT 'inlined row ' || row_id, table_id, NULL, begin_snapshot, end_snapshot, false FROM inlined_row
        UNION ALL SELECT 'inlined delete', table_id, NULL, begin_snapshot, NULL, false FROM inlined_delete""",
]
