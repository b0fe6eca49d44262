"""Checks of inlined rows: the tables in the metadata database that hold them, and the registry of those tables."""

from ducklake_orch.catalog.fsck.check import Check

CHECKS = [
    Check(
        "inlined-table-missing",
        "error",
        "The table cannot be read: the engine does not find the table of its inlined rows.",
        "Restore the table in the metadata database from a backup. Without a backup, its rows are lost: remove the"
        " row from ducklake_inlined_data_tables.",
        sql="""
            SELECT table_id, NULL, 'there is no ' || table_name FROM ducklake_inlined_data_tables
            ANTI JOIN inlined_table USING (table_name)""",
    ),
    Check(
        "inlined-table-misregistered",
        "error",
        "The inlined rows are read twice, in another table, or with the columns of another schema version.",
        "Correct the row of ducklake_inlined_data_tables: the name of the table is made of its table id and schema"
        " version. Delete rows that are there twice.",
        sql="""
            SELECT table_id, NULL, coalesce(table_name, 'NULL') || ' is registered ' || count(*) || ' times for table '
                   || coalesce(table_id::VARCHAR, 'NULL') || ', schema version '
                   || coalesce(schema_version::VARCHAR, 'NULL')
            FROM ducklake_inlined_data_tables GROUP BY table_id, table_name, schema_version
            HAVING count(*) > 1 OR regexp_replace(table_name, '_own$', '') IS DISTINCT FROM
                   'ducklake_inlined_data_' || table_id::VARCHAR || '_' || schema_version::VARCHAR""",
    ),
    Check(
        "inlined-table-not-registered",
        "error",
        "Readers do not see the rows in the table.",
        "Add the table to ducklake_inlined_data_tables (table id, name, schema version), or drop it if its rows are"
        " known to exist elsewhere.",
        sql="""
            SELECT i.table_id, NULL, i.table_name || ' holds ' || count(*) || ' rows'
            FROM inlined_row i ANTI JOIN ducklake_inlined_data_tables r USING (table_name)
            JOIN known_table t ON t.table_id = i.table_id WHERE i.end_snapshot IS NULL AND t.ended_at IS NULL
            GROUP BY i.table_id, i.table_name""",
    ),
    Check(
        "inlined-table-left-behind",
        "info",
        "None. The table takes up space in the metadata database.",
        "Drop the table in the metadata database.",
        sql="""
            SELECT NULL, NULL, table_name || ' belongs to table ' || table_id || ', which does not exist'
            FROM inlined_table ANTI JOIN known_table USING (table_id)
            UNION ALL
            SELECT i.table_id, NULL, i.table_name || ' is empty and not registered'
            FROM inlined_table i SEMI JOIN known_table USING (table_id)
            ANTI JOIN ducklake_inlined_data_tables r USING (table_name) ANTI JOIN inlined_row o USING (table_name)
            WHERE starts_with(i.table_name, 'ducklake_inlined_data_')""",
    ),
    Check(
        "inlined-row-lives-twice",
        "error",
        "The row is read twice.",
        "End the older row at the snapshot in which the newer one begins.",
        sql="""
            SELECT table_id, NULL, 'row ' || row_id || ' in ' || string_agg(table_name, ', ' ORDER BY table_name)
            FROM inlined_row SEMI JOIN ducklake_inlined_data_tables r USING (table_name)
            WHERE end_snapshot IS NULL GROUP BY table_id, row_id HAVING count(*) > 1""",
    ),
    Check(
        "inlined-row-damaged",
        "error",
        "Readers do not see the row, or they see it although it is deleted; flush and maintenance fail.",
        "Restore the table from a backup of the metadata database, or correct the value: an inlined row has a row id"
        " and the snapshot in which it begins, an inlined delete also the id of the file.",
        sql="""
            SELECT table_id, NULL, count(*) || ' rows of ' || table_name || ' lack a row id or a snapshot'
            FROM inlined_row WHERE row_id IS NULL OR begin_snapshot IS NULL GROUP BY table_id, table_name
            UNION ALL
            SELECT table_id, NULL, count(*) || ' rows of ducklake_inlined_delete_' || table_id
                   || ' lack a file id, a row id or a snapshot'
            FROM inlined_delete WHERE file_id IS NULL OR row_id IS NULL OR begin_snapshot IS NULL GROUP BY table_id""",
    ),
    Check(
        "inlined-table-of-former-columns",
        "warning",
        "A small INSERT by a program that inlines rows fails, or loses the values of new columns.",
        "`repair=True` adds a table for the current columns if the catalog can store them; otherwise set"
        " `data_inlining_row_limit` to 0 for the table. Alter tables with the same limit as the programs that insert"
        " into them.",
        repairable=True,
        sql="SELECT table_id, NULL, table_name || ' is the newest and has former columns' FROM outdated_inlined_table",
    ),
    Check(
        "inlined-row-of-former-columns",
        "error",
        "The row is stored in a table with former columns: its values of new columns are lost.",
        "Write the row again. Alter tables with the same `data_inlining_row_limit` as the programs that insert into"
        " them.",
        sql="""
            SELECT i.table_id, NULL,
                   count(*) || ' rows in ' || table_name || ', from snapshot ' || min(i.begin_snapshot)
            FROM inlined_row i JOIN inlined_table_columns USING (table_name)
            WHERE i.end_snapshot IS NULL AND columns_at(i.table_id, i.begin_snapshot) <> columns_at(i.table_id, since)
            GROUP BY i.table_id, table_name""",
    ),
]
