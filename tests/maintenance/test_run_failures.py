"""Failures during a run: the report names them, no rows are lost, and the next run completes the work."""

import os
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.lifecycle.compaction import DuckDBCompactor
from ducklake_orch.errors import SnapshotNotFoundError, StorageBusyError
from tests.support.backends import POSTGRES, SQLITE, catalogs, on_sqlite
from tests.support.lakes import MakeLake
from tests.support.numbered_rows import wide_rows
from tests.support.worn_lakes import ALL_OF_IT, contents, rows, small_files, whole


@catalogs(quick=[SQLITE, POSTGRES])
def test_a_table_dropped_during_its_merge_stays_dropped(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    small_files(lake, "t")
    small_files(lake, "u")
    real = DuckDBCompactor.write

    def dropping(self: DuckDBCompactor, jobs: Any, write_id: str) -> Any:
        if jobs[0].table.name == "t":
            lake.drop_table("t")
        return real(self, jobs, write_id)

    monkeypatch.setattr(DuckDBCompactor, "write", dropping)
    report = lake.maintain(operations=["merge"]).raise_for_error()
    assert [(step.table, step.files_in, step.files_out) for step in report.operations] == [
        ("main.t", 0, 0),
        ("main.u", 5, 1),
    ]
    assert "concurrent writes changed their files" in report.operations[0].reason
    assert not lake.exists("t")
    whole(lake)


@catalogs(quick=[SQLITE, POSTGRES], shared=True)
def test_a_reader_of_an_expired_snapshot_reads_to_the_end(lake: DuckLake) -> None:
    lake.write(rows(0, 200_000), "t", mode="append")
    lake.write(rows(0, 1), "t", mode="overwrite")
    old = lake.table("t").files(snapshot=1)[0].path
    with lake.read_batches("t", snapshot=1, batch_size=1000) as stream:
        first = stream.read_next_batch()
        lake.maintain(ALL_OF_IT, ["expire"]).raise_for_error()
        assert len(first) + sum(map(len, stream)) == 200_000
    assert os.path.exists(old)  # cleanup deletes it after two days
    lake.maintain(operations=["cleanup"]).raise_for_error()
    assert os.path.exists(old)
    with pytest.raises(SnapshotNotFoundError):
        lake.read("t", snapshot=1)
    assert contents(lake) == {"t": [(0, "row 0")]}


@on_sqlite
def test_a_failed_file_deletion_is_reported_and_retried(lake: DuckLake) -> None:
    for number in range(3):
        lake.write(rows(number, 1), "t", mode="overwrite")
    lake.maintain(ALL_OF_IT, ["expire"]).raise_for_error()
    stubborn = Path(lake.plan_maintenance(ALL_OF_IT, ["cleanup"]).operations[0].paths[0])
    stubborn.unlink()
    Path(stubborn, "inside").mkdir(parents=True)
    report = lake.maintain(ALL_OF_IT, ["cleanup"])
    assert report.status == "error"
    with pytest.raises(StorageBusyError, match=r"1 files are deleted, 1 are not, such as .*parquet"):
        report.raise_for_error()
    Path(stubborn, "inside").rmdir()
    stubborn.rmdir()
    again = lake.maintain(ALL_OF_IT, ["cleanup"]).raise_for_error()
    assert list(again.operations[0].paths) == [str(stubborn)]
    whole(lake)


@on_sqlite
def test_a_full_spill_disk_loses_no_data(make_lake: MakeLake) -> None:
    lake = make_lake()
    for number in range(6):
        lake.write(wide_rows(number * 30_000, 30_000), "wide", mode="append")
    small_files(lake, "t")
    tight = {"memory_limit": "24MB", "threads": 1, "max_temp_directory_size": "1MB"}
    report = make_lake(**tight).maintain()
    merges = {step.table: step for step in report.operations if step.operation == "merge"}
    assert (merges["main.wide"].status, merges["main.t"].status) == ("failed", "done")
    assert "memory_limit" in str(merges["main.wide"].error)
    assert lake.table("wide").count() == 180_000
    whole(lake)
    assert make_lake().maintain().raise_for_error().totals["files_out"] == 1
    assert len(lake.table("wide").files()) == 1
    whole(lake)


@catalogs(quick=[SQLITE], sql_writes=True)
def test_an_encrypted_lake_is_maintained(make_lake: MakeLake) -> None:
    lake = make_lake(encrypted=True, data_inlining_row_limit=10, extensions=["httpfs"])
    lake.execute("CREATE TABLE t (k BIGINT)").raise_for_error()
    for number in range(6):
        lake.execute(f"INSERT INTO t SELECT range FROM range({100 * number}, {100 * number + 50})").raise_for_error()
    lake.execute(["INSERT INTO t VALUES (1000)", "DELETE FROM t WHERE k < 20 OR k = 1000"]).raise_for_error()
    lake.execute("INSERT INTO t VALUES (2000)").raise_for_error()
    wanted = contents(lake)
    merging = ALL_OF_IT.model_copy(update={"merge": ALL_OF_IT.merge.model_copy(update={"min_files": 2})})
    for _ in range(3):
        lake.maintain(merging).raise_for_error()
        assert contents(lake) == wanted
    assert len(lake.table("t").files()) == 1
    assert lake.fsck(storage=True).counts == {}
