"""Checks the invariant of every verb: each file that a retained snapshot names exists, complete and readable."""

from pathlib import Path

import pyarrow.parquet as pq

from ducklake_orch import DuckLake

_FOLDER = """
    CASE WHEN t.path_is_relative THEN CASE WHEN s.path_is_relative THEN m.value ELSE '' END || s.path ELSE '' END
    || t.path
"""


def check_retained_files(lake: DuckLake) -> int:
    """Read the footer of every file that the catalog names, including ended files; return their number.

    It queries the metadata tables directly and reads with pyarrow, so it shares no code with what it checks. Expiry
    deletes the catalog rows of files that no snapshot needs, so a retained snapshot needs each remaining row.

    Args:
        lake: A lake on local storage.
    """
    files = " UNION ALL ".join(
        f"""
        SELECT '{name}' AS kind, CASE WHEN f.path_is_relative THEN {_FOLDER} ELSE '' END || f.path AS path,
            f.file_size_bytes AS size, f.{rows} AS rows
        FROM ducklake_{name} f
        JOIN (SELECT DISTINCT table_id, schema_id, path, path_is_relative FROM ducklake_table) t USING (table_id)
        JOIN (SELECT DISTINCT schema_id, path, path_is_relative FROM ducklake_schema) s USING (schema_id),
            (SELECT value FROM ducklake_metadata WHERE key = 'data_path') m
        """
        for name, rows in (("data_file", "record_count"), ("delete_file", "delete_count"))
    )
    with lake.connect_metadata() as con:
        retained = con.execute(files).fetchall()
    for kind, path, size, rows in retained:
        place = Path(str(path))
        assert place.exists(), f"{kind} {path} is named by a retained snapshot, and is not there"
        assert place.stat().st_size == size, f"{kind} {path} has {place.stat().st_size} bytes, not {size}"
        assert pq.read_metadata(place).num_rows == rows, f"{kind} {path} does not have {rows} rows"
    return len(retained)
