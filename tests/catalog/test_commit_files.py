"""The files of one commit: their ids, and the delete files that it writes for the data files that it replaces."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import once_at
from tests.support.stored_tables import files_of

MANY = pa.table({"id": range(1000)})


def file_ids(lake: DuckLake) -> list[int]:
    """Return the ids of all files and mappings, and the next one, in order."""
    with lake.connect_metadata() as con:
        found = con.execute(
            """SELECT data_file_id FROM ducklake_data_file UNION ALL SELECT delete_file_id FROM ducklake_delete_file
            UNION ALL SELECT mapping_id FROM ducklake_column_mapping
            UNION ALL SELECT max(next_file_id) FROM ducklake_snapshot ORDER BY 1"""
        ).fetchall()
    return [row[0] for row in found]


@catalogs(quick=[SQLITE])
def test_mappings_data_files_and_delete_files_of_a_commit_have_different_ids(lake: DuckLake, tmp_path: Path) -> None:
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path in paths:
        pq.write_table(pa.table({"id": [1000, 1001]}), path)
    lake.write(MANY, "t", mode="append")
    with lake.transaction() as tx:
        tx.add_files("t", paths)
        tx.delete("t", "id = 1")
    ids = file_ids(lake)
    assert ids == list(range(6))  # two data files share a mapping
    assert lake.read("t").num_rows == 1003


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_replaced_file_with_inlined_deletions_gets_a_delete_file_that_ends_with_it(lake: DuckLake) -> None:
    lake.write(MANY, "t", mode="append")
    lake.execute("DELETE FROM t WHERE id < 5").raise_for_error()
    lake.write(MANY, "t", mode="overwrite")
    with lake.connect_metadata() as con:
        ends = con.execute("SELECT begin_snapshot, end_snapshot FROM ducklake_delete_file").fetchall()
    assert ends == [(2, 3)]
    assert [lake.read("t", snapshot=snapshot).num_rows for snapshot in (1, 2, 3)] == [1000, 995, 1000]
    assert lake.fsck(deep=True).findings == []


@on_sqlite
def test_a_commit_that_fails_deletes_the_delete_files_of_the_files_that_it_replaces(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(MANY, "t", mode="append")
    lake.execute("DELETE FROM t WHERE id < 5").raise_for_error()
    before = files_of(lake)
    during = list[str]()

    def fail() -> None:
        during.extend(files_of(lake))
        raise RuntimeError("planted")

    once_at(monkeypatch, "statement.3", fail)
    with pytest.raises(RuntimeError, match="planted"):
        lake.write(MANY, "t", mode="overwrite")
    assert len(during) == len(before) + 2
    assert files_of(lake) == before
    assert lake.read("t").num_rows == 995
