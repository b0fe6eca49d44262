"""Checks of schemas, tables, columns, layouts and options: the objects that the names in a query refer to."""

from ducklake_orch.catalog.fsck.check import Check
from ducklake_orch.engine.quoting import folded_sql

CHECKS = [
    Check(
        "table-lives-twice",
        "error",
        "The lake cannot be opened, or readers use either of the two rows.",
        "Decide which row of ducklake_table is right and end the other one at the snapshot that replaced it.",
        sql="""
            SELECT table_id, NULL, count(*) || ' live rows in ducklake_table: ' || string_agg(table_name, ', ')
            FROM ducklake_table WHERE end_snapshot IS NULL GROUP BY table_id HAVING count(*) > 1""",
    ),
    Check(
        "column-lives-twice",
        "error",
        "The table has the column twice, or cannot be read.",
        "Decide which row of ducklake_column is right and end the other one at the snapshot that replaced it.",
        sql="""
            SELECT table_id, NULL, 'column ' || column_id || ' has ' || count(*) || ' live rows'
            FROM ducklake_column WHERE end_snapshot IS NULL GROUP BY table_id, column_id HAVING count(*) > 1""",
    ),
    Check(
        "layout-lives-twice",
        "error",
        "Writers use either of the two layouts.",
        "Set the layout again: `ALTER TABLE … SET PARTITIONED BY` (or `SORTED BY`) ends all earlier ones.",
        sql="""
            SELECT table_id, NULL, count(*) || ' live ' || what || ' specs: ' || string_agg(id, ', ' ORDER BY id)
            FROM (SELECT table_id, 'partition' AS what, partition_id AS id FROM ducklake_partition_info
                  WHERE end_snapshot IS NULL
                  UNION ALL SELECT table_id, 'sort', sort_id FROM ducklake_sort_info WHERE end_snapshot IS NULL)
            GROUP BY table_id, what HAVING count(*) > 1""",
    ),
    Check(
        "duplicate-schema-name",
        "error",
        "The name refers to one of them; the tables of the other cannot be accessed.",
        "Rename one: change `schema_name` of its row in ducklake_schema.",
        sql=f"""
            SELECT NULL, NULL, 'schemas ' || string_agg(schema_id, ', ' ORDER BY schema_id) || ' are called '
                   || any_value(schema_name)
            FROM ducklake_schema WHERE end_snapshot IS NULL GROUP BY {folded_sql("schema_name")} HAVING count(*) > 1""",
    ),
    Check(
        "duplicate-table-name",
        "error",
        "The name refers to one of them; the rows of the other cannot be accessed.",
        "Rename one: change its name in the live row of ducklake_table or ducklake_view.",
        sql=f"""
            SELECT max(table_id), NULL, string_agg(what || ' ' || id, ', ' ORDER BY id) || ' are called '
                   || any_value(name)
            FROM (SELECT DISTINCT schema_id, table_id, table_id AS id, 'table' AS what, table_name AS name
                  FROM ducklake_table WHERE end_snapshot IS NULL
                  UNION ALL SELECT DISTINCT schema_id, NULL, view_id, 'view', view_name
                  FROM ducklake_view WHERE end_snapshot IS NULL)
            GROUP BY schema_id, {folded_sql("name")} HAVING count(DISTINCT id) > 1""",
    ),
    Check(
        "duplicate-column-name",
        "error",
        "The table cannot be read, or the name refers to only one of them.",
        "Change `column_name` of one of the live rows in ducklake_column.",
        sql=f"""
            SELECT table_id, NULL, 'columns ' || string_agg(column_id, ', ' ORDER BY column_id) || ' are called '
                   || any_value(column_name)
            FROM (SELECT DISTINCT table_id, parent_column, column_id, column_name FROM ducklake_column
                  WHERE end_snapshot IS NULL)
            GROUP BY table_id, parent_column, {folded_sql("column_name")} HAVING count(*) > 1""",
    ),
    Check(
        "column-order-twice",
        "warning",
        "The order of the columns is undefined: reads may return them in another order, and INSERT without column names"
        " may mix them up.",
        "Change `column_order` of one of the live rows in ducklake_column.",
        sql="""
            SELECT table_id, NULL, 'columns ' || string_agg(column_id, ', ' ORDER BY column_id)
                   || ' have the order ' || column_order
            FROM (SELECT DISTINCT table_id, parent_column, column_id, column_order FROM ducklake_column
                  WHERE end_snapshot IS NULL)
            GROUP BY table_id, parent_column, column_order HAVING count(*) > 1""",
    ),
    Check(
        "object-without-schema",
        "error",
        "The lake cannot be opened, because the object's schema does not exist.",
        "End the row at the snapshot that dropped the schema, or restore the schema.",
        sql="""
            SELECT table_id, NULL, what || ' belongs to schema ' || schema_id || ', which is not live'
            FROM (SELECT table_id, 'table ' || table_name AS what, schema_id FROM ducklake_table
                  WHERE end_snapshot IS NULL
                  UNION ALL SELECT NULL, 'view ' || view_name, schema_id FROM ducklake_view WHERE end_snapshot IS NULL
                  UNION ALL SELECT NULL, 'macro ' || macro_name, schema_id FROM ducklake_macro
                  WHERE end_snapshot IS NULL)
            ANTI JOIN (FROM ducklake_schema WHERE end_snapshot IS NULL) USING (schema_id)""",
    ),
    Check(
        "macro-without-implementation",
        "error",
        "The lake cannot be opened: the engine ends with an INTERNAL error.",
        "Restore the rows of ducklake_macro_impl from a backup, or end the row of ducklake_macro.",
        sql="""
            SELECT NULL, NULL, 'macro ' || macro_name FROM ducklake_macro ANTI JOIN ducklake_macro_impl USING (macro_id)
            WHERE end_snapshot IS NULL""",
    ),
    Check(
        "table-without-columns",
        "error",
        "The table cannot be read.",
        "Restore the rows of ducklake_column from a backup, or drop the table.",
        sql="""
            SELECT table_id, NULL, 'no live rows in ducklake_column' FROM known_table
            ANTI JOIN (FROM ducklake_column WHERE end_snapshot IS NULL) USING (table_id) WHERE ended_at IS NULL""",
    ),
    Check(
        "column-missing",
        "error",
        "The table lacks the column, though its files have values of it.",
        "Restore the row of ducklake_column from a backup.",
        sql="""
            SELECT f.table_id, NULL, count(*) || ' files have statistics of column ' || s.column_id
                   || ', which has no row in ducklake_column'
            FROM ducklake_data_file f JOIN ducklake_file_column_stats s USING (data_file_id)
            SEMI JOIN known_table k ON k.table_id = f.table_id
            ANTI JOIN ducklake_column c ON c.table_id = f.table_id AND c.column_id = s.column_id
            WHERE f.end_snapshot IS NULL GROUP BY f.table_id, s.column_id""",
    ),
    Check(
        "column-without-parent",
        "error",
        "The table cannot be read, or lacks the column.",
        "End the row at the snapshot that ended its parent column, or restore the parent column.",
        sql="""
            SELECT c.table_id, NULL, c.column_name || ' belongs to column ' || c.parent_column || ', which is not live'
            FROM ducklake_column c
            ANTI JOIN (FROM ducklake_column WHERE end_snapshot IS NULL) p
                      ON p.table_id = c.table_id AND p.column_id = c.parent_column
            WHERE c.end_snapshot IS NULL AND c.parent_column IS NOT NULL""",
    ),
    Check(
        "partition-key-without-column",
        "error",
        "Writes to the table fail.",
        "Set the partitioning again: `ALTER TABLE … SET PARTITIONED BY (…)` or `RESET PARTITIONED BY`.",
        sql="""
            SELECT p.table_id, NULL, 'key ' || k.partition_key_index || ' of the layout is ' || k.transform
                   || ' of column ' || k.column_id || ', which is not live'
            FROM ducklake_partition_info p JOIN ducklake_partition_column k USING (partition_id)
            ANTI JOIN (FROM ducklake_column WHERE end_snapshot IS NULL) c
                      ON c.table_id = p.table_id AND c.column_id = k.column_id
            WHERE p.end_snapshot IS NULL""",
    ),
    Check(
        "no-schema-version",
        "error",
        "Compaction of the table fails: the engine cannot determine with which columns the file was written.",
        "Add the version to ducklake_schema_versions: the snapshot that created the table, and its `schema_version`.",
        sql="""
            SELECT f.table_id, p.full_path, 'it began with snapshot ' || f.begin_snapshot
            FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id
            LEFT JOIN (SELECT table_id, min(begin_snapshot) AS since FROM ducklake_schema_versions GROUP BY 1) v
                      USING (table_id)
            WHERE f.end_snapshot IS NULL AND (v.since IS NULL OR v.since > f.begin_snapshot)""",
    ),
    Check(
        "duplicate-option",
        "warning",
        "Which of the two values takes effect is undefined.",
        "Remove one of the rows from ducklake_metadata, or set the option again.",
        sql="""
            SELECT CASE scope WHEN 'table' THEN scope_id END, NULL, 'option ' || key || ': '
                   || string_agg(value, ', ' ORDER BY value)
            FROM ducklake_metadata GROUP BY key, scope, scope_id HAVING count(*) > 1""",
    ),
    Check(
        "odd-data-path",
        "warning",
        "Each process may resolve a relative path to a different folder. With other unusual spellings, including"
        " `file://`, the engine's own orphan clean-up treats live files as orphans.",
        "Set `data_path` in ducklake_metadata to the absolute path of the same folder, in its plain spelling.",
        sql="""
            SELECT NULL, NULL, 'DATA_PATH is ' || given
            FROM (SELECT {data_path} AS given UNION
                  SELECT value FROM ducklake_metadata
                  WHERE key = 'data_path' AND scope IS NULL AND value <> as_listed(value))
            WHERE given <> canonical(given)
                  OR NOT (starts_with(given, '/') OR regexp_matches(given, '^[a-z0-9]+:'))""",
    ),
]
