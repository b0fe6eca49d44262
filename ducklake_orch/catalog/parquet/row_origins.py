"""Look into files for what the catalog does not tell: which of their rows were there at an earlier snapshot."""

from collections.abc import Sequence

import duckdb

from ducklake_orch.catalog.metadata import DataFile
from ducklake_orch.catalog.parquet.live_rows_sql import data_sql, encrypted_columns, live_sql, read_columns


def count_rows(con: duckdb.DuckDBPyConnection, file: DataFile, at: int, inlined_deletes: Sequence[int]) -> int:
    """Return how many rows of a file are live at a snapshot, by reading when they came and went.

    Args:
        con: A connection that has the storage's secrets.
        file: The file, as it is at the snapshot.
        at: The snapshot.
        inlined_deletes: Its positions that the catalog itself names as deleted.
    """
    found = encrypted_columns(con, file, ()) if file.encryption_key else read_columns(con, [file.path])[file.path]
    live = live_sql(file, at, inlined_deletes)
    row = con.execute(f"SELECT count(*) FROM {data_sql(file, found)} WHERE {live}").fetchone()
    return int(row[0]) if row else 0
