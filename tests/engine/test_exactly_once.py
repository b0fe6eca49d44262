"""A statement takes effect once, whatever breaks: a lost answer, a killed server connection, a killed process."""

from pathlib import Path

import pytest

from ducklake_orch import CommitInfo, DuckLake, RetryPolicy, errors
from tests.backends import catalogs
from tests.conftest import MakeLake
from tests.servers.kill import run_until_killed
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import FaultProxy


def make(url: str, folder: Path) -> DuckLake:
    return DuckLake.from_url("lake", catalog=url, storage=str(folder), create_if_missing=True)


def through(proxy: FaultProxy, url: str, port: int) -> str:
    return url.replace(f":{port}/", f":{proxy.port}/")


def test_a_lost_answer_to_commit_is_looked_up_and_not_run_again(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.create_database("lost_answer")
    direct = make(postgres.url("lost_answer"), tmp_path)
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


def test_a_lost_answer_on_mysql_too(mariadb: MariaDBServer, tmp_path: Path) -> None:
    mariadb.create_database("lost_answer")
    direct = make(mariadb.url("lost_answer"), tmp_path)
    direct.create_table("t", {"i": "int"})
    with FaultProxy("127.0.0.1", mariadb.port) as proxy:
        url = through(proxy, mariadb.url("lost_answer"), mariadb.port)
        lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path))
        lake.execute("SELECT 1").raise_for_error()
        proxy.lose_answer_to(b"COMMIT")
        lake.execute("INSERT INTO t VALUES (1)").raise_for_error()
    assert direct.execute("SELECT count(*) AS n FROM t").rows == [{"n": 1}]


def test_a_server_that_stays_away_ends_in_one_error_and_nothing_is_doubled_later(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.create_database("stays_away")
    direct = make(postgres.url("stays_away"), tmp_path)
    direct.create_table("t", {"i": "int"})
    with FaultProxy("127.0.0.1", postgres.port) as proxy:
        url = through(proxy, postgres.url("stays_away"), postgres.port)
        retry = RetryPolicy(max_attempts=3, base_ms=10)
        lake = DuckLake.from_url("lake", catalog=url, storage=str(tmp_path), retry=retry)
        lake.execute("SELECT 1").raise_for_error()
        proxy.lose_answer_to(b"COMMIT", stay_down=True)
        result = lake.execute("INSERT INTO t VALUES (1)")
    error = result.commands[0].error
    assert isinstance(error, errors.CatalogUnreachableError)
    assert direct.execute("SELECT count(*) AS n FROM t").rows == [{"n": 1}]


def test_a_terminated_server_connection_is_replaced_and_the_statement_runs_once(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    postgres.create_database("terminated")
    lake = make(postgres.url("terminated"), tmp_path)
    lake.create_table("t", {"i": "int"})
    for i in range(5):
        postgres.terminate_backends("terminated")
        lake.execute(f"INSERT INTO t VALUES ({i})").raise_for_error()
    assert lake.execute("SELECT count(*) AS n, count(DISTINCT i) AS d FROM t").rows == [{"n": 5, "d": 5}]


@catalogs()
@pytest.mark.parametrize(("fault", "rows"), [("commit.before", 0), ("commit.after", 1)])
def test_a_process_killed_around_commit_leaves_all_or_nothing(make_lake: MakeLake, fault: str, rows: int) -> None:
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


def test_a_process_killed_while_making_the_lake_leaves_one_that_works(tmp_path: Path) -> None:
    code = f"from ducklake_orch import DuckLake; DuckLake.local({str(tmp_path / 'lake')!r}).execute('SELECT 1')"
    run_until_killed(code, "lake.created")
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"i": "int"})
    assert lake.exists("t")
