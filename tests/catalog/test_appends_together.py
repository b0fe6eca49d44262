"""Appends of few rows by threads that wait for each other: one transaction, but own snapshots, keys and results."""

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from ducklake_orch.catalog.commit import consecutive_snapshots
from ducklake_orch.engine import instances
from ducklake_orch.engine import session as sessions
from ducklake_orch.engine.fault_points import actions
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import FaultProxy
from tests.support.backends import DUCKDB, LOCAL, POSTGRES, SQLITE, Backend, catalogs
from tests.support.fault_points import dies_at, once_at
from tests.support.lakes import Servers
from tests.support.stored_tables import nothing_left_over, rows
from tests.support.waiting_appends import Outcome, in_threads

# MySQL inlines no rows of tables that are created with rows.
CATALOGS = [Backend(catalog, LOCAL) for catalog in (SQLITE, DUCKDB, POSTGRES)]
inlining_catalogs = pytest.mark.parametrize("backend", CATALOGS, ids=str, indirect=True)


def numbers(*values: int) -> pa.Table:
    return pa.table({"i": pa.array(values, pa.int64()), "p": [f"p{value % 2}" for value in values]})


def append(lake: DuckLake, data: pa.Table, key: str | None = None, **more: Any) -> Callable[[], Any]:
    return lambda: lake.write(data, "t", mode="append", inline="auto", idempotency_key=key, **more)


def together(lake: DuckLake, *appends: Callable[[], Any]) -> list[Outcome]:
    return in_threads(lake, "t", *appends)


def append_files(lake: DuckLake, data: pa.Table, key: str | None = None, **more: Any) -> Callable[[], Any]:
    return lambda: lake.write(data, "t", mode="append", idempotency_key=key, **more)


def files_together(lake: DuckLake, *appends: Callable[[], Any]) -> list[Outcome]:
    return in_threads(lake, "t", *appends, inlined=False)


@dataclass(frozen=True)
class Kind:
    """How rows are stored: inlined in the catalog or in files."""

    files: bool

    def append(self, *args: Any, **more: Any) -> Callable[[], Any]:
        return (append_files if self.files else append)(*args, **more)

    def together(self, lake: DuckLake, *appends: Callable[[], Any]) -> list[Outcome]:
        return in_threads(lake, "t", *appends, inlined=not self.files)


kinds = pytest.mark.parametrize("kind", [Kind(files=False), Kind(files=True)], ids=["inlined", "files"])


