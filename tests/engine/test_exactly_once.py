"""A statement takes effect once despite a lost answer, a killed server connection or a killed process."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import duckdb
import pytest

from ducklake_orch import CommitInfo, DuckLake, RetryPolicy, errors
from ducklake_orch.engine.exactly_once import LakeTransaction, Write, commit, commit_through
from ducklake_orch.engine.session import Session, open_session
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import FaultProxy
from tests.support.backends import catalogs
from tests.support.fault_points import run_until_killed
from tests.support.lakes import MakeLake


def open_lake(url: str, folder: Path) -> DuckLake:
    return DuckLake.from_url("lake", catalog=url, storage=str(folder), create_if_missing=True)


def through(proxy: FaultProxy, url: str, port: int) -> str:
    return url.replace(f":{port}/", f":{proxy.port}/")


@dataclass
class ProxiedLake:
    """A Postgres lake with a table `t (i)`, opened directly and through a proxy."""

    direct: DuckLake
    proxied: DuckLake
    proxy: FaultProxy

    @property
    def rows(self) -> list[int | None]:
        return [row["i"] for row in self.direct.execute("SELECT i FROM t ORDER BY i").raise_for_error().rows]


@pytest.fixture
def proxied_lake(postgres: PostgresServer, tmp_path: Path) -> Iterator[ProxiedLake]:
    database = f"behind_{uuid4().hex[:8]}"
    postgres.create_database(database)
    direct = open_lake(postgres.url(database), tmp_path)
    direct.create_table("t", {"i": "int"})
    with FaultProxy("127.0.0.1", postgres.port) as proxy:
        url = through(proxy, postgres.url(database), postgres.port)
        proxied = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path))
        proxied.execute("SELECT 1").raise_for_error()
        yield ProxiedLake(direct, proxied, proxy)


def test_a_commit_that_arrives_late_is_not_repeated(proxied_lake: ProxiedLake) -> None:
    proxied_lake.proxy.deliver_late(b"COMMIT", 0.7)
    proxied_lake.proxied.execute("INSERT INTO t VALUES (1)").raise_for_error()
    assert proxied_lake.rows == [1]


def test_a_commit_that_never_arrives_is_retried(proxied_lake: ProxiedLake) -> None:
    proxied_lake.proxy.deliver_late(b"COMMIT", None)
    proxied_lake.proxied.execute("INSERT INTO t VALUES (1)").raise_for_error()
    assert proxied_lake.rows == [1]


@pytest.mark.parametrize("late", [None, 0.7])
def test_an_unclassified_commit_failure_is_looked_up(
    proxied_lake: ProxiedLake, late: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ducklake_orch.engine.error_classes._COMPILED", [])  # as with messages in another language
    if late is None:
        proxied_lake.proxy.lose_answer_to(b"COMMIT")
    else:
        proxied_lake.proxy.deliver_late(b"COMMIT", late)
    proxied_lake.proxied.execute("INSERT INTO t VALUES (1)").raise_for_error()
    assert proxied_lake.rows == [1]


def test_the_last_attempt_looks_up_whether_its_commit_took_effect(proxied_lake: ProxiedLake) -> None:
    once = DuckLake(proxied_lake.proxied.config.model_copy(update={"retry": RetryPolicy(max_attempts=1)}))
    proxied_lake.proxy.lose_answer_to(b"COMMIT")
    once.execute("INSERT INTO t VALUES (1)").raise_for_error()
    assert proxied_lake.rows == [1]


def test_a_lost_answer_to_the_commit_of_a_user_transaction_is_looked_up(proxied_lake: ProxiedLake) -> None:
    proxied_lake.proxy.lose_answer_to(b"COMMIT")
    script = "BEGIN; INSERT INTO t VALUES (1); INSERT INTO t VALUES (2); COMMIT"
    proxied_lake.proxied.execute(script, commit=CommitInfo("me")).raise_for_error()
    assert proxied_lake.rows == [1, 2]
    assert proxied_lake.direct.snapshots(1)[0].author == "me"


def test_a_user_commit_that_never_arrives_is_an_unknown_outcome(proxied_lake: ProxiedLake) -> None:
    proxied_lake.proxy.deliver_late(b"COMMIT", None)
    result = proxied_lake.proxied.execute("BEGIN; INSERT INTO t VALUES (1); COMMIT")
    assert isinstance(result.commands[2].error, errors.UnknownOutcomeError)
    assert [c.status for c in result.commands] == ["skipped", "skipped", "error"]
    assert proxied_lake.rows == []


def test_a_retry_on_a_new_connection_fails_if_session_variables_are_lost(proxied_lake: ProxiedLake) -> None:
    proxied_lake.proxy.deliver_late(b"COMMIT", None)
    result = proxied_lake.proxied.execute(["SET VARIABLE x = 42", "INSERT INTO t SELECT getvariable('x')"])
    assert result.status == "error"  # instead of inserting NULL
    assert proxied_lake.rows == []


def test_a_server_lost_after_the_last_command_hides_no_result(proxied_lake: ProxiedLake) -> None:
    proxied_lake.proxy.lose_answer_to(b"SELECT n.snapshots", stay_down=True)
    result = proxied_lake.proxied.execute("INSERT INTO t VALUES (1)")
    assert result.raise_for_error().commands[0].affected_rows == 1
    assert result.lake["latest_snapshot"] is None
    assert proxied_lake.rows == [1]


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_a_lock_lost_before_the_commit_is_acquired_again(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue({"postgres": "postgres", "mysql": "mariadb"}[kind])
    database = f"turn_{uuid4().hex[:8]}"
    server.create_database(database)
    lake = open_lake(server.url(database), request.getfixturevalue("tmp_path"))
    lake.create_table("t", {"i": "int"})
    attempts = []

    def work(session: Session) -> None:
        attempts.append(1)
        session.con.execute("INSERT INTO t VALUES (1)")
        if len(attempts) == 1:
            end_lock_connection(session, kind)

    with open_session(lake.config) as session:
        commit(session, Write("a test"), work)
    assert len(attempts) == 2
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 1}]


class FailingCommit(LakeTransaction):
    """A transaction whose COMMIT fails with a message that does not say whether it took effect."""

    def commit(self) -> None:
        raise duckdb.IOException("something went wrong with the disk")


@catalogs(server=None)
def test_a_failed_commit_in_a_file_catalog_is_never_an_unknown_outcome(make_lake: MakeLake) -> None:
    lake, write = make_lake("lake"), Write("a test")
    lake.create_table("t", {"i": "int"})
    attempts = []

    def work(transaction: FailingCommit) -> None:
        attempts.append(1)
        if len(attempts) == 2:
            raise errors.StalePlanError("a concurrent writer committed first")
        transaction.session.con.execute("INSERT INTO t VALUES (1)")

    with open_session(lake.config) as session, pytest.raises(errors.StalePlanError):
        commit_through(FailingCommit, session, write, work)
    assert not write.committing  # files of the failed write may be deleted
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 0}]


def end_lock_connection(session: Session, kind: str) -> None:
    """End the server connection that holds the lock, as a restart of the server would."""
    root, alias = session.instance.root, session.config.metadata_alias
    if kind == "postgres":
        holder = "select count(pg_terminate_backend(pid)) from pg_locks where locktype = 'advisory' and granted"
        root.execute(f"SELECT * FROM postgres_query('{alias}', $${holder}$$)").fetchall()
    else:
        holder = "select is_used_lock(concat('ducklake-orch:', sha1(database()))) as id"
        row = root.execute(f"SELECT id FROM mysql_query('{alias}', $${holder}$$)").fetchone()
        assert row is not None
        root.execute(f"CALL mysql_execute('{alias}', 'kill {row[0]}')")


def test_a_lost_commit_answer_is_looked_up_and_the_statement_runs_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.create_database("lost_answer")
    direct = open_lake(postgres.url("lost_answer"), tmp_path)
    direct.create_table("t", {"i": "int"})
    with FaultProxy("127.0.0.1", postgres.port) as proxy:
        url = through(proxy, postgres.url("lost_answer"), postgres.port)
        lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path))
        lake.execute("SELECT 1").raise_for_error()
        proxy.lose_answer_to(b"COMMIT")
        result = lake.execute("INSERT INTO t VALUES (1)", commit=CommitInfo("me", "once", {"run": 7}))
    assert result.raise_for_error().commands[0].affected_rows == 1
    assert direct.execute("SELECT count(*) AS n FROM t").rows == [{"n": 1}]
    newest = direct.snapshots(1)[0]
    assert (newest.author, newest.message, newest.extra["run"]) == ("me", "once", 7)
    assert result.commands[0].snapshot_after == newest.snapshot_id


def test_a_lost_commit_answer_is_looked_up_on_mysql(mariadb: MariaDBServer, tmp_path: Path) -> None:
    mariadb.create_database("lost_answer")
    direct = open_lake(mariadb.url("lost_answer"), tmp_path)
    direct.create_table("t", {"i": "int"})
    with FaultProxy("127.0.0.1", mariadb.port) as proxy:
        url = through(proxy, mariadb.url("lost_answer"), mariadb.port)
        lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path))
        lake.execute("SELECT 1").raise_for_error()
        for number, after in enumerate((b"", b"inserted_into_table")):  # of the attached lake, of the INSERT
            proxy.lose_answer_to(b"COMMIT", after=after)
            lake.execute(f"INSERT INTO t VALUES ({number})").raise_for_error()
    assert direct.execute("SELECT count(*) AS n FROM t").rows == [{"n": 2}]


def test_a_server_that_stays_down_after_the_commit_is_an_unknown_outcome(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.create_database("stays_away")
    direct = open_lake(postgres.url("stays_away"), tmp_path)
    direct.create_table("t", {"i": "int"})
    with FaultProxy("127.0.0.1", postgres.port) as proxy:
        url = through(proxy, postgres.url("stays_away"), postgres.port)
        retry = RetryPolicy(max_attempts=3, base_ms=10)
        lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path), retry=retry)
        lake.execute("SELECT 1").raise_for_error()
        proxy.lose_answer_to(b"COMMIT", stay_down=True)
        result = lake.execute("INSERT INTO t VALUES (1)")
    error = result.commands[0].error
    assert isinstance(error, errors.UnknownOutcomeError)
    assert not error.retryable  # the commit took effect, so an orchestrator must not retry
    assert direct.execute("SELECT count(*) AS n FROM t").rows == [{"n": 1}]


def test_a_terminated_server_connection_is_replaced_and_the_statement_runs_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.create_database("terminated")
    lake = open_lake(postgres.url("terminated"), tmp_path)
    lake.create_table("t", {"i": "int"})
    for i in range(5):
        postgres.terminate_backends("terminated")
        lake.execute(f"INSERT INTO t VALUES ({i})").raise_for_error()
    assert lake.execute("SELECT count(*) AS n, count(DISTINCT i) AS d FROM t").rows == [{"n": 5, "d": 5}]


@catalogs()
@pytest.mark.parametrize(("fault", "rows"), [("commit.before", 0), ("commit.after", 1)])
def test_a_process_killed_around_the_commit_writes_all_rows_or_none(make_lake: MakeLake, fault: str, rows: int) -> None:
    import pickle

    lake = make_lake()
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    code = (
        "import pickle; from ducklake_orch import DuckLake;"
        f"DuckLake(pickle.loads({pickle.dumps(lake.config)!r})).execute('INSERT INTO t VALUES (1)')"
    )
    run_until_killed(code, fault)
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": rows}]
    lake.execute("DROP TABLE t").raise_for_error()


def test_a_lake_works_after_its_creation_was_killed(tmp_path: Path) -> None:
    code = f"from ducklake_orch import DuckLake; DuckLake.local({str(tmp_path / 'lake')!r}).execute('SELECT 1')"
    run_until_killed(code, "lake.created")
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"i": "int"})
    assert lake.exists("t")
