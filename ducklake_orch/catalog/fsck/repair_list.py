"""The list of repairs, each with its codes and query, in the order in which they run."""

from ducklake_orch.catalog.fsck import repairs
from ducklake_orch.catalog.fsck.repairs import Repair
from ducklake_orch.catalog.fsck.snapshot_checks import CHANGES
from ducklake_orch.catalog.fsck.snapshot_checks import CHECKS as SNAPSHOT_CHECKS

_SNAPSHOT = {check.code: check.sql for check in SNAPSHOT_CHECKS}
_SIZES = """
    SELECT what, id, r.{real} FROM known_path p JOIN footer r ON r.path = p.full_path
    JOIN known_file f USING (what, id) ANTI JOIN unproven USING (what, id) WHERE f.{column} <> r.{real}"""
# Deletes that ducklake-orch cannot write again: encrypted ones and deletion vectors.
_FOLDABLE = (
    "ANTI JOIN (FROM ducklake_delete_file WHERE encryption_key <> '' OR format <> 'parquet') x USING (data_file_id)"
)
_PROVEN = "ANTI JOIN unproven_deletes p USING (data_file_id)"
_LIVE = "SEMI JOIN (FROM ducklake_data_file WHERE end_snapshot IS NULL) f USING (data_file_id)"

REPAIRS = [
    *(
        Repair((code,), _SNAPSHOT[code], repairs.commit_only)
        for code in (
            "next-file-id-behind",
            "next-catalog-id-behind",
            "schema-version-behind",
            "next-file-id-not-bumped",
            "schema-version-not-bumped",
        )
    ),
    Repair(
        ("changes-without-snapshot",),
        "SELECT snapshot_id FROM ducklake_snapshot_changes ANTI JOIN ducklake_snapshot USING (snapshot_id)",
        repairs.drop_changes,
    ),
    Repair(
        ("unknown-change-token",),
        f"""SELECT snapshot_id, changes_made FROM ducklake_snapshot_changes
            WHERE NOT regexp_full_match(changes_made, $${CHANGES}$$, 'i')""",
        repairs.clean_changes,
    ),
    Repair(
        ("scheduled-but-in-use",),
        """SELECT DISTINCT d.data_file_id, d.path FROM (
               SELECT *, canonical(CASE WHEN path_is_relative THEN {data_path} || path ELSE path END) AS canonical_path
               FROM ducklake_files_scheduled_for_deletion) d SEMI JOIN known_path USING (canonical_path)""",
        repairs.unschedule,
    ),
    Repair(
        ("odd-path",),
        """SELECT p.what, p.id, p.full_path, o.listed_path, t.folder
           FROM known_path p JOIN known_table t USING (table_id) JOIN odd_path o USING (full_path)""",
        repairs.respell,
        from_files=True,
    ),
    Repair(
        ("file-of-dropped-table",),
        """SELECT what, id, greatest(begin_snapshot, t.ended_at) FROM known_path p JOIN known_table t USING (table_id)
           WHERE p.end_snapshot IS NULL AND t.ended_at IS NOT NULL""",
        repairs.end_with_table,
    ),
    Repair(
        ("wrong-file-size",),
        _SIZES.format(real="file_size", column="file_size_bytes"),
        repairs.set_file("file_size_bytes"),
        from_files=True,
    ),
    Repair(
        ("wrong-footer-size",),
        _SIZES.format(real="footer_size", column="footer_size"),
        repairs.set_file("footer_size"),
        from_files=True,
    ),
    Repair(
        ("wrong-record-count",),
        """SELECT p.what, p.id, r.record_count FROM known_path p JOIN footer r ON r.path = p.full_path
           JOIN ducklake_data_file f ON f.data_file_id = p.id
           WHERE p.what = 'data file' AND f.record_count <> r.record_count
                 AND p.id IN (SELECT data_file_id FROM proven)""",
        repairs.set_file("record_count"),
        from_files=True,
    ),
    Repair(
        ("wrong-delete-count",),
        """SELECT 'delete file', delete_file_id, positions FROM real_delete r JOIN ducklake_delete_file d
           USING (delete_file_id) SEMI JOIN proven_delete USING (delete_file_id)
           WHERE d.delete_count <> r.positions""",
        repairs.set_file("delete_count"),
        from_files=True,
    ),
    Repair(
        ("wrong-partition-value",),
        """SELECT data_file_id, partition_key_index, r.low FROM wrong_partition w
           JOIN real_partition r USING (data_file_id, partition_key_index) SEMI JOIN proven USING (data_file_id)
           WHERE r.low IS NULL OR (r.low = r.high AND r.nulls = 0)""",
        repairs.set_partition,
        from_files=True,
    ),
    Repair(
        ("deleted-twice-in-catalog",),
        """SELECT table_id, file_id, row_id, min(begin_snapshot) FROM inlined_delete
           SEMI JOIN ducklake_data_file f ON f.data_file_id = file_id GROUP BY ALL HAVING count(*) > 1""",
        repairs.keep_one_delete,
    ),
    Repair(
        ("two-live-delete-files", "delete-files-overlap"),
        f"""SELECT DISTINCT data_file_id FROM shared_delete {_FOLDABLE} {_PROVEN}""",
        repairs.fold,
        from_files=True,
        folds=True,
    ),
    Repair(
        ("deleted-twice",),
        f"""SELECT DISTINCT data_file_id FROM real_delete r JOIN ducklake_delete_file d USING (delete_file_id)
            {_LIVE} {_FOLDABLE} {_PROVEN} WHERE r.also_inlined > 0 AND d.end_snapshot IS NULL""",
        repairs.fold,
        from_files=True,
        folds=True,
    ),
    Repair(
        ("delete-without-data-file",),
        "SELECT delete_file_id FROM ducklake_delete_file ANTI JOIN ducklake_data_file USING (data_file_id)",
        repairs.drop_deletes,
    ),
    Repair(
        ("file-bounds-exclude-values", "file-hides-nulls", "file-hides-nan"),
        """SELECT data_file_id, column_id, min_value, max_value, value_count, null_count, contains_nan
           FROM real_stats SEMI JOIN wrong_stats USING (data_file_id, column_id)
           SEMI JOIN proven USING (data_file_id)""",
        repairs.write_real,
        from_files=True,
    ),
    Repair(
        ("table-bounds-exclude-values",),
        """SELECT DISTINCT table_id, column_id FROM excluded_value
           ANTI JOIN (FROM ducklake_file_column_stats WHERE min_value IS NOT NULL AND max_value IS NOT NULL) s
                     USING (data_file_id, column_id)""",
        repairs.forget_bounds,
        from_files=True,
    ),
    Repair(
        ("table-bounds-unproven", "table-bounds-forgotten"),
        # An unproven bound may be too narrow, and the engine would take NULL to mean that there are no values yet.
        """SELECT DISTINCT t.table_id, t.column_id FROM bounded t JOIN column_fact s USING (table_id, column_id)
           WHERE s.value_count > 0 AND (s.min_value IS NULL OR s.max_value IS NULL)""",
        repairs.forget_bounds,
    ),
    Repair(
        ("table-bounds-too-narrow", "table-bounds-forgotten", "table-hides-nulls", "table-hides-nan"),
        """SELECT DISTINCT t.table_id, t.column_id, t.column_type
           FROM stated t JOIN column_fact s USING (table_id, column_id) LEFT JOIN bounded b USING (table_id, column_id)
           WHERE is_less(b.column_type, s.min_value, t.min_value) OR is_less(b.column_type, t.max_value, s.max_value)
                 OR (b.column_id IS NOT NULL AND t.min_value IS NULL AND t.max_value IS NULL AND s.value_count > 0)
                 OR (NOT t.contains_null AND s.null_count > 0) OR (NOT t.contains_nan AND s.contains_nan)""",
        repairs.widen,
    ),
    Repair(
        ("table-statistics-missing",),
        # If files hold row ids of their own, the catalog does not know the highest one.
        """SELECT r.table_id, r.rows, f.next_row_id, f.size
           FROM live_rows r ANTI JOIN ducklake_table_stats USING (table_id)
           JOIN (SELECT table_id, sum(size) AS size, max(last) + 1 AS next_row_id
                 FROM (SELECT table_id, file_size_bytes AS size, row_id_start + record_count - 1 AS last
                       FROM ducklake_data_file WHERE end_snapshot IS NULL
                       UNION ALL SELECT table_id, 0, row_id FROM inlined_row)
                 WHERE coalesce(last, 0) < 1000000000000000000
                 GROUP BY table_id HAVING count(last) = count(*)) f USING (table_id)
           WHERE r.rows > 0""",
        repairs.insert_counts,
    ),
    Repair(
        ("record-count-behind",),
        # The engine takes bounds for exact if the count equals the remaining rows, so it must be larger.
        """SELECT table_id, greatest(rows, left_over + 1) FROM live_rows JOIN ducklake_table_stats s USING (table_id)
           WHERE s.record_count < left_over""",
        repairs.raise_counter("record_count"),
    ),
    Repair(
        ("next-row-id-behind",),
        """SELECT table_id, last + 1 FROM last_row_id JOIN ducklake_table_stats s USING (table_id)
           WHERE s.next_row_id <= last""",
        repairs.raise_counter("next_row_id"),
    ),
    Repair(
        ("statistics-without-file",),
        " UNION ALL ".join(
            f"""SELECT DISTINCT '{name}', s.table_id, s.data_file_id FROM {name} s ANTI JOIN ducklake_data_file f
                ON f.data_file_id = s.data_file_id AND f.table_id = s.table_id"""
            for name in ("ducklake_file_column_stats", "ducklake_file_variant_stats", "ducklake_file_partition_value")
        ),
        repairs.drop_statistics,
    ),
    Repair(
        ("inlined-table-of-former-columns",),
        """SELECT s.schema_name, t.table_name FROM outdated_inlined_table f
           JOIN (FROM ducklake_table WHERE end_snapshot IS NULL) t USING (table_id)
           JOIN (FROM ducklake_schema WHERE end_snapshot IS NULL) s USING (schema_id)""",
        repairs.add_current_inlined_table,
    ),
]
