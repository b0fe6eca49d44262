"""Maintenance deletes nothing that a running write needs, and a dead writer retains nothing forever."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.commit import active_writes, pinned, read_pins
from ducklake_orch.catalog.commit.active_writes import TABLE, Pins
from ducklake_orch.catalog.lifecycle.compaction import DuckDBCompactor
from ducklake_orch.catalog.search import RowSearch, planning
from ducklake_orch.catalog.verbs import ArrowRows, PlannedWrite, WriteRequest
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import LakeLockedError
from tests.backends import DUCKDB, POSTGRES, SQLITE, catalogs
from tests.catalog.crashing import dies_at
from tests.conftest import MakeLake
from tests.maintenance.worn import ALL_OF_IT, whole


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def held(lake: DuckLake) -> Pins:
    with planning(lake.config, "Looking") as metadata:
        return read_pins(metadata)


def reasons(lake: DuckLake) -> dict[str, str]:
    return {
        operation.operation: operation.reason
        for operation in lake.plan_maintenance(ALL_OF_IT).operations
        if operation.table is None
    }


@pytest.fixture
def noted_at_once(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Treat a new write as a long one, and return the periodic check of the watching thread."""
    monkeypatch.setattr(active_writes, "_BRIEF_S", 0.0)
    return lambda: active_writes._WATCH.renew_leases()


def clear_away(lake: DuckLake) -> None:
    """Replace all rows, and run maintenance that deletes all files without a known use."""
    lake.write(rows(7, 8, 9), "t", mode="overwrite")
    for _ in range(3):
        lake.maintain(ALL_OF_IT).raise_for_error()


@catalogs()
def test_a_write_that_is_over_soon_notes_nothing(lake: DuckLake) -> None:
    lake.write(rows(1, 2), "t", mode="append")
    lake.delete("t", "a = 1")
    with planning(lake.config, "Looking") as metadata:
        assert not TABLE.is_there(metadata)


@catalogs()
def test_what_a_running_write_needs_stays_until_it_ends(lake: DuckLake, noted_at_once: Callable[[], None]) -> None:
    for number in range(3):
        lake.write(rows(number), "t", mode="overwrite")
    first = lake.table("t").files(snapshot=1)[0].path
    write = Write("writing `it's é \\`")
    own = Path(lake.config.data_path or "", "main", "t", f"ducklake-{write.write_id}-1.parquet")
    with pinned(lake.config, write, 2):
        own.write_bytes(b"half a file")
        noted_at_once()
        running = held(lake)
        assert (running.needed_from, running.write_ids) == (2, frozenset([write.write_id]))
        assert f"{write.purpose}, by process {os.getpid()} on " in running.writes[0].owner
        assert "1 more are needed by writing `it's é" in reasons(lake)["expire"]
        for _ in range(2):
            lake.maintain(ALL_OF_IT).raise_for_error()
        assert sorted(snapshot.snapshot_id for snapshot in lake.snapshots()) == [2, 3]
        assert "2 more may be read by running writes" not in reasons(lake)["cleanup"]
        assert "1 more may be read by running writes" in reasons(lake)["cleanup"]
        assert "1 are of running writes" in reasons(lake)["orphans"]
        assert os.path.exists(first)
        assert own.exists()
    assert not held(lake).writes
    for _ in range(2):
        lake.maintain(ALL_OF_IT).raise_for_error()
    assert [snapshot.snapshot_id for snapshot in lake.snapshots()] == [3]
    assert not os.path.exists(first)
    assert not own.exists()
    whole(lake)


@catalogs(quick=[SQLITE, POSTGRES, DUCKDB])
def test_files_that_are_just_being_written_are_no_orphans(lake: DuckLake, noted_at_once: Callable[[], None]) -> None:
    lake.write(rows(1), "t", mode="append")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows(*range(10, 200_000)).to_batches()
        noted_at_once()
        for _ in range(2):
            lake.maintain(ALL_OF_IT).raise_for_error()
        yield from rows(5).to_batches()

    data = pa.RecordBatchReader.from_batches(rows().schema, batches())
    lake.write(data, "t", mode="append")
    assert lake.table("t").count() == 199_992
    assert not held(lake).writes
    whole(lake)


VERBS: dict[str, Callable[[DuckLake], object]] = {
    "delete": lambda lake: lake.delete("t", "a % 10 = 3"),
    "merge": lambda lake: lake.write(rows(1, 13, 500), "t", mode="merge", keys=["a"]),
    "replace": lambda lake: lake.write(rows(3), "t", mode="replace_where", where="a = 3"),
}


