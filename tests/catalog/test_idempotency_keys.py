"""What an idempotency key identifies, which keys can be stored, and how long they are kept."""

import time
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, LakeConfig, errors
from ducklake_orch.catalog.commit.idempotency import LastCommit, last_commit, last_commits
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from tests.catalog.fsck.damage import damage
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import once_at
from tests.support.refusals import refused

ROWS = pa.table({"i": [1, 2, 3]})


def append_with_key(lake: DuckLake, key: str, table: str = "t") -> bool:
    """Append rows with a key, and return whether that is a replay."""
    return lake.write(ROWS, table, mode="append", idempotency_key=key).replayed


@catalogs()
def test_a_key_identifies_a_write_to_one_table(lake: DuckLake) -> None:
    for table in ("t", "u"):
        lake.write(ROWS, table, mode="append")
    assert [append_with_key(lake, "k", table) for table in ("t", "u", "t", "u")] == [False, False, True, True]
    assert [lake.table(table).count() for table in ("t", "u")] == [6, 6]


@catalogs()
def test_the_first_key_of_a_lake_may_be_that_of_one_table_of_a_stage(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    stage.write(ROWS, "t", mode="append")
    stage.write(ROWS, "u", mode="append", idempotency_key="k")
    stage.publish()
    assert [append_with_key(lake, "k", table) for table in ("t", "u")] == [False, True]


@on_sqlite
def test_the_key_of_a_transaction_is_stored_without_a_table(lake: DuckLake) -> None:
    """An earlier version may have stored it: another number would commit the transaction twice."""
    with lake.transaction(idempotency_key="k") as tx:
        tx.write(ROWS, "t", mode="append")
    with lake.connect_metadata() as con:
        assert con.execute("SELECT table_id FROM ducklake_orch_commits").fetchall() == [(-1,)]


@catalogs()
def test_keys_that_differ_in_one_byte_differ(lake: DuckLake) -> None:
    keys = ["a", "A", "a ", "á", "a\\", "a'", "k" * 1023, "k" * 1024, "é" * 512]
    assert [append_with_key(lake, key) for key in keys + keys] == [False] * len(keys) + [True] * len(keys)


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("key", ["", "k" * 1025, "é" * 513, "a\0b", "a\ud800b"])
def test_a_key_that_cannot_be_stored_is_refused(lake: DuckLake, key: str) -> None:
    lake.create_table("t", {"i": "BIGINT"})
    for work in (
        lambda: append_with_key(lake, key),
        lambda: lake.merge(ROWS, "t", keys=["i"], idempotency_key=key),
        lambda: lake.delete("t", "true", idempotency_key=key),
        lambda: lake.update("t", {"i": "1"}, idempotency_key=key),
        lambda: lake.add_files("t", [], idempotency_key=key),
        lambda: lake.transaction(idempotency_key=key).__enter__(),
        lambda: lake.stage("nightly").write(ROWS, "t", mode="append", idempotency_key=key),
    ):
        refused(errors.ConfigError, work, "1 to 1024 bytes")
    assert lake.table("t").count() == 0


@catalogs(quick=[SQLITE])
def test_a_replay_warns_of_removed_rows_of_its_own_table_only(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    for table in ("t", "u"):
        append_with_key(lake, "k", table)
    lake.write(ROWS, "t", mode="append")
    removed = lake.delete("u", "i = 1")
    assert append_with_key(lake, "k", "t")
    assert "has removed rows since" not in caplog.text
    assert append_with_key(lake, "k", "u")
    assert f"snapshot {removed.snapshot_id} has removed rows since" in caplog.text


@catalogs(quick=[SQLITE])
def test_a_replay_names_the_first_later_snapshot_that_removed_rows(
    lake: DuckLake, caplog: pytest.LogCaptureFixture
) -> None:
    lake.write(ROWS, "t", mode="append")
    lake.delete("t", "i = 1")
    stage = lake.stage("nightly")
    stage.write(ROWS, "t", mode="append", idempotency_key="k")
    stage.delete("t", "i = 2")
    stage.publish()
    assert append_with_key(lake, "k")
    assert "has removed rows since" not in caplog.text
    first = lake.delete("t", "i = 1").snapshot_id
    lake.delete("t", "i = 3")
    assert append_with_key(lake, "k")
    assert f"snapshot {first} has removed rows since" in caplog.text


@catalogs(quick=[SQLITE])
def test_a_replay_of_a_key_that_is_committed_during_the_write_warns_of_removed_rows(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.write(ROWS, "t", mode="append")

    removed = list[int | None]()

    def rival() -> None:
        append_with_key(lake, "k")
        removed.append(lake.delete("t", "i = 1").snapshot_id)

    once_at(monkeypatch, "files.written", rival)
    assert append_with_key(lake, "k")
    assert f"snapshot {removed[0]} has removed rows since" in caplog.text
    assert lake.read("t").sort_by("i").to_pydict() == {"i": [2, 2, 3, 3]}


@catalogs()
def test_a_write_forgets_the_keys_of_its_table_that_are_older_than_keep_keys(lake: DuckLake) -> None:
    for table, key in [("t", "a"), ("t", "b"), ("u", "a")]:
        append_with_key(lake, key, table)
    age = int(lake.config.keep_keys.total_seconds()) + 60
    damage(lake, f"UPDATE ducklake_orch_commits SET committed_at = committed_at - {age} WHERE snapshot_id <> 2")
    assert append_with_key(lake, "a"), "an old key is found until it is forgotten"
    append_with_key(lake, "new")
    assert [append_with_key(lake, key, table) for table, key in [("t", "b"), ("u", "a"), ("t", "a")]] == [
        True,
        True,
        False,
    ]


def last_of(lake: DuckLake, table: str, begin: str) -> tuple[LastCommit | None, int]:
    return last_commit(open_session(lake.config), TableName("main", table), begin)


@catalogs()
def test_the_last_commit_to_a_table_is_that_of_its_last_matching_key(lake: DuckLake) -> None:
    for table in ("t", "u"):
        written = lake.write(ROWS, table, mode="append")
    with lake.connect_metadata() as con:
        ids = [row[0] for row in con.execute("SELECT table_id FROM ducklake_table ORDER BY table_name").fetchall()]
    assert last_of(lake, "t", "") == (None, written.snapshot_id)
    assert last_commits(open_session(lake.config), ids, "") == {}

    began = int(time.time())
    for table, key in [("t", "a:2"), ("t", "a:1"), ("t", "b:3"), ("u", "a:4")]:
        written = lake.write(ROWS, table, mode="append", idempotency_key=key)
    last, snapshot = last_of(lake, "t", "a:")
    assert last is not None
    assert (last.key, snapshot) == ("a:1", written.snapshot_id)
    assert began - 2 <= last.committed_at <= time.time() + 2
    assert last_of(lake, "t", "c:") == (None, snapshot)
    assert last_of(lake, "missing", "a:") == (None, snapshot)

    assert last_commits(open_session(lake.config), ids[:1], "a:") == {ids[0]: last}
    found = last_commits(open_session(lake.config), ids, "")
    assert {table_id: commit.key for table_id, commit in found.items()} == dict(zip(ids, ["b:3", "a:4"], strict=True))
    assert last_commits(open_session(lake.config), [], "") == {}


def test_a_lake_that_does_not_exist_has_no_last_commit(tmp_path: Path) -> None:
    missing = LakeConfig(name="lake", catalog=f"sqlite:///{tmp_path}/missing.db", storage=str(tmp_path / "files"))
    assert last_commit(open_session(missing), TableName("main", "t"), "") == (None, 0)
