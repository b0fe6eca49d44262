"""Checks of statistics: what the engine assumes about values without reading them."""

from ducklake_orch.catalog.fsck.check import Check

_MISSING = "Queries with a WHERE on the column return no rows although matching rows exist: the engine reads no file."
_WIDEN = (
    "`repair=True` widens the table's statistics to those of its files. Find the program that adds files without"
    " widening them."
)


def _contradicted(detail: str, condition: str, source: str = "bounded") -> str:
    """Return the query for columns whose table-wide statistics contradict those of a file; one file per column."""
    return f"""
        SELECT t.table_id, s.file, 'column ' || t.column_name || ': ' || {detail}
        FROM {source} t JOIN column_fact s USING (table_id, column_id) WHERE {condition}
        QUALIFY row_number() OVER (PARTITION BY t.table_id, t.column_id ORDER BY s.data_file_id) = 1"""


CHECKS = [
    Check(
        "table-statistics-missing",
        "error",
        "The next insert assigns row ids from 0 again, so several rows have the same row id.",
        "`repair=True` computes them from the files.",
        repairable=True,
        sql="""
            SELECT table_id, NULL, rows || ' rows' FROM live_rows ANTI JOIN ducklake_table_stats USING (table_id)
            WHERE rows > 0""",
    ),
    Check(
        "table-statistics-twice",
        "error",
        "Which of the two rows the engine uses is undefined.",
        "Remove one of the rows: keep the larger counts and the wider bounds.",
        sql="""
            SELECT table_id, NULL, 'ducklake_table_stats: ' || count(*) || ' rows' FROM ducklake_table_stats
            GROUP BY table_id HAVING count(*) > 1
            UNION ALL
            SELECT table_id, NULL, 'ducklake_table_column_stats: ' || count(*) || ' rows for column ' || column_id
            FROM ducklake_table_column_stats GROUP BY table_id, column_id HAVING count(*) > 1""",
    ),
    Check(
        "negative-count",
        "error",
        "The engine treats the number as a very large one or fails; row ids below 0 are not unique.",
        "Write the correct number: `next_row_id` above every row id of the table, the others as in the files."
        " `fsck(deep=True)` reports the numbers of the files.",
        sql=" UNION ALL ".join(
            f"""
            SELECT table_id, {file}, '{name}: {column} is ' || {column} FROM {name} {join} WHERE {column} < 0"""
            for name, file, join, columns in (
                ("ducklake_table_stats", "NULL", "", ("record_count", "next_row_id", "file_size_bytes")),
                (
                    "ducklake_data_file",
                    "full_path",
                    "JOIN data_path_of p ON p.id = data_file_id",
                    ("record_count", "file_size_bytes", "footer_size", "row_id_start"),
                ),
                (
                    "ducklake_delete_file",
                    "NULL",
                    "",
                    ("delete_count", "file_size_bytes", "footer_size"),
                ),
                (
                    "ducklake_file_column_stats",
                    "full_path",
                    "JOIN data_path_of p ON p.id = data_file_id",
                    ("value_count", "null_count"),
                ),
            )
            for column in columns
        ),
    ),
    Check(
        "record-count-behind",
        "error",
        "The engine's estimates are too low. If the number happens to equal the number of remaining rows, MIN and MAX"
        " are answered from bounds that deleted rows have widened.",
        "`repair=True` raises it.",
        repairable=True,
        sql="""
            SELECT table_id, NULL, 'record_count is ' || s.record_count || ', there are ' || left_over || ' rows'
            FROM live_rows JOIN ducklake_table_stats s USING (table_id) WHERE s.record_count < left_over""",
    ),
    Check(
        "next-row-id-behind",
        "error",
        "The next rows get row ids that are already in use: UPDATE, DELETE of inlined rows and change feeds affect"
        " the wrong rows.",
        "`repair=True` raises it.",
        repairable=True,
        sql="""
            SELECT table_id, NULL, 'next_row_id is ' || s.next_row_id || ', but row ids go up to ' || last
            FROM last_row_id JOIN ducklake_table_stats s USING (table_id) WHERE s.next_row_id <= last""",
    ),
    Check(
        "table-bounds-too-narrow",
        "error",
        _MISSING,
        _WIDEN,
        repairable=True,
        sql=_contradicted(
            "'the table has bounds ' || coalesce(t.min_value, '?') || ' to ' || coalesce(t.max_value, '?')"
            " || CASE WHEN s.file IS NULL THEN ', inlined rows have ' ELSE ', the file has ' END"
            " || coalesce(s.min_value, '?') || ' to ' || coalesce(s.max_value, '?')",
            "is_less(t.column_type, s.min_value, t.min_value) OR is_less(t.column_type, t.max_value, s.max_value)",
        ),
    ),
    Check(
        "table-bounds-unproven",
        "warning",
        "The bounds may be too narrow; queries with a WHERE on the column then return no rows.",
        "`repair=True` removes the bounds. `fsck(deep=True)` reports whether they exclude a value.",
        repairable=True,
        sql=_contradicted(
            "'the table has bounds ' || coalesce(t.min_value, '?') || ' to ' || coalesce(t.max_value, '?')"
            " || ', the file has none'",
            "s.value_count > 0 AND (s.min_value IS NULL AND t.min_value IS NOT NULL"
            " OR s.max_value IS NULL AND t.max_value IS NOT NULL)",
        ),
    ),
    Check(
        "table-bounds-forgotten",
        "warning",
        "None yet. The engine treats the column as one without values: its next INSERT sets the bounds to those of"
        " the new rows, and queries with a WHERE on the column then return no other rows.",
        "`repair=True` writes bounds that cover all values, or removes the row if they are unknown, which is safe."
        " The engine creates this state when it rewrites files or changes a type.",
        repairable=True,
        sql=_contradicted(
            "'the table has no bounds, '"
            " || CASE WHEN s.file IS NULL THEN 'inlined rows have ' ELSE 'the file has ' END"
            " || s.value_count || ' values'",
            "t.min_value IS NULL AND t.max_value IS NULL AND s.value_count > 0",
        ),
    ),
    Check(
        "table-hides-nulls",
        "error",
        "`IS NULL` on the column returns no rows although matching rows exist: the engine reads no file.",
        _WIDEN,
        repairable=True,
        sql=_contradicted(
            "'contains_null is false, there are ' || s.null_count || ' NULLs'",
            "NOT t.contains_null AND s.null_count > 0",
            "stated",
        ),
    ),
    Check(
        "table-hides-nan",
        "error",
        "Comparisons with NaN, which is greater than all numbers, miss rows: the engine reads no file.",
        _WIDEN,
        repairable=True,
        sql=_contradicted("'contains_nan is false, there is one'", "NOT t.contains_nan AND s.contains_nan", "stated"),
    ),
    Check(
        "bounds-beyond-type",
        "error",
        "The column's type was narrowed directly in the catalog: reads of values beyond its range fail or return"
        " other values.",
        "Restore the former `column_type` in the live row of ducklake_column: types can only be widened."
        " `fsck(deep=True)` reports the type in each file.",
        sql="""
            SELECT l.table_id, s.file, 'column ' || l.column_name || ' is ' || l.column_type || ', values go from '
                   || coalesce(s.min_value, '?') || ' to ' || coalesce(s.max_value, '?')
            FROM leaf l JOIN column_fact s USING (table_id, column_id)
            WHERE is_beyond(l.column_type, s.min_value) OR is_beyond(l.column_type, s.max_value)""",
    ),
    Check(
        "file-bounds-inverted",
        "error",
        _MISSING,
        "Remove the row from ducklake_file_column_stats: a file without statistics is always read.",
        sql="""
            SELECT l.table_id, p.full_path, 'column ' || l.column_name || ': from ' || s.min_value || ' to '
                   || s.max_value
            FROM leaf l JOIN ducklake_file_column_stats s USING (table_id, column_id)
            JOIN data_path_of p ON p.id = s.data_file_id WHERE is_less(l.column_type, s.max_value, s.min_value)""",
    ),
    Check(
        "file-statistics-twice",
        "error",
        "ORDER BY … LIMIT on the column reads the file twice: rows appear twice.",
        "Remove one of the rows from ducklake_file_column_stats.",
        sql="""
            SELECT s.table_id, p.full_path, 'column ' || s.column_id || ': ' || count(*) || ' rows'
            FROM ducklake_file_column_stats s JOIN data_path_of p ON p.id = s.data_file_id
            GROUP BY s.table_id, p.full_path, s.column_id HAVING count(*) > 1""",
    ),
    Check(
        "statistics-without-file",
        "info",
        "None. The statistics take up space.",
        "`repair=True` removes them.",
        repairable=True,
        sql=" UNION ALL ".join(
            f"""
            SELECT s.table_id, NULL, '{name}: ' || count(*) || ' rows of data file ' || s.data_file_id
            FROM {name} s ANTI JOIN ducklake_data_file f
                 ON f.data_file_id = s.data_file_id AND f.table_id = s.table_id
            GROUP BY s.table_id, s.data_file_id"""
            for name in ("ducklake_file_column_stats", "ducklake_file_variant_stats", "ducklake_file_partition_value")
        ),
    ),
    Check(
        "file-without-statistics",
        "info",
        "Every query reads the file, because no statistics exclude it.",
        "Nothing. Compaction writes a file with statistics.",
        sql="""
            SELECT f.table_id, p.full_path, 'data file ' || f.data_file_id
            FROM ducklake_data_file f ANTI JOIN ducklake_file_column_stats s USING (data_file_id)
            JOIN data_path_of p ON p.id = f.data_file_id WHERE f.end_snapshot IS NULL AND f.record_count > 0""",
    ),
]
