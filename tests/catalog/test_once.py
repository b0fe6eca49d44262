"""A write takes effect once, also after a lost answer, a killed connection, a full disk, or a concurrent equal key."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, RetryPolicy, errors
from ducklake_orch.catalog.commit import Everything, TableChange, commit_change, idempotency
from ducklake_orch.catalog.commit.native_commit import _Commit
from ducklake_orch.catalog.metadata import Metadata, Token
from ducklake_orch.engine import session as sessions
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.locks import NoQueue
from ducklake_orch.engine.quoting import table_name
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import FaultProxy
from tests.support.backends import catalogs
from tests.support.fault_points import once_at
from tests.support.lakes import MakeLake, Servers
from tests.support.stored_tables import nothing_left_over, rows
from tests.support.waiting import waiting

pytestmark = pytest.mark.every_catalog

ROW = pa.table({"i": [1]})


@dataclass
class ProxiedLake:
    """A lake with an empty table `t (i)`, reached directly and through a proxy."""

    direct: DuckLake
    proxied: DuckLake
    proxy: FaultProxy

    @property
    def rows(self) -> list[Any]:
        return rows(self.direct, "FROM t ORDER BY i")


@pytest.fixture(params=[PostgresServer, MariaDBServer], ids=["postgres", "mysql"])
def proxied_lake(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[ProxiedLake]:
    server = servers.get(request.param)
    database = f"once_{uuid4().hex[:8]}"
    server.create_database(database)
    url = server.url(database)
    direct = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path / "files"), create_if_missing=True)
    direct.create_table("t", {"i": "bigint"})
    with FaultProxy("127.0.0.1", server.port) as proxy:
        through = url.replace(f":{server.port}/", f":{proxy.port}/")
        proxied = DuckLake.from_url("lake", catalog=through, storage=str(tmp_path / "files"))
        proxied.tables()
        yield ProxiedLake(direct, proxied, proxy)


@pytest.mark.parametrize("late", ["lost", "late", "never"])
def test_a_commit_with_a_lost_or_late_answer_takes_effect_once(proxied_lake: ProxiedLake, late: str) -> None:
    match late:
        case "lost":
            proxied_lake.proxy.lose_answer_to(b"COMMIT")
        case "late":
            proxied_lake.proxy.deliver_late(b"COMMIT", 0.7)
        case "never":
            proxied_lake.proxy.deliver_late(b"COMMIT", None)
    result = proxied_lake.proxied.write(ROW, "t", mode="append")
    assert proxied_lake.rows == [(1,)]
    assert proxied_lake.direct.snapshots()[0].snapshot_id == result.snapshot_id
    nothing_left_over(proxied_lake.direct)


def test_files_of_a_write_with_an_unknown_outcome_are_kept(
    proxied_lake: ProxiedLake, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = DuckLake(
        proxied_lake.proxied.config.model_copy(update={"retry": RetryPolicy(max_attempts=2, max_seconds=2)})
    )

    once_at(monkeypatch, "commit.before", lambda: proxied_lake.proxy.lose_answer_to(b"COMMIT", stay_down=True))
    with pytest.raises(errors.UnknownOutcomeError):
        lake.write(ROW, "t", mode="append", idempotency_key="k")
    assert "are kept" in caplog.text
    monkeypatch.undo()
    proxied_lake.proxy.restore()
    assert proxied_lake.rows == [(1,)]
    assert lake.write(ROW, "t", mode="append", idempotency_key="k").replayed
    assert proxied_lake.rows == [(1,)]
    nothing_left_over(proxied_lake.direct)


@pytest.mark.parametrize("statement", [1, 3, 6])
def test_a_commit_reconnects_after_a_killed_connection(
    proxied_lake: ProxiedLake, statement: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop() -> None:
        proxied_lake.proxy.cut()
        proxied_lake.proxy.restore()

    once_at(monkeypatch, f"statement.{statement}", drop)
    proxied_lake.proxied.write(ROW, "t", mode="append")
    assert proxied_lake.rows == [(1,)]
    nothing_left_over(proxied_lake.direct)


@catalogs()
def test_a_failed_commit_leaves_no_file(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(ROW, "t", mode="append")

    def fail() -> None:
        raise errors.StatementError("no")

    once_at(monkeypatch, "statement.1", fail)
    with pytest.raises(errors.StatementError):
        lake.write(ROW, "t", mode="append")
    assert rows(lake, "FROM t") == [(1,)]
    nothing_left_over(lake)


@catalogs()
def test_concurrent_writes_with_the_same_key_write_once(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.write(ROW.slice(0, 0), "t", mode="append")
    results = in_threads(6, lambda n: lake.write(ROW, "t", mode="append", idempotency_key="same"))
    assert sorted(result.replayed for result in results) == [False] + [True] * 5
    assert len({result.snapshot_id for result in results}) == 1
    assert rows(lake, "FROM t") == [(1,)]
    nothing_left_over(lake)


@catalogs()
def test_concurrent_first_writes_of_one_table_and_its_columns_all_succeed(make_lake: MakeLake) -> None:
    lake = make_lake()
    first = in_threads(8, lambda n: lake.write(pa.table({"i": [n]}), "odd name.t", mode="append"))
    assert len({result.snapshot_id for result in first}) == 8
    wider = pa.table({"i": [100], "new": ["x"], "s": [{"a": 1}]})
    in_threads(16, lambda n: lake.write(wider, "odd name.t", mode="append", schema_evolution="add"))
    assert rows(lake, 'SELECT count(*), count(DISTINCT i), count("new") FROM "odd name".t') == [(24, 9, 16)]
    assert [column.name for column in lake.table("odd name.t").schema()] == ["i", "new", "s"]
    assert lake.fsck(storage=True).findings == []


def in_threads(count: int, work: Callable[[int], Any]) -> list[Any]:
    """Run work in parallel threads, and raise the error of any of them."""
    results: list[Any] = [None] * count

    def run(number: int) -> None:
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


@catalogs(shared=True)
def test_a_writer_holds_no_lock_while_it_writes_files(make_lake: MakeLake) -> None:
    lake, other = make_lake(), make_lake(lock_timeout="1s")
    lake.write(ROW, "t", mode="append")
    asleep, wake = threading.Event(), threading.Event()

    def slow() -> Iterator[pa.RecordBatch]:
        asleep.set()
        assert wake.wait(60)
        yield from ROW.to_batches()

    reader = pa.RecordBatchReader.from_batches(ROW.schema, slow())
    thread = threading.Thread(target=lambda: lake.write(reader, "t", mode="append"))
    thread.start()
    try:
        assert asleep.wait(60)
        for _ in range(3):
            other.write(ROW, "t", mode="append")
        other.execute("DELETE FROM t WHERE i = 2").raise_for_error()
    finally:
        wake.set()
        thread.join()
    assert len(rows(lake, "FROM t")) == 5


# --- each guard is needed: without it, the result would be different -------------------------------------------------


@catalogs(shared=True)
def test_without_the_queue_a_write_does_not_wait(make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, waiting = make_lake(), make_lake(lock_timeout="0.2s")
    lake.write(ROW, "t", mode="append")
    with sessions.open_session(lake.config) as session, session.queue("another writer"):
        with pytest.raises(errors.LakeLockedError, match="wait"):
            waiting.write(ROW, "t", mode="append")
        monkeypatch.setattr(sessions, "catalog_queue", lambda *_: NoQueue())
        waiting.write(ROW, "t", mode="append")
    nothing_left_over(lake)


@catalogs()
def test_without_the_idempotency_check_a_retried_append_writes_twice(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(ROW, "t", mode="append", idempotency_key="k")
    lake.write(ROW, "t", mode="append", idempotency_key="k")
    assert rows(lake, "FROM t") == [(1,)]
    monkeypatch.setattr(idempotency, "find_key", lambda *_: None)
    monkeypatch.setattr(idempotency, "find_in", lambda *_: None)
    lake.write(ROW, "t", mode="append", idempotency_key="k")
    assert rows(lake, "FROM t") == [(1,), (1,)]


@pytest.mark.parametrize("guarded", [True, False])
@catalogs(shared=False)
def test_without_the_inlined_delete_token_a_flush_restores_replaced_rows(
    lake: DuckLake, guarded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flush runs while rows are replaced. On servers, row locks stop it in any case."""
    lake.create_table("t", {"i": "bigint"})
    lake.execute("INSERT INTO t VALUES (5), (6)").raise_for_error()
    if not guarded:
        real = _Commit._finish

        def finish(commit: _Commit, snapshot: int, tokens: Sequence[Token]) -> None:
            real(commit, snapshot, [token for token in tokens if token.kind != "inlined_delete"])

        monkeypatch.setattr(_Commit, "_finish", finish)
    with sessions.open_session(lake.config) as session:
        session.con.execute("BEGIN")
        session.con.execute("CALL ducklake_flush_inlined_data('lake')").fetchall()
        with session.instance.root.cursor() as con:
            metadata = Metadata(con, lake.config)
            table = metadata.table(table_name("t"), metadata.latest().snapshot_id)
        change = TableChange(table_name("t"), table, table, remove=Everything())
        assert commit_change(session, Write("replacing"), change).rows_removed == 2
        with pytest.raises(duckdb.Error, match="onflict") if guarded else nullcontext():
            session.con.execute("COMMIT")
        session.broken = True
    assert (rows(lake, "FROM t") == []) is guarded


def test_a_write_is_tried_again_if_a_killed_writer_still_creates_the_table_of_keys(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The lock of a killed process ends with its connection, while the server may still run its transaction."""
    database = "table_of_keys"
    postgres.create_database(database)
    storage = {"type": "local", "path": tmp_path / "files"}
    lake = DuckLake.from_url("lake", catalog=postgres.socket_url(database), storage=storage, create_if_missing=True)
    lake.write(ROW, "t", mode="append")
    with postgres.connect(database) as killed, ThreadPoolExecutor() as pool:
        killed.autocommit = False
        killed.execute(f"CREATE TABLE {idempotency.KEYS_TABLE} ({idempotency._columns(dialect_of(lake.config))})")
        writing = pool.submit(lake.write, ROW, "t", mode="append", idempotency_key="k")
        waits = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%CREATE TABLE%'"
        with postgres.connect(database) as observer:
            waiting(lambda: observer.execute(waits).fetchone(), "the wait for the killed writer", 60)
        killed.commit()
        result = writing.result(60)
    assert (result.rows_written, result.replayed) == (1, False)
    assert lake.write(ROW, "t", mode="append", idempotency_key="k").replayed
