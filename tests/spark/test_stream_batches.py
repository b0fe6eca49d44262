"""Batches of a stream: each change exactly once, whatever moves the rows, and a clear error where it stops."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import (
    ConfigError,
    HistoryExpiredError,
    SnapshotNotFoundError,
    StreamStoppedError,
    TableDroppedError,
)
from tests.support.backends import SQLITE, Backend, catalogs
from tests.support.lakes import MakeLake
from tests.support.stream_batches import StreamBatches, kept
from tests.support.table_steps import COMMON, MERGES, UPDATES, State, latest, replay, rows_of, run, state, step


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(rows_of((1, "a"), (2, "b"), (3, "c")), "t", mode="append")
    return lake


def append(lake: DuckLake, *keys: int) -> int:
    return lake.write(rows_of(*((key, "more") for key in keys)), "t", mode="append").snapshot_id


def keys(rows: Any) -> list[int]:
    return sorted(row[0] for row in rows)


# --- against a model -------------------------------------------------------------------------------------------------


@catalogs(sql_writes=True, quick=[SQLITE])
@pytest.mark.parametrize(
    ("limit", "more"), [(0, UPDATES), (10, UPDATES), (10, MERGES)], ids=["files", "inlined", "merged"]
)
@pytest.mark.parametrize("seed", [*range(2), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(2, 12))])
def test_streams_deliver_every_change_once_whatever_moves_the_rows(
    backend: Backend, make_lake: MakeLake, limit: int, more: list[str], seed: int
) -> None:
    rng = random.Random(f"{backend} {limit} {len(more)} {seed}")
    lake = make_lake(data_inlining_row_limit=limit)
    run(lake, "CREATE TABLE t (k BIGINT, v VARCHAR)")
    for number in range(4):
        step(lake, rng.choice(COMMON + more * 2), number * 20, rng.randrange(5))
    began = latest(lake)
    # Merges of the engine drop the ids of updated rows, by which limits divide the rows of the start.
    limits = [None] if more == MERGES else [None, 7, 50]
    streams = {
        "changes": StreamBatches(lake, start=0, changes=True, max_snapshots=rng.choice([None, 1, 3])),
        "replica": StreamBatches(lake, start="earliest", changes=True, max_rows=rng.choice(limits)),
        "inserts": StreamBatches(lake, start="earliest", on_update="ignore", max_rows=rng.choice(limits)),
        "upserts": StreamBatches(lake, start=began + 1, on_update="changes", max_snapshots=rng.choice([None, 2])),
    }
    for number in range(4, 14):
        step(lake, rng.choice(COMMON + more * 2), number * 20, rng.randrange(5))
        for stream in rng.sample(list(streams.values()), k=2):
            if rng.random() < 0.4:
                stream.restart()
            stream.read()
    for stream in streams.values():
        stream.restart()
        assert list(stream.rest()) is not None
        for start, end, rows in stream.batches:  # a batch that Spark reads again is the same
            assert Counter(map(repr, stream.rows(start, end))) == Counter(map(repr, rows))
    for name in ("changes", "replica"):
        replica: State = {}
        for _, _, batch in streams[name].batches:
            replay(replica, [(row[0], row[2], row[3], *row[6:]) for row in batch])
        assert replica == state(lake)
    feed = lake.changes("t", began + 1).to_pylist()
    delivered = {
        name: Counter(row for _, _, rows in stream.batches for row in rows) for name, stream in streams.items()
    }
    for name, wanted in (("inserts", {"insert"}), ("upserts", {"insert", "update_postimage"})):
        expected = Counter((change["k"], change["v"]) for change in feed if change["change_type"] in wanted)
        if name == "inserts":
            expected += Counter(tuple(row.values()) for row in lake.read("t", snapshot=began).to_pylist())
        assert delivered[name] == expected


# --- where a stream starts -------------------------------------------------------------------------------------------


def test_latest_delivers_what_is_committed_after_the_start(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    assert stream.read() is None
    append(lake, 4)
    append(lake, 5)
    assert keys(stream.rest()) == [4, 5]


def test_earliest_delivers_the_rows_in_batches_and_then_the_changes(lake: DuckLake) -> None:
    stream = StreamBatches(lake, start="earliest", max_rows=2)
    first = stream.read()
    append(lake, 4)
    lake.maintain({"merge": {"min_files": 2}}, operations=["flush", "merge"], tables=["t"])
    stream.restart()
    batches = [first, stream.read(), stream.read(), stream.read()]
    assert [keys(batch or []) for batch in batches] == [[1, 2], [3], [4], []]


def test_a_snapshot_or_a_time_starts_with_its_changes(lake: DuckLake) -> None:
    second = append(lake, 4)
    append(lake, 5)
    assert keys(StreamBatches(lake, start=second).rest()) == [4, 5]
    assert keys(StreamBatches(lake, start=0).rest()) == [1, 2, 3, 4, 5]
    time = next(snapshot.snapshot_time for snapshot in lake.snapshots() if snapshot.snapshot_id == second)
    assert keys(StreamBatches(lake, start=time).rest()) == [4, 5]
    assert StreamBatches(lake, start=latest(lake) + 1).read() is None
    with pytest.raises(ConfigError, match="is in the future"):
        StreamBatches(lake, start=datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(SnapshotNotFoundError, match="`start` = 1000 is no snapshot"):
        StreamBatches(lake, start=1000)


@pytest.mark.parametrize("start", ["latest", "earliest", 2])
@pytest.mark.parametrize("max_rows", [None, 2])
def test_the_first_batch_is_the_same_when_it_is_repeated_after_later_commits(
    lake: DuckLake, start: Any, max_rows: int | None
) -> None:
    stream = StreamBatches(lake, start=start, max_rows=max_rows)
    append(lake, 4)
    append(lake, 5)
    first = stream.read()
    append(lake, 6)
    # Spark does not keep where the first batch began, and asks again, also in another process.
    stream.restart()
    (_, end, _) = stream.batches[0]
    assert stream.rows(kept(stream.stream.first()), end) == first
    assert keys([*(first or []), *stream.rest()]) == ([1, 2, 3] if start == "earliest" else []) + [4, 5, 6]


# --- limits ----------------------------------------------------------------------------------------------------------


def test_limits_bound_batches_at_snapshots(lake: DuckLake) -> None:
    for key in range(10, 20):
        append(lake, key, key + 100)
    by_snapshots = StreamBatches(lake, start=2, max_snapshots=4)
    assert [len(batch) for batch in iter(by_snapshots.read, None) if batch is not None] == [8, 8, 4]
    by_files = StreamBatches(lake, start=2, max_files=3)
    assert [len(batch) for batch in iter(by_files.read, None) if batch is not None] == [6, 6, 6, 2]
    by_both = StreamBatches(lake, start=2, max_rows=3, max_files=3)
    assert [len(batch) for batch in iter(by_both.read, None) if batch is not None] == [2] * 10
    by_rows = StreamBatches(lake, start=2, max_rows=5)
    assert [len(batch) for batch in iter(by_rows.read, None) if batch is not None] == [4] * 5
    small = StreamBatches(lake, start=2, max_rows=1)
    assert [len(batch) for batch in iter(small.read, None) if batch is not None] == [2] * 10


def test_a_limit_of_files_divides_the_rows_of_the_start(lake: DuckLake) -> None:
    lake.set_option("data_inlining_row_limit", 0)
    for key in range(10, 15):
        append(lake, key, key + 100)
    stream = StreamBatches(lake, start="earliest", max_files=2)
    batches = [keys(batch) for batch in iter(stream.read, None) if batch is not None]
    assert [len(batch) for batch in batches] == [5, 4, 4]
    live = [row["k"] for row in lake.execute("SELECT k FROM t ORDER BY k").raise_for_error().rows]
    assert sorted(key for batch in batches for key in batch) == live


def test_a_query_that_ends_depends_on_no_old_snapshot_although_only_other_tables_change(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    for n in range(3):
        lake.write(rows_of((n, "")), "other", mode="append")
        stream.restart()
        stream.stream.stop_at_latest()
        assert list(stream.rest()) == []
        expire(lake)
    append(lake, 4)
    stream.restart()
    assert keys(stream.rest()) == [4]


def test_limits_of_rows_know_how_many_rows_of_a_merged_file_each_snapshot_added(lake: DuckLake) -> None:
    for key in range(10, 20):
        append(lake, key, key + 100)
    lake.maintain({"merge": {"min_files": 2}}, operations=["merge"], tables=["t"])
    stream = StreamBatches(lake, start=2, max_rows=5)
    sizes = [len(batch) for batch in iter(stream.read, None) if batch is not None]
    assert sum(sizes) == 20
    assert max(sizes) <= 6


def test_commits_to_other_tables_make_no_batches_until_there_are_many(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    for n in range(99):
        lake.write(rows_of((n, "")), "other", mode="append")
    assert stream.read() is None
    lake.write(rows_of((100, "")), "other", mode="append")
    assert stream.read() == []
    append(lake, 4)
    assert keys(stream.rest()) == [4]


# --- where a stream stops --------------------------------------------------------------------------------------------


def test_updates_stop_a_stream_of_inserts_after_what_was_inserted_before(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    append(lake, 4)
    update = lake.update("t", {"v": "'new'"}, "k = 1").snapshot_id
    append(lake, 5)
    assert keys(stream.read() or []) == [4]
    with pytest.raises(StreamStoppedError, match=rf"Snapshot {update} updated or deleted rows of `main\.t`"):
        stream.read()
    going_on = StreamBatches(lake, start=update, on_update="ignore")
    assert keys(going_on.rest()) == [5]
    assert keys(StreamBatches(lake, start=update, on_update="changes").rest()) == [1, 5]


@catalogs(sql_writes=True)
def test_rows_that_are_the_first_to_stay_in_the_catalog_are_delivered(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    lake.create_table("t", {"k": "BIGINT", "v": "VARCHAR"})
    lake.write(rows_of(*((n, "file") for n in range(20))), "t", mode="append")
    stream = StreamBatches(lake)
    run(lake, "INSERT INTO t VALUES (50, 'in the catalog')")
    assert keys(stream.rest()) == [50]
    run(lake, "DELETE FROM t WHERE k IN (3, 50)")
    assert keys(StreamBatches(lake, start="earliest", max_rows=6).rest()) == [n for n in range(20) if n != 3]


@catalogs(sql_writes=True)
def test_flushes_and_compactions_are_no_changes(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    run(lake, "CREATE TABLE t (k BIGINT, v VARCHAR)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    run(lake, "INSERT INTO t SELECT range, 'file' FROM range(10, 40)", "DELETE FROM t WHERE k IN (2, 10)")
    stream = StreamBatches(lake)
    run(lake, "CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_merge_adjacent_files('lake')")
    lake.maintain(operations=["flush", "rewrite", "merge"], tables=["t"])
    assert not list(stream.rest())
    append(lake, 50)
    assert keys(stream.rest()) == [50]


def test_rows_that_a_rewrite_moved_are_not_delivered_again_when_their_new_file_is_merged(lake: DuckLake) -> None:
    streams = [StreamBatches(lake), StreamBatches(lake, on_update="ignore"), StreamBatches(lake, changes=True)]
    lake.write(rows_of(*((key, "many") for key in range(10, 40))), "t", mode="append")
    lake.delete("t", "k >= 35")
    later = StreamBatches(lake)
    for key in (50, 51):
        lake.maintain({"rewrite": {"delete_threshold": 0.01}}, operations=["rewrite"], tables=["t"])
        append(lake, key)
        lake.maintain({"merge": {"min_files": 2}}, operations=["merge"], tables=["t"])
    assert keys(later.rest()) == [50, 51]
    with pytest.raises(StreamStoppedError):
        list(streams[0].rest())
    assert keys(streams[1].rest()) == [*range(10, 40), 50, 51]
    changes = list(streams[2].rest())
    assert Counter(row[3] for row in changes) == {"insert": 32, "delete": 5}


def test_many_deletions_around_rewrites_deliver_each_inserted_row_once(lake: DuckLake) -> None:
    stream = StreamBatches(lake, on_update="ignore")
    for key in range(100, 120):
        append(lake, key, key + 100)
        lake.delete("t", f"k = {key}")
        if key % 4 == 0:
            lake.maintain({"rewrite": {"delete_threshold": 0.01}}, operations=["rewrite"], tables=["t"])
    assert keys(stream.rest()) == [*range(100, 120), *range(200, 220)]


@catalogs(sql_writes=True)
def test_merges_of_the_engine_stop_a_stream_that_divides_rows_by_their_ids(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    for key in (1, 2, 3):
        append(lake, key)
    stream = StreamBatches(lake, start="earliest", max_rows=1)
    assert keys(stream.read() or []) == [1]
    run(lake, "CALL ducklake_merge_adjacent_files('lake')")
    with pytest.raises(StreamStoppedError, match="of another engine, merged files"):
        stream.read()


def test_new_columns_stop_a_stream_which_goes_on_with_them_when_it_is_started_again(lake: DuckLake) -> None:
    stream, following = StreamBatches(lake), StreamBatches(lake, schema_evolution="follow")
    append(lake, 4)
    lake.write(pa.table({"k": [5], "v": ["e"], "w": [1.5]}), "t", mode="append", schema_evolution="add")
    assert stream.read() == [(4, "more")]
    with pytest.raises(StreamStoppedError, match=r"changed the columns of `main\.t`"):
        stream.read()
    stream.restart()
    assert stream.read() == [(5, "e", 1.5)]
    assert sorted(following.rest()) == [(4, "more"), (5, "e")]
    # Changes from before a change of the columns have the new columns, too.
    assert sorted(StreamBatches(lake, start=0).rest())[0] == (1, "a", None)


def test_comments_and_defaults_do_not_stop_a_stream(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    lake.alter_table("t", column_comments={"k": "the key"}, set_defaults={"v": "?"})
    append(lake, 4)
    assert keys(stream.rest()) == [4]


def test_a_renamed_table_is_followed(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    lake.execute("ALTER TABLE t RENAME TO u").raise_for_error()
    lake.write(rows_of((4, "d")), "u", mode="append")
    assert keys(stream.rest()) == [4]


def test_a_dropped_table_ends_its_streams_although_a_new_table_has_its_name(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    lake.drop_table("t")
    with pytest.raises(TableDroppedError, match="was dropped while the stream followed it"):
        stream.read()
    append(lake, 7)
    stream.restart()
    with pytest.raises(TableDroppedError, match=r"of another table than `main\.t`"):
        stream.read()


def test_expired_changes_end_a_stream(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    for key in (4, 5, 6):
        append(lake, key)
    expire(lake)
    with pytest.raises(HistoryExpiredError, match="have expired"):
        stream.read()


def test_rows_that_are_not_all_delivered_are_not_left_out_when_their_snapshot_has_expired(lake: DuckLake) -> None:
    stream = StreamBatches(lake, start="earliest", max_rows=1)
    assert keys(stream.read() or []) == [1]
    lake.delete("t", "k = 3")
    expire(lake)
    with pytest.raises(HistoryExpiredError, match="has not delivered all rows"):
        stream.read()
    with pytest.raises(HistoryExpiredError, match="has not delivered all rows"):
        stream.rows(stream.offset, {**stream.offset, "row": 3})


def test_a_catalog_that_was_restored_from_a_backup_is_noticed(lake: DuckLake) -> None:
    stream = StreamBatches(lake)
    stream.offset = {**stream.offset, "snapshot": 1000}
    with pytest.raises(SnapshotNotFoundError, match="up to snapshot 1000, and the latest snapshot"):
        stream.read()


def test_maintenance_keeps_what_a_named_stream_still_needs(lake: DuckLake) -> None:
    stream = StreamBatches(lake, name="copy")
    for key in (4, 5, 6):
        append(lake, key)
    expire(lake)
    metrics = lake.health().lake.metrics
    assert (metrics["streams"], metrics["stream_lag"]) == (1, 3)
    assert keys(stream.rest()) == [4, 5, 6]
    append(lake, 7)
    expire(lake)  # what is delivered is no longer kept
    assert len(lake.snapshots()) == 2
    assert keys(stream.rest()) == [7]


def expire(lake: DuckLake) -> None:
    policy = {"expire": {"older_than": "0 s", "retain_last": 1}, "force": True}
    lake.maintain(policy, operations=["expire"])


# --- arguments -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"start": "erliest"}, "Did you mean `earliest`"),
        ({"start": -1}, "not a snapshot id"),
        ({"start": datetime(2026, 1, 1)}, "no time zone"),
        ({"on_update": "skip"}, "`on_update` = 'skip' is unknown"),
        ({"schema_evolution": "add"}, "`schema_evolution` = 'add' is unknown"),
        ({"changes": True, "on_update": "ignore"}, "cannot be combined"),
        ({"max_rows": 0}, "not a positive number"),
        ({"max_files": 0}, "`max_files_per_batch` = 0 is not a positive number"),
        ({"max_snapshots": True}, "not a positive number"),
        ({"name": " "}, "not a name"),
    ],
)
def test_wrong_arguments_are_refused(lake: DuckLake, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        StreamBatches(lake, **arguments)


def test_a_checkpoint_of_another_source_is_refused(lake: DuckLake) -> None:
    with pytest.raises(ConfigError, match="of another source"):
        StreamBatches(lake).stream.next({"partition-0": 7}, limited=True)
