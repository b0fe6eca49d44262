"""Maintenance deletes nothing that a running write needs, and a dead writer retains nothing forever."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.commit import active_writes, leased, read_leases
from ducklake_orch.catalog.commit.active_writes import LEASES, Leases
from ducklake_orch.catalog.lifecycle.compaction import DuckDBCompactor
from ducklake_orch.catalog.search import RowSearch, planning
from ducklake_orch.catalog.verbs import ArrowRows, PlannedWrite, WriteRequest
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import LakeLockedError
from tests.support.backends import DUCKDB, POSTGRES, SQLITE, catalogs
from tests.support.fault_points import dies_at
from tests.support.lakes import MakeLake
from tests.support.worn_lakes import ALL_OF_IT, whole


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def leases(lake: DuckLake) -> Leases:
    with planning(lake.config, "Looking") as metadata:
        return read_leases(metadata)


def reasons(lake: DuckLake) -> dict[str, str]:
    return {
        operation.operation: operation.reason
        for operation in lake.plan_maintenance(ALL_OF_IT).operations
        if operation.table is None
    }


@pytest.fixture
def pinned_at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Access every write immediately; return the periodic check of the watching thread."""
    monkeypatch.setattr(active_writes, "_BRIEF_S", 0.0)
    return lambda: active_writes._WATCH.renew_leases()


def replace_and_maintain(lake: DuckLake) -> None:
    """Replace all rows, and run maintenance that deletes all files without a known use."""
    lake.write(rows(7, 8, 9), "t", mode="overwrite")
    for _ in range(3):
        lake.maintain(ALL_OF_IT).raise_for_error()


@catalogs()
def test_a_short_write_registers_no_pin(lake: DuckLake) -> None:
    lake.write(rows(1, 2), "t", mode="append")
    lake.delete("t", "a = 1")
    with planning(lake.config, "Looking") as metadata:
        assert not LEASES.table_exists(metadata)


@catalogs()
def test_snapshots_and_files_of_a_running_write_are_kept_until_it_ends(
    lake: DuckLake, pinned_at_once: Callable[[], None]
) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="overwrite")
    first = lake.table("t").files(snapshot=1)[0].path
    write = Write("writing `it's é \\`")
    own = Path(lake.config.data_path or "", "main", "t", f"ducklake-{write.write_id}-1.parquet")
    with leased(lake.config, write, 2):
        own.write_bytes(b"half a file")
        pinned_at_once()
        running = leases(lake)
        assert (running.needed_from, running.write_ids) == (2, frozenset([write.write_id]))
        assert f"{write.purpose}, by process {os.getpid()} on " in running.writes[0].owner
        assert "1 more are needed by writing `it's é" in reasons(lake)["expire"]
        for _ in range(2):
            lake.maintain(ALL_OF_IT).raise_for_error()
        assert sorted(snapshot.snapshot_id for snapshot in lake.snapshots()) == [2, 3]
        assert "2 more may be read by running writes" not in reasons(lake)["cleanup"]
        assert "1 more may be read by running writes" in reasons(lake)["cleanup"]
        assert "1 belong to running writes" in reasons(lake)["orphans"]
        assert os.path.exists(first)
        assert own.exists()
    assert not leases(lake).writes
    for _ in range(2):
        lake.maintain(ALL_OF_IT).raise_for_error()
    assert [snapshot.snapshot_id for snapshot in lake.snapshots()] == [3]
    assert not os.path.exists(first)
    assert not own.exists()
    whole(lake)


@catalogs(quick=[SQLITE, POSTGRES, DUCKDB])
def test_files_of_a_running_append_are_not_orphans(lake: DuckLake, pinned_at_once: Callable[[], None]) -> None:
    lake.write(rows(1), "t", mode="append")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(*range(10, 200_000)).to_batches()
        pinned_at_once()
        for _ in range(2):
            lake.maintain(ALL_OF_IT).raise_for_error()
        yield from rows(5).to_batches()

    data = pa.RecordBatchReader.from_batches(rows().schema, batches())
    lake.write(data, "t", mode="append")
    assert lake.table("t").count() == 199_992
    assert not leases(lake).writes
    whole(lake)


VERBS: dict[str, Callable[[DuckLake], object]] = {
    "delete": lambda lake: lake.delete("t", "a % 10 = 3"),
    "merge": lambda lake: lake.write(rows(1, 13, 500), "t", mode="merge", keys=["a"]),
    "replace": lambda lake: lake.write(rows(3), "t", mode="replace_where", where="a = 3"),
}


