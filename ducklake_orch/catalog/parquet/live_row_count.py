"""Count the rows of a data file that were live at a snapshot, for files whose count the catalog does not have."""

from collections.abc import Sequence

import duckdb

from ducklake_orch.catalog.metadata import DataFile
from ducklake_orch.catalog.parquet.encrypted_columns import footers_of
from ducklake_orch.catalog.parquet.live_rows_sql import data_sql, live_sql


def count_rows(con: duckdb.DuckDBPyConnection, file: DataFile, at: int, inlined_deletes: Sequence[int]) -> int:
    """Return the number of rows of a file that are live at a snapshot, by reading when they were added and deleted.

    Args:
        con: A DuckDB connection that has the storage's secrets.
        file: The file, as it is at the snapshot.
        at: The snapshot.
        inlined_deletes: The positions of its inlined deletions.
    """
    footer = footers_of(con, [file], {})[file.path]
    live = live_sql(file, at, inlined_deletes)
    row = con.execute(f"SELECT count(*) FROM {data_sql(file, footer)} WHERE {live}").fetchone()
    return int(row[0]) if row else 0
