"""Prove which files are those that the catalog means: a repair takes values only from proven files.

A restore can put the right name on the wrong file, whose numbers are then true of another file. The catalog stores the
size of each file, the size of its footer, its row count and the statistics of each column. Most of these must agree
with the file before a repair writes the others as the file has them.
"""

from ducklake_orch.catalog.fsck.local_copy import LocalCopy

_NUMBERS = "d.file_size_bytes = s.file_size AND d.footer_size = s.footer_size AND d.record_count = s.record_count"

TABLES = [
    # The data files that differ from the catalog in something, with the numbers that they have.
    """CREATE TEMP TABLE suspect AS
        SELECT f.data_file_id, r.file_size, r.footer_size, r.record_count
        FROM ducklake_data_file f JOIN data_path_of p ON p.id = f.data_file_id JOIN footer r ON r.path = p.full_path
        WHERE f.file_size_bytes <> r.file_size OR f.footer_size <> r.footer_size OR f.record_count <> r.record_count
              OR f.data_file_id IN (SELECT data_file_id FROM wrong_stats)
              OR f.data_file_id IN (SELECT data_file_id FROM wrong_partition)""",
    # Pairs of a file and a catalog row that it may belong to: its own row, and rows with exactly its numbers.
    f"""CREATE TEMP TABLE claim AS
        SELECT s.data_file_id AS content_id, d.data_file_id AS claimed_id FROM suspect s
        JOIN ducklake_data_file d USING (data_file_id)
        UNION SELECT s.data_file_id, d.data_file_id FROM suspect s JOIN ducklake_data_file d ON {_NUMBERS}
        UNION SELECT d.data_file_id, d.data_file_id FROM suspect s JOIN ducklake_data_file d ON {_NUMBERS}""",
    # How the values of a file agree with the statistics of a row: `tied` shares a bound, `outside` is contradicted.
    """CREATE TEMP TABLE agreement AS
        SELECT content_id, claimed_id,
               count(*) FILTER (low OR high) AS tied, count(*) FILTER (comparable AND NOT low AND NOT high) AS untied,
               count(*) FILTER (comparable AND NOT (low AND high)) AS inexact, count(*) FILTER (outside) AS outside,
               coalesce(bool_and(counted), false) AS counted
        FROM (SELECT c.content_id, c.claimed_id,
                     s.min_value IS NOT NULL AND s.max_value IS NOT NULL
                     AND is_less(l.column_type, s.max_value, s.min_value) IS NOT NULL AS comparable,
                     comparable AND same_bound(l.column_type, s.min_value, r.min_value) AS low,
                     comparable AND same_bound(l.column_type, s.max_value, r.max_value) AS high,
                     coalesce(is_less(l.column_type, r.min_value, s.min_value), comparable)
                     OR coalesce(is_less(l.column_type, s.max_value, r.max_value), comparable)
                     OR coalesce(s.null_count <> r.null_count, false) AS outside,
                     CASE WHEN r.null_count IS NOT NULL AND s.value_count > 0
                          THEN s.value_count + s.null_count = r.value_count + r.null_count END AS counted
              FROM claim c JOIN real_stats r ON r.data_file_id = c.content_id
              JOIN ducklake_file_column_stats s ON s.data_file_id = c.claimed_id AND s.column_id = r.column_id
              JOIN leaf l ON l.table_id = s.table_id AND l.column_id = s.column_id)
        GROUP BY ALL""",
    # The files that match their own row: all numbers and all bounds agree.
    """CREATE TEMP TABLE exact_file AS
        SELECT a.content_id AS data_file_id FROM agreement a JOIN ducklake_data_file f ON f.data_file_id = a.content_id
        JOIN data_path_of p ON p.id = a.content_id JOIN footer r ON r.path = p.full_path
        WHERE a.claimed_id = a.content_id AND a.tied > 0 AND a.inexact = 0 AND a.outside = 0
              AND f.file_size_bytes = r.file_size AND f.footer_size = r.footer_size
              AND f.record_count = r.record_count""",
    # The catalog rows that fit a file as well as its own row does.
    f"""CREATE TEMP TABLE rival AS
        SELECT s.data_file_id, min(d.data_file_id) AS rival_id
        FROM suspect s JOIN ducklake_data_file d ON d.data_file_id <> s.data_file_id AND {_NUMBERS}
        LEFT JOIN agreement a ON a.content_id = s.data_file_id AND a.claimed_id = d.data_file_id
        WHERE coalesce(a.outside, 0) = 0 AND s.data_file_id NOT IN (SELECT data_file_id FROM exact_file)
              AND d.data_file_id NOT IN (SELECT data_file_id FROM exact_file)
        GROUP BY 1""",
    # An encrypted file proves itself: only its own key opens it.
    """CREATE TEMP TABLE proven AS
        SELECT s.data_file_id FROM suspect s JOIN ducklake_data_file f USING (data_file_id)
        LEFT JOIN agreement a ON a.content_id = s.data_file_id AND a.claimed_id = s.data_file_id
        ANTI JOIN rival USING (data_file_id)
        WHERE (a.tied > 0 AND a.untied = 0
               AND (f.file_size_bytes = s.file_size)::INTEGER + (f.footer_size = s.footer_size)::INTEGER
                   + (f.record_count = s.record_count OR a.counted)::INTEGER >= 2)
              OR f.encryption_key IN (
                  SELECT encryption_key FROM ducklake_data_file WHERE encryption_key <> '' GROUP BY 1
                  HAVING count(*) = 1)""",
    # A delete file names its data file; the delete file that it replaced named the same one.
    """CREATE TEMP TABLE proven_delete AS
        SELECT delete_file_id FROM (
            SELECT d.*, r.positions, s.file_size, s.footer_size AS real_footer,
                   (d.file_size_bytes = s.file_size)::INTEGER + (d.footer_size = s.footer_size)::INTEGER
                   + (d.delete_count = r.positions)::INTEGER AS agreeing
            FROM ducklake_delete_file d JOIN real_delete r USING (delete_file_id)
            JOIN known_path p ON p.what = 'delete file' AND p.id = d.delete_file_id
            JOIN footer s ON s.path = p.full_path JOIN ducklake_data_file f ON f.data_file_id = d.data_file_id
            WHERE r.other IS NULL AND r.low >= 0 AND r.high < f.record_count) d
        ANTI JOIN ducklake_delete_file o ON o.data_file_id = d.data_file_id AND o.delete_file_id <> d.delete_file_id
             AND o.file_size_bytes = d.file_size AND o.footer_size = d.real_footer AND o.delete_count = d.positions
             AND d.agreeing < 3
        WHERE d.agreeing >= 2""",
    """CREATE TEMP TABLE unproven AS
        SELECT 'data file' AS what, data_file_id AS id FROM suspect ANTI JOIN proven USING (data_file_id)
        UNION ALL
        SELECT p.what, p.id FROM known_path p ANTI JOIN proven_delete d ON d.delete_file_id = p.id
        WHERE p.what = 'delete file' AND p.full_path IN (
            SELECT path FROM footer WHERE columns IS NOT NULL UNION ALL SELECT path FROM unreadable)""",
    "CREATE TEMP TABLE unproven_path AS SELECT full_path FROM known_path SEMI JOIN unproven USING (what, id)",
    # The data files whose deletes cannot be merged, because one of the delete files is not proven.
    """CREATE TEMP TABLE unproven_deletes AS
        SELECT f.id AS data_file_id, f.full_path FROM known_path f WHERE f.what = 'data file' AND f.id IN (
            SELECT data_file_id FROM known_path SEMI JOIN unproven USING (what, id) WHERE what = 'delete file')""",
]


def prove_files(copy: LocalCopy) -> None:
    """Determine which of the files that were read are proven to be the right ones."""
    for table in TABLES:
        copy.con.execute(table)
