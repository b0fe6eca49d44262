"""Results tell where the time of a verb went."""

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.session import open_session
from ducklake_orch.results import WriteResult
from tests.support.backends import catalogs

ROWS = pa.table({"id": [1, 2, 3], "v": ["a", "b", "c"]})
VERBS: dict[str, Callable[[DuckLake], WriteResult]] = {
    "write": lambda lake: lake.write(ROWS, "t", mode="append"),
    "update": lambda lake: lake.update("t", {"v": "'x'"}, "id = 1"),
    "delete": lambda lake: lake.delete("t", "id = 2"),
    "merge": lambda lake: lake.merge(ROWS, "t", keys=["id"]),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_phases_of_a_verb_add_up_to_no_more_than_its_duration(
    verb: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(ROWS, "t", mode="overwrite", inline="never")
    with caplog.at_level(logging.INFO, "ducklake_orch"):
        result = VERBS[verb](lake)
    timings = result.timings
    assert min(timings.plan_s, timings.files_s, timings.commit_s) > 0
    assert timings.plan_s + timings.wait_s + timings.files_s + timings.commit_s <= result.duration_s
    assert f"{result} ({timings})" in caplog.messages


@catalogs(shared=True)
def test_the_time_of_another_writers_commit_is_waiting(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="overwrite")
    holds, ends = threading.Event(), threading.Event()

    def hold() -> None:
        with open_session(lake.config) as session, session.queue("a long commit"):
            holds.set()
            ends.wait(30)

    def batches() -> Iterator[pa.RecordBatch]:
        threading.Timer(0.3, ends.set).start()
        yield from ROWS.to_batches()

    holder = threading.Thread(target=hold)
    holder.start()
    holds.wait(30)
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, batches())
    result = lake.write(reader, "t", mode="append", inline="never")
    holder.join()
    assert result.timings.wait_s > 0.1
    assert result.timings.commit_s < result.duration_s - result.timings.wait_s