@pytest.mark.parametrize("verb", VERBS)
@catalogs(quick=[SQLITE])
def test_files_that_are_just_being_read_stay(
    lake: DuckLake, verb: str, noted_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(rows(*range(100)), "t", mode="append")
    real, times = RowSearch.losses, iter([True])

    def meanwhile(self: RowSearch, plan: Any) -> Any:
        if next(times, False):
            noted_at_once()
            clear_away(lake)
        return real(self, plan)

    monkeypatch.setattr(RowSearch, "losses", meanwhile)
    VERBS[verb](lake)
    assert next(times, None) is None
    wanted = {"delete": [7, 8, 9], "merge": [1, 7, 8, 9, 13, 500], "replace": [3, 7, 8, 9]}
    assert sorted(lake.read("t").column("a").to_pylist()) == wanted[verb]
    lake.maintain(ALL_OF_IT).raise_for_error()
    whole(lake)


@catalogs(quick=[SQLITE])
def test_files_that_are_just_being_compacted_stay(
    lake: DuckLake, noted_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        lake.write(rows(number), "t", mode="append")
    real, times = DuckDBCompactor.write, iter([True])

    def meanwhile(self: DuckDBCompactor, jobs: Any, write_id: str) -> Any:
        if next(times, False):
            noted_at_once()
            lake.write(rows(7), "t", mode="overwrite")
            for operation in ("expire", "cleanup", "orphans"):  # by another process that does not know of the run
                monkeypatch.setattr("ducklake_orch.maintenance.run_plan.only_runner", _alone)
                lake.maintain(ALL_OF_IT, [operation]).raise_for_error()
        return real(self, jobs, write_id)

    monkeypatch.setattr(DuckDBCompactor, "write", meanwhile)
    report = lake.maintain(operations=["merge"]).raise_for_error()
    assert "1 of 1 were left alone" in report.operations[0].reason
    assert lake.read("t").column("a").to_pylist() == [7]
    whole(lake)


class _alone:
    """A stand-in for the maintenance lock that locks nothing."""

    def __init__(self, config: Any) -> None: ...

    def __enter__(self) -> Callable[[], None]:
        return lambda: None

    def __exit__(self, *error: object) -> None: ...


@catalogs(quick=[SQLITE, POSTGRES])
def test_the_note_of_a_writer_that_was_killed_lapses(
    make_lake: MakeLake, noted_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = make_lake()
    lake.write(rows(1), "t", mode="append")
    folder = Path(lake.table("t").files()[0].path).parent

    def work() -> None:
        def batches() -> Iterator[pa.RecordBatch]:
            noted_at_once()
            yield from rows(2).to_batches()

        data = pa.RecordBatchReader.from_batches(rows().schema, batches())
        make_lake().write(data, "t", mode="append")

    assert dies_at("files.written", work)
    assert held(lake).needed_from == 1
    lake.maintain(ALL_OF_IT).raise_for_error()
    assert len(list(folder.iterdir())) == 2
    later = time.time_ns() // 1000 + int((active_writes._LAPSE_S + 1) * 1e6)
    monkeypatch.setattr(active_writes, "_now", lambda config: str(later))
    assert not held(lake).writes
    lake.maintain(ALL_OF_IT).raise_for_error()
    assert len(list(folder.iterdir())) == 1
    with pinned(lake.config, Write("another"), 1):  # its note replaces the lapsed one
        noted_at_once()
        with lake.connect_metadata() as con:
            assert con.execute(f"SELECT count(*), max(purpose::VARCHAR) FROM {TABLE.name}").fetchall()[0][0] == 1
    whole(lake)


@catalogs(quick=[SQLITE])
def test_a_note_is_renewed_while_the_write_runs(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(rows(1), "t", mode="append")
    monkeypatch.setattr(active_writes, "_BRIEF_S", 0.0)
    with pinned(lake.config, Write("writing"), 1):
        active_writes._WATCH.renew_leases()
        now = time.time_ns() // 1000 + int((active_writes._LAPSE_S - 1) * 1e6)
        monkeypatch.setattr(active_writes, "_now", lambda config: str(now + int(2e6)))
        assert not held(lake).writes
        active_writes._WATCH.renew_leases()  # too early
        assert not held(lake).writes
        monkeypatch.setattr(active_writes, "_RENEW_S", 0.0)
        active_writes._WATCH.renew_leases()
        assert held(lake).needed_from == 1


@catalogs(quick=[SQLITE])
def test_a_write_that_goes_from_process_to_process_is_noted_from_its_plan_on(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    request = WriteRequest(table_name("t"), "append")
    data = ArrowRows(rows(2))
    planned = PlannedWrite.of(lake.config, data, request)
    assert held(lake).write_ids == {planned.write.write_id}
    planned.finish(data)
    assert not held(lake).writes
    planned = PlannedWrite.of(lake.config, data, request)
    planned.abandon()
    assert not held(lake).writes
    assert sorted(lake.read("t").column("a").to_pylist()) == [1, 2]


@catalogs(quick=[SQLITE])
def test_a_write_goes_on_when_it_cannot_be_noted(
    lake: DuckLake, noted_at_once: Callable[[], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def locked(*_: Any) -> None:
        raise LakeLockedError("somebody holds the queue")

    monkeypatch.setattr(type(TABLE), "write", locked)
    with pinned(lake.config, Write("writing"), 0):
        noted_at_once()
    assert "somebody holds the queue" in caplog.text


def test_a_forked_child_knows_nothing_of_the_writes_of_its_parent(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "l")
    with pinned(lake.config, Write("writing"), 0):
        child = os.fork()
        if child == 0:
            os._exit(len(active_writes._WATCH._writes))
        assert os.waitpid(child, 0)[1] == 0
