"""The snapshot of a flush says what it did, in the words that other engines read."""

from typing import Any

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.support.backends import SQLITE, catalogs

ROWS = pa.table({"i": list(range(20))})


def flush(lake: DuckLake) -> Any:
    (step,) = lake.maintain(operations=["flush"]).raise_for_error().operations
    return step


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_flush_is_a_snapshot_with_its_author_and_what_it_flushed(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")
    lake.execute("INSERT INTO t VALUES (20), (21)").raise_for_error()
    step, snapshot = flush(lake), lake.snapshots(limit=1)[0]
    assert snapshot.snapshot_id == step.snapshot_id
    assert snapshot.changes == ["inline_flush:1"]
    assert (snapshot.author, snapshot.message) == ("ducklake-orch", "maintenance (flush of main.t): 2 inlined rows")
    assert snapshot.extra["maintenance"]["operation"] == "flush"
    assert snapshot.extra["ducklake_orch"].keys() >= {"write_id"}


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_flush_of_deletions_conflicts_with_what_else_moves_the_rows_of_their_files(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")
    lake.execute(
        ["DELETE FROM t WHERE i = 1", "INSERT INTO t VALUES (20)", "DELETE FROM t WHERE i = 20"]
    ).raise_for_error()
    flush(lake)
    assert lake.snapshots(limit=1)[0].changes == ["inline_flush:1", "merge_adjacent:1"]


@catalogs(quick=[SQLITE], sql_writes=True)
def test_the_files_of_a_flush_have_ids_of_their_own(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")
    lake.execute(["DELETE FROM t WHERE i = 1", "INSERT INTO t VALUES (20)"]).raise_for_error()
    flush(lake)
    with lake.connect_metadata() as con:
        sql = "SELECT data_file_id FROM ducklake_data_file UNION ALL SELECT delete_file_id FROM ducklake_delete_file"
        ids = sorted(row[0] for row in con.execute(sql).fetchall())
        (following,) = con.execute("SELECT max(next_file_id) FROM ducklake_snapshot").fetchone() or ()
    assert len(set(ids)) == len(ids) == 3
    assert following > ids[-1]


@catalogs(quick=[SQLITE], sql_writes=True)
def test_the_statistics_count_a_null_within_a_map_after_its_flush(lake: DuckLake) -> None:
    lake.execute(
        ["CREATE TABLE t (m MAP(VARCHAR, INTEGER))", "INSERT INTO t VALUES (MAP {'a': NULL})"]
    ).raise_for_error()
    flush(lake)
    with lake.connect_metadata() as con:
        sql = (
            "SELECT contains_null FROM ducklake_table_column_stats JOIN ducklake_column USING (table_id, column_id)"
            " WHERE column_name = 'value'"
        )
        assert con.execute(sql).fetchall() == [(True,)]