@pytest.mark.parametrize("verb", VERBS)
@catalogs(quick=[SQLITE])
def test_maintenance_keeps_files_that_a_running_verb_reads(
    lake: DuckLake, verb: str, pinned_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(rows(*range(100)), "t", mode="append")
    real, times = RowSearch.losses, iter([True])

    def run_maintenance_first(self: RowSearch, plan: Any) -> Any:
        if next(times, False):
            pinned_at_once()
            replace_and_maintain(lake)
        return real(self, plan)

    monkeypatch.setattr(RowSearch, "losses", run_maintenance_first)
    VERBS[verb](lake)
    assert next(times, None) is None
    wanted = {"delete": [7, 8, 9], "merge": [1, 7, 8, 9, 13, 500], "replace": [3, 7, 8, 9]}
    assert sorted(lake.read("t").column("a").to_pylist()) == wanted[verb]
    lake.maintain(ALL_OF_IT).raise_for_error()
    whole(lake)


@catalogs(quick=[SQLITE])
def test_maintenance_keeps_files_that_a_running_compaction_reads(
    lake: DuckLake, pinned_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        lake.write(rows(number), "t", mode="append")
    real, times = DuckDBCompactor.write, iter([True])

    def run_maintenance_first(self: DuckDBCompactor, jobs: Any, write_id: str) -> Any:
        if next(times, False):
            pinned_at_once()
            lake.write(rows(7), "t", mode="overwrite")
            for operation in (
                "expire",
                "cleanup",
                "orphans",
            ):  # as by another process that does not see the running maintenance
                monkeypatch.setattr("ducklake_orch.maintenance.run_plan.only_runner", _NoLock)
                lake.maintain(ALL_OF_IT, [operation]).raise_for_error()
        return real(self, jobs, write_id)

    monkeypatch.setattr(DuckDBCompactor, "write", run_maintenance_first)
    report = lake.maintain(operations=["merge"]).raise_for_error()
    assert "1 of 1 were skipped" in report.operations[0].reason
    assert lake.read("t").column("a").to_pylist() == [7]
    whole(lake)


class _NoLock:
    """A stand-in for the maintenance lock that locks nothing."""

    def __init__(self, config: Any) -> None: ...

    def __enter__(self) -> Callable[[], None]:
        return lambda: None

    def __exit__(self, *error: object) -> None: ...


@catalogs(quick=[SQLITE, POSTGRES])
def test_the_lease_of_a_killed_writer_expires(
    make_lake: MakeLake, pinned_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    lake.write(rows(1), "t", mode="append")
    folder = Path(lake.table("t").files()[0].path).parent

    def work() -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            pinned_at_once()
            yield from rows(2).to_batches()

        data = pa.RecordBatchReader.from_batches(rows().schema, batches())
        make_lake().write(data, "t", mode="append")

    assert dies_at("files.written", work)
    assert leases(lake).needed_from == 1
    lake.maintain(ALL_OF_IT).raise_for_error()
    assert len(list(folder.iterdir())) == 2
    later = time.time_ns() // 1000 + int((active_writes._LAPSE_S + 1) * 1e6)
    monkeypatch.setattr(active_writes, "_now", lambda config: str(later))
    assert not leases(lake).writes
    lake.maintain(ALL_OF_IT).raise_for_error()
    assert len(list(folder.iterdir())) == 1
    with leased(lake.config, Write("another"), 1):  # its lease replaces the expired one
        pinned_at_once()
        with lake.connect_metadata() as con:
            assert con.execute(f"SELECT count(*), max(purpose::VARCHAR) FROM {LEASES.name}").fetchall()[0][0] == 1
    whole(lake)


@catalogs(quick=[SQLITE])
def test_a_lease_is_renewed_while_the_write_runs(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(rows(1), "t", mode="append")
    monkeypatch.setattr(active_writes, "_BRIEF_S", 0.0)
    with leased(lake.config, Write("writing"), 1):
        active_writes._WATCH.renew_leases()
        now = time.time_ns() // 1000 + int((active_writes._LAPSE_S - 1) * 1e6)
        monkeypatch.setattr(active_writes, "_now", lambda config: str(now + int(2e6)))
        assert not leases(lake).writes
        active_writes._WATCH.renew_leases()  # too early
        assert not leases(lake).writes
        monkeypatch.setattr(active_writes, "_RENEW_S", 0.0)
        active_writes._WATCH.renew_leases()
        assert leases(lake).needed_from == 1


@catalogs(quick=[SQLITE])
def test_a_write_across_processes_is_pinned_from_its_plan_on(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    request = WriteRequest(table_name("t"), "append")
    data = ArrowRows(rows(2))
    planned = PlannedWrite.of(lake.config, data, request)
    assert leases(lake).write_ids == {planned.write.write_id}
    planned.finish(data)
    assert not leases(lake).writes
    planned = PlannedWrite.of(lake.config, data, request)
    planned.abandon()
    assert not leases(lake).writes
    assert sorted(lake.read("t").column("a").to_pylist()) == [1, 2]


@catalogs(quick=[SQLITE])
def test_a_write_continues_if_it_cannot_be_pinned(
    lake: DuckLake,
    pinned_at_once: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def locked(*_: Any) -> None:
        raise LakeLockedError("another process holds the queue")

    monkeypatch.setattr(type(LEASES), "write", locked)
    with leased(lake.config, Write("writing"), 0):
        pinned_at_once()
    assert "another process holds the queue" in caplog.text


def test_a_forked_child_does_not_inherit_the_lease_of_its_parent(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "l")
    with leased(lake.config, Write("writing"), 0):
        child = os.fork()
        if child == 0:
            os._exit(len(active_writes._WATCH._writes))
        assert os.waitpid(child, 0)[1] == 0
