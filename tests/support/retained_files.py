"""Checks the invariant of every verb: each file that a retained snapshot names exists, complete and readable."""

from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from ducklake_orch import DuckLake
from tests.support.deletion_vectors import positions_in

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
            f.file_size_bytes AS size, f.{rows} AS rows,
            f.encryption_key AS key
        FROM ducklake_{name} f
        JOIN (SELECT DISTINCT table_id, schema_id, path, path_is_relative FROM ducklake_table) t USING (table_id)
        JOIN (SELECT DISTINCT schema_id, path, path_is_relative FROM ducklake_schema) s USING (schema_id),
            (SELECT value FROM ducklake_metadata WHERE key = 'data_path') m
        """
        for name, rows in (("data_file", "record_count"), ("delete_file", "delete_count"))
    )
    with lake.connect_metadata() as con:
        retained = con.execute(files).fetchall()
    for kind, path, size, rows, key in retained:
        place = Path(str(path))
        assert place.exists(), f"{kind} {path} is named by a retained snapshot, and is not there"
        assert place.stat().st_size == size, f"{kind} {path} has {place.stat().st_size} bytes, not {size}"
        found = _rows(place, key)
        assert found == rows, f"{kind} {path} has {found} rows, not {rows}"
    return len(retained)


def _rows(path: Path, key: str | None) -> int:
    if path.suffix == ".puffin":
        return len(positions_in(path))
    return pq.read_metadata(path).num_rows if key is None else _encrypted_rows(path, key)


def _encrypted_rows(path: Path, key: str) -> int:
    """Return the number of rows of a file that pyarrow cannot decrypt, because DuckDB's encryption is its own."""
    config = "encryption_config = {footer_key_value: from_base64($key)}"
    [(rows,)] = duckdb.execute(
        f"SELECT count(*) FROM read_parquet($path, {config})", {"path": str(path), "key": key}
    ).fetchall()
    return int(rows)
