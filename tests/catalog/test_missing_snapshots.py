"""A snapshot that does not exist: every verb says the same, and tells an expired one from one that never existed."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import HistoryExpiredError, SnapshotNotFoundError
from tests.support.backends import DUCKDB, POSTGRES, SQLITE, catalogs, on_sqlite
from tests.support.refusals import refused

ROWS = pa.table({"i": [1]})
LISTED = "`ducklake-orch snapshots` lists them."
VERBS: dict[str, Callable[[DuckLake, int], Any]] = {
    "read": lambda lake, snapshot: lake.read("t", snapshot=snapshot),
    "tables": lambda lake, snapshot: lake.tables(snapshot=snapshot),
    "files": lambda lake, snapshot: lake.table("t").files(snapshot=snapshot),
    "schema": lambda lake, snapshot: lake.table("t").schema(snapshot=snapshot),
    "execute": lambda lake, snapshot: lake.execute("FROM t", snapshot=snapshot),
    "changes": lambda lake, snapshot: lake.changes("t", to_snapshot=snapshot),
    "rollback": lambda lake, snapshot: lake.rollback("t", snapshot),
}
# Their messages begin with what has failed.
NAMED: dict[str, Callable[[DuckLake, int], Any]] = {
    "Command 1 failed: ": lambda lake, snapshot: lake.execute(
        ["SELECT 1", f"FROM t AT (VERSION => {snapshot})"]
    ).raise_for_error(),
    "`expect_snapshot`: ": lambda lake, snapshot: lake.write(ROWS, "t", mode="overwrite", expect_snapshot=snapshot),
}


def connected(lake: DuckLake, snapshot: int) -> None:
    with lake.connect(snapshot=snapshot):
        raise AssertionError("the block must not run")


@catalogs(sql_writes=True, quick=[DUCKDB, SQLITE, POSTGRES])
def test_every_verb_says_the_same_of_a_missing_snapshot(lake: DuckLake) -> None:
    lake.execute("SELECT 1")  # snapshot 0: the lake
    latest = [lake.write(ROWS, "t", mode="append").snapshot_id for _ in range(4)][-1]
    verbs = {"": connected, **VERBS, **NAMED}
    never = f"There is no snapshot 99: the snapshots are 0 to {latest}. {LISTED}"
    for name, verb in verbs.items():
        begin = name if name in NAMED else ""
        assert refused(SnapshotNotFoundError, partial(verb, lake, 99)) == begin + never
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [0, 1])", force=True).raise_for_error()
    first = lake.snapshots()[-1].snapshot_id
    expired = f"Snapshot 1 has expired: the snapshots are {first} to {latest}. {LISTED}"
    for name, verb in verbs.items():
        begin = name if name in NAMED else ""
        assert refused(HistoryExpiredError, partial(verb, lake, 1)) == begin + expired
    assert lake.read("t").num_rows == 4


@on_sqlite
def test_the_error_names_gaps_and_a_single_snapshot(lake: DuckLake) -> None:
    for _ in range(4):
        lake.write(ROWS, "t", mode="append")
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [0, 2, 3])", force=True).raise_for_error()
    with pytest.raises(HistoryExpiredError, match=r"Snapshot 2 has expired: the snapshots are 1 to 4, with gaps\."):
        lake.rollback("t", 2)
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [1])", force=True).raise_for_error()
    with pytest.raises(SnapshotNotFoundError, match="There is no snapshot 5: the only snapshot is 4"):
        lake.read("t", snapshot=5)


TIMES: dict[str, Callable[[DuckLake, datetime], Any]] = {
    "read": lambda lake, time: lake.read("t", as_of=time),
    "execute": lambda lake, time: lake.execute("FROM t", as_of=time),
    "changes": lambda lake, time: lake.changes("t", to_time=time),
    "SQL": lambda lake, time: lake.execute(f"FROM t AT (TIMESTAMP => '{time.isoformat()}')").raise_for_error(),
}


@on_sqlite
@pytest.mark.parametrize("verb", TIMES)
def test_a_time_before_the_first_snapshot_names_that_one(lake: DuckLake, verb: str) -> None:
    read = TIMES[verb]
    for _ in range(2):
        lake.write(ROWS, "t", mode="append")
    early = datetime(2004, 5, 6, tzinfo=UTC)
    times = {snapshot.snapshot_id: f"{snapshot.snapshot_time:%Y-%m-%d %H:%M:%S}" for snapshot in lake.snapshots()}
    refused(
        SnapshotNotFoundError,
        lambda: read(lake, early),
        "There is no snapshot of 2004-05-06",
        f"the first one is 0, of {times[0]}",
        LISTED,
    )
    lake.execute("CALL ducklake_expire_snapshots('lake', versions => [0])", force=True).raise_for_error()
    refused(
        HistoryExpiredError,
        lambda: read(lake, early),
        "No snapshot of 2004-05-06",
        "or before is retained",
        f"the oldest one is 1, of {times[1]}",
    )
