"""Processes change rows in shared files, by us and by the engine, during maintenance: no row is lost or duplicated."""

import multiprocessing
import time
from collections import Counter
from functools import partial
from typing import Any

import pytest

from ducklake_orch import DuckLake, LakeConfig, MaintenancePolicy
from ducklake_orch.engine.session import open_session
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.row_worker import WORKERS, Model, Worker, rows_by_id


def work(config: LakeConfig, number: int, seed: int, seconds: float) -> tuple[Model, Counter[str]]:
    """Change rows for some seconds; return the final rows, and how often each operation ran."""
    worker, end = Worker(config, number, seed), time.monotonic() + seconds
    while time.monotonic() < end:
        worker.step()
    return worker.rows, worker.done


def maintain(config: LakeConfig, stop: Any) -> int:
    """Flush, rewrite and merge until told to stop, by us and by the engine; return the number of runs."""
    lake, times = DuckLake(config), 0
    policy = MaintenancePolicy.model_validate({"rewrite": {"delete_threshold": 0.1}, "merge": {"min_files": 2}})
    while not stop.is_set():
        report = lake.maintain(policy)
        assert report.status == "ok", str(report)
        if config.catalog.type != "mysql":  # the engine cannot rewrite there
            # Without the lock, the engine corrupts history by deletions in the catalog between flush and rewrite.
            with open_session(config) as session, session.queue("maintenance"):
                session.con.execute("CALL ducklake_flush_inlined_data('lake', table_name => 't')")
                session.con.execute("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0.1)")
            lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
        times += 1
        time.sleep(0.5)
    return times


def soak(lake: DuckLake, seconds: float, seed: int = 1) -> None:
    lake.execute("CREATE TABLE t (id BIGINT, v BIGINT)").raise_for_error()
    start = lake.snapshots(limit=1)[0].snapshot_id
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(WORKERS + 1) as pool:
        stop = manager.Event()
        upkeep = pool.apply_async(maintain, (lake.config, stop))
        run = partial(work, lake.config, seed=seed, seconds=seconds)
        try:
            found = pool.map(run, range(WORKERS), chunksize=1)
        finally:
            stop.set()
        times = upkeep.get()
    done = sum((counts for _, counts in found), Counter[str]())
    print(f"\n{lake.config.catalog.type}, seed {seed}: {dict(sorted(done.items()))}, maintained {times} times")
    rows = {id_: value for model, _ in found for id_, value in model.items()}
    assert rows_by_id(lake.read("t")) == rows
    assert {row["id"]: row["v"] for row in lake.execute("FROM t", max_rows=None).rows} == rows
    assert lake.table("t").count() == len(rows)
    assert _rows_from_feed(lake, start) == rows
    assert lake.fsck(deep=True, storage=True).findings == []


def _rows_from_feed(lake: DuckLake, start: int) -> Model:
    """Return the rows that result from applying the change feed to an empty table."""
    rows: Model = {}
    changes = lake.changes("t", start).sort_by([("snapshot_id", "ascending")]).to_pylist()
    for change in sorted(changes, key=lambda change: (change["snapshot_id"], change["change_type"] not in _REMOVALS)):
        if change["change_type"] in _REMOVALS:
            assert rows.pop(change["id"]) == change["v"], change
        else:
            assert change["id"] not in rows, change
            rows[change["id"]] = change["v"]
    return rows


_REMOVALS = ("delete", "update_preimage")


@catalogs(quick=[SQLITE, POSTGRES])
def test_concurrent_changes_of_rows_in_shared_files_lose_no_row(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 15)


@pytest.mark.soak
@pytest.mark.timeout(1200)
@catalogs()
def test_concurrent_changes_of_rows_in_shared_files_lose_no_row_for_minutes(make_lake: MakeLake) -> None:
    soak(make_lake("lake"), 300)