@pytest.fixture
def lake(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> DuckLake:
    """A lake with a table that has inlined rows."""
    lake.write(numbers(0), "t", mode="append")
    lake.write(numbers(1), "t", mode="append", inline="auto", idempotency_key="before")
    return lake


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many appends each commit of several appends had."""
    sizes: list[int] = []
    commit = consecutive_snapshots._commit

    def counted(*args: Any) -> Any:
        sizes.append(len(args[-1]))
        return commit(*args)

    monkeypatch.setattr(consecutive_snapshots, "_commit", counted)
    return sizes


def added(lake: DuckLake, snapshot: int) -> list[int]:
    """Return the numbers that a snapshot added, as the engine reads them."""
    before = f"SELECT i FROM t AT (VERSION => {snapshot - 1})"
    return sorted(row[0] for row in rows(lake, f"SELECT i FROM t AT (VERSION => {snapshot}) EXCEPT ALL {before}"))


@inlining_catalogs
def test_each_append_has_its_own_snapshot_key_and_result(lake: DuckLake, groups: list[int]) -> None:
    first = lake.snapshots(limit=1)[0].snapshot_id + 1
    results = together(
        lake,
        append(lake, numbers(10, 11), "a", commit=CommitInfo(author="ann", message="tens", extra={"run": 1})),
        append(lake, numbers(20), "b", commit=CommitInfo(author="bob", message="twenties")),
        append(lake, numbers(30, 31, 32), commit=CommitInfo(author="cy", message='it\'s \\ "odd"')),
    )
    assert groups == [3]
    assert [result.snapshot_id for result in results] == [first, first + 1, first + 2]
    assert [result.previous_snapshot_id for result in results] == [first - 1, first, first + 1]
    assert [result.rows_written for result in results] == [2, 1, 3]
    assert [(result.files_added, result.replayed, result.mode) for result in results] == [(0, False, "append")] * 3
    assert [added(lake, result.snapshot_id) for result in results] == [[10, 11], [20], [30, 31, 32]]
    newest = lake.snapshots(limit=3)
    assert [(one.author, one.message) for one in newest] == [
        ("cy", 'it\'s \\ "odd"'),
        ("bob", "twenties"),
        ("ann", "tens"),
    ]
    assert all(one.changes == ["inlined_insert:1"] for one in newest)
    assert [append(lake, numbers(99), key)().snapshot_id for key in "ab"] == [first, first + 1]
    assert lake.table("t").count() == 8
    assert len({row[0] for row in rows(lake, "SELECT rowid FROM t")}) == 8
    assert lake.fsck(deep=True, storage=True).findings == []
    lake.execute(f"CALL ducklake_flush_inlined_data('{lake.config.alias}')").raise_for_error()
    assert [added(lake, result.snapshot_id) for result in results] == [[10, 11], [20], [30, 31, 32]]


@inlining_catalogs
@kinds
def test_keys_of_another_table_do_not_count(lake: DuckLake, groups: list[int], kind: Kind) -> None:
    for key in "ab":
        lake.write(numbers(9), "u", mode="append", idempotency_key=key)
    results = kind.together(lake, kind.append(lake, numbers(10), "a"), kind.append(lake, numbers(20), "b"))
    assert (groups, [result.replayed for result in results]) == ([2], [False, False])
    assert [added(lake, result.snapshot_id) for result in results] == [[10], [20]]


@inlining_catalogs
def test_results_name_the_partitions_as_those_of_single_appends_do(lake: DuckLake, groups: list[int]) -> None:
    lake.write(numbers(1, 2), "t", mode="append", inline="auto")
    lake.alter_table("t", partition_by=["p"])
    alone = [append(lake, data)() for data in (numbers(1, 2, 3), numbers(4))]
    results = together(lake, append(lake, numbers(1, 2, 3)), append(lake, numbers(4)))
    assert groups == [2]
    by_values = [sorted(result.partitions, key=repr) for result in results]
    assert by_values == [sorted(result.partitions, key=repr) for result in alone]


@inlining_catalogs
def test_rows_that_do_not_fit_fail_alone(lake: DuckLake, groups: list[int]) -> None:
    wider = numbers(12).append_column("q", pa.array([1]))
    results = together(lake, append(lake, numbers(10)), append(lake, wider), append(lake, numbers(11)))
    assert isinstance(results[1], errors.DataError)
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(0,), (1,), (10,), (11,)]
    assert groups == [2]


@inlining_catalogs
def test_a_value_that_cannot_be_stored_fails_alone(lake: DuckLake) -> None:
    lake.execute("CREATE OR REPLACE TABLE t (i BIGINT NOT NULL, p VARCHAR)").raise_for_error()
    append(lake, numbers(1))()
    nothing = pa.table({"i": pa.array([None], pa.int64()), "p": ["x"]})
    results = together(lake, append(lake, numbers(2)), append(lake, nothing), append(lake, numbers(3)))
    assert isinstance(results[1], errors.DataError)
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(1,), (2,), (3,)]


@inlining_catalogs
def test_committed_keys_are_replayed_beside_new_ones(lake: DuckLake, groups: list[int]) -> None:
    results = together(
        lake,
        append(lake, numbers(10), "a"),
        append(lake, numbers(1), "before"),
        append(lake, numbers(11), "b"),
        append(lake, numbers(10), "a"),
    )
    assert [result.replayed for result in results] == [False, True, False, True]
    assert results[3].snapshot_id == results[0].snapshot_id
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(0,), (1,), (10,), (11,)]
    assert groups == [3, 2]


@inlining_catalogs
def test_appends_follow_a_change_of_the_table(lake: DuckLake, groups: list[int]) -> None:
    together(lake, append(lake, numbers(10)), append(lake, numbers(11)))
    lake.alter_table("t", add_columns={"w": "int64"})
    together(lake, append(lake, numbers(12)), append(lake, numbers(13)))
    assert rows(lake, "SELECT i, w FROM t WHERE i > 9 ORDER BY i") == [(n, None) for n in (10, 11, 12, 13)]
    set_limit = f"CALL {lake.config.alias}.set_option('data_inlining_row_limit', 0, table_name => 't')"
    lake.execute(set_limit).raise_for_error()
    results = together(lake, append(lake, numbers(14)), append(lake, numbers(15)))
    assert [result.files_added for result in results] == [1, 1]
    lake.drop_table("t")
    results = together(lake, append(lake, numbers(16)), append(lake, numbers(17)))
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(16,), (17,)]
    assert lake.fsck(deep=True, storage=True).findings == []


@inlining_catalogs
def test_a_change_between_plan_and_commit_is_followed(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    together(lake, append(lake, numbers(10)), append(lake, numbers(11)))
    once_at(monkeypatch, "files.written", lambda: lake.alter_table("t", rename_columns={"p": "q"}))
    results = together(lake, append(lake, numbers(12)), append(lake, numbers(13)))
    assert [type(result) for result in results] == [errors.DataError, errors.DataError]
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(0,), (1,), (10,), (11,)]


# --- files -----------------------------------------------------------------------------------------------------------


@catalogs()
def test_files_of_several_appends_are_committed_as_own_snapshots(lake: DuckLake, groups: list[int]) -> None:
    first = lake.snapshots(limit=1)[0].snapshot_id + 1
    results = files_together(
        lake,
        append_files(lake, numbers(10, 11), "a", commit=CommitInfo(author="ann")),
        append_files(lake, numbers(20), commit=CommitInfo(author="bob")),
        append_files(lake, numbers(30, 31, 32), "c"),
    )
    assert groups == [3]
    assert [(result.snapshot_id, result.previous_snapshot_id) for result in results] == [
        (first + n, first + n - 1) for n in range(3)
    ]
    assert [(result.rows_written, result.files_added, result.attempts) for result in results] == [
        (2, 1, 1),
        (1, 1, 1),
        (3, 1, 1),
    ]
    assert all(result.bytes_written > 0 for result in results)
    assert [added(lake, result.snapshot_id) for result in results] == [[10, 11], [20], [30, 31, 32]]
    assert [one.author for one in lake.snapshots(limit=3)] == [None, "bob", "ann"]
    assert [one.changes for one in lake.snapshots(limit=3)] == [["inserted_into_table:1"]] * 3
    assert append_files(lake, numbers(99), "c")().snapshot_id == first + 2
    assert len({row[0] for row in rows(lake, "SELECT rowid FROM t")}) == 8
    nothing_left_over(lake)
    assert lake.fsck(deep=True).findings == []


@catalogs()
def test_files_of_partitioned_tables_are_committed_together(lake: DuckLake, groups: list[int]) -> None:
    lake.alter_table("t", partition_by=["p"])
    alone = [append_files(lake, data)() for data in (numbers(1, 2, 3), numbers(4))]
    results = files_together(lake, append_files(lake, numbers(1, 2, 3)), append_files(lake, numbers(4)))
    assert groups == [2]
    assert [result.files_added for result in results] == [2, 1]
    for result, expected in zip(results, alone, strict=True):
        assert sorted(result.partitions, key=repr) == sorted(expected.partitions, key=repr)
    assert rows(lake, "SELECT i FROM t WHERE p = 'p0' ORDER BY i") == [(0,), (2,), (2,), (4,), (4,)]
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs()
def test_files_with_committed_keys_are_replayed_and_deleted(lake: DuckLake, groups: list[int]) -> None:
    results = files_together(
        lake,
        append_files(lake, numbers(10), "a"),
        append_files(lake, numbers(1), "before"),
        append_files(lake, numbers(11), "b"),
        append_files(lake, numbers(10), "a"),
    )
    assert [result.replayed for result in results] == [False, True, False, True]
    assert results[3].snapshot_id == results[0].snapshot_id
    assert [row[0] for row in rows(lake, "SELECT i FROM t ORDER BY i")] == [0, 1, 10, 11]
    assert groups in ([3, 2], [2])
    nothing_left_over(lake)


@catalogs()
def test_files_follow_a_change_of_the_table(lake: DuckLake) -> None:
    append_files(lake, numbers(9))()

    def change() -> None:
        lake.alter_table("t", add_columns={"w": "int64"})

    outcomes = files_together(lake, append_files(lake, numbers(10)), append_files(lake, numbers(11)), change)
    assert [result.rows_written for result in outcomes[:2]] == [1, 1]
    assert rows(lake, "SELECT i, w FROM t WHERE i > 8 ORDER BY i") == [(9, None), (10, None), (11, None)]
    lake.drop_table("t")
    assert append_files(lake, numbers(12))().rows_written == 1
    assert rows(lake, "SELECT i FROM t") == [(12,)]
    nothing_left_over(lake)


# --- failures --------------------------------------------------------------------------------------------------------


def interrupt() -> None:
    raise KeyboardInterrupt


@inlining_catalogs
@kinds
@pytest.mark.parametrize("point", ["commit.before", "commit.after"])
def test_an_interrupted_thread_neither_loses_nor_doubles_rows_of_others(
    lake: DuckLake, kind: Kind, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_at(monkeypatch, point, interrupt)
    work = [kind.append(lake, numbers(value), key) for value, key in ((10, None), (11, "a"), (12, None))]
    results = kind.together(lake, *work)
    assert isinstance(results[0], KeyboardInterrupt)
    assert all(isinstance(result, errors.UnknownOutcomeError) for result in results[1:])
    assert work[1]().replayed == (point == "commit.after")
    committed = [(10,), (11,), (12,)] if point == "commit.after" else [(11,)]
    assert rows(lake, "SELECT i FROM t WHERE i > 9 ORDER BY i") == committed
    assert kind.append(lake, numbers(13))().rows_written == 1


@inlining_catalogs
@kinds
def test_an_interrupt_after_the_commit_leaves_each_append_once(
    lake: DuckLake, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupts = interrupt_once_after_commit(monkeypatch)
    results = kind.together(lake, *[kind.append(lake, numbers(value)) for value in (10, 11, 12)])
    assert interrupts == [None]
    assert isinstance(results[0], KeyboardInterrupt)
    assert [added(lake, result.snapshot_id) for result in results[1:]] == [[11], [12]]
    assert rows(lake, "SELECT i FROM t WHERE i > 9 ORDER BY i") == [(10,), (11,), (12,)]
    nothing_left_over(lake)
    gc.collect()  # streams that earlier tests have not read to their end
    assert sum(instances.pool._leased.values()) == 0


def interrupt_once_after_commit(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """Interrupt the thread that commits for others once, when it closes its session."""
    prepare, commit = sessions._prepare_for_reuse, consecutive_snapshots.commit_metadata
    threads, interrupts = list[int](), list[None]()

    def committed(*args: Any, **more: Any) -> Any:
        result = commit(*args, **more)
        threads.append(get_ident())
        return result

    def interrupted(session: sessions.Session) -> bool:
        kept = prepare(session)
        if get_ident() in threads and not interrupts:
            interrupts.append(None)
            raise KeyboardInterrupt
        return kept

    monkeypatch.setattr(consecutive_snapshots, "commit_metadata", committed)
    monkeypatch.setattr(sessions, "_prepare_for_reuse", interrupted)
    return interrupts


@inlining_catalogs
def test_dictionaries_that_cannot_be_joined_are_appended_one_by_one(lake: DuckLake) -> None:
    def words(number: int) -> pa.Table:
        values = [f"{number}-{n}" for n in range(9)]
        return pa.table({"p": pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(values))})

    results = together(lake, *[append(lake, words(number)) for number in range(20)])
    assert [result.rows_written for result in results] == [1] * 20
    assert lake.table("t").count() == 22


@inlining_catalogs
@kinds
def test_a_killed_process_commits_all_or_nothing(lake: DuckLake, kind: Kind) -> None:
    for statement in itertools.count():
        point = f"statement.{statement}" if statement else "commit.after"
        mine = [100 * statement + number for number in (10, 11, 12)]
        work = [kind.append(lake, numbers(number), f"key of {number}") for number in mine]
        killed = dies_at(point, partial(kind.together, lake, *work))
        assert added_of(lake, mine) in ([], mine)
        assert [result.rows_written for result in kind.together(lake, *work)] in ([1, 1, 1], [0, 0, 0])
        assert added_of(lake, mine) == mine
        if not killed:
            break
    assert statement > 1
    assert lake.fsck(deep=True).findings == []


def added_of(lake: DuckLake, wanted: list[int]) -> list[int]:
    found = rows(lake, f"SELECT i FROM t WHERE i BETWEEN {wanted[0]} AND {wanted[-1]} ORDER BY i")
    return [row[0] for row in found]


@pytest.fixture
def proxied(servers: Servers, tmp_path: Path) -> Iterator[tuple[DuckLake, DuckLake, FaultProxy]]:
    server = servers.get(PostgresServer)
    database = f"together_{uuid4().hex[:8]}"
    server.create_database(database)
    url, files = server.url(database), str(tmp_path / "files")
    direct = DuckLake.from_url("lake", catalog=url, storage=files, create_if_missing=True)
    direct.write(numbers(0), "t", mode="append")
    direct.write(numbers(1), "t", mode="append", inline="auto")
    with FaultProxy("127.0.0.1", server.port) as proxy:
        through = url.replace(f":{server.port}/", f":{proxy.port}/")
        yield direct, DuckLake.from_url("lake", catalog=through, storage=files), proxy


@kinds
@pytest.mark.parametrize("keys", [(None, None), ("a", "b")], ids=["no keys", "keys"])
@pytest.mark.parametrize("late", ["lost", "late", "never"])
def test_a_lost_answer_to_commit_leaves_each_append_once(
    proxied: tuple[DuckLake, DuckLake, FaultProxy], kind: Kind, late: str, keys: tuple[str | None, ...]
) -> None:
    direct, lake, proxy = proxied
    lake.tables()

    def lose() -> None:
        del actions["commit.before"]
        match late:
            case "lost":
                proxy.lose_answer_to(b"COMMIT")
            case "late":
                proxy.deliver_late(b"COMMIT", 0.7)
            case "never":
                proxy.deliver_late(b"COMMIT", None)

    actions["commit.before"] = lose
    results = kind.together(lake, *[kind.append(lake, numbers(n), key) for n, key in zip((10, 11), keys, strict=True)])
    assert [result.rows_written for result in results] == [1, 1]
    assert [added(direct, result.snapshot_id) for result in results] == [[10], [11]]
    assert rows(direct, "SELECT i FROM t ORDER BY i") == [(0,), (1,), (10,), (11,)]
    nothing_left_over(direct)
