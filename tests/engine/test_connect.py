"""A connection uses the lake, runs in UTC with the configured settings, and leaves nothing open."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, PoolPolicy, RetryPolicy, errors
from ducklake_orch.engine import instances
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import VersityS3
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake

pytestmark = pytest.mark.every_catalog


@pytest.fixture
def embedded(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


def other_connections(postgres: PostgresServer, database: str) -> int:
    with postgres.connect() as con:
        row = con.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = %s", [database]).fetchone()
    assert row is not None
    return int(row[0])


def test_the_lake_is_current_on_the_connection_and_on_its_cursors(embedded: DuckLake) -> None:
    question = "SELECT current_database(), current_schema()"
    with embedded.connect() as con:
        assert con.execute(question).fetchone() == ("lake", "main")
        assert con.cursor().execute(question).fetchone() == ("lake", "main")
        assert con.cursor().cursor().execute(question).fetchone() == ("lake", "main")
        con.cursor().execute("CREATE TABLE through_a_cursor (i INTEGER)")
    assert embedded.exists("through_a_cursor")


def test_the_connection_passes_as_a_duckdb_connection(embedded: DuckLake) -> None:
    with embedded.connect() as con:
        assert isinstance(con, duckdb.DuckDBPyConnection)
        assert con.sql("SELECT 1 AS a").fetchall() == [(1,)]
        assert duckdb.sql("SELECT current_database()", connection=con.unwrap()).fetchall() == [("lake",)]  # type: ignore[attr-defined]
        frame = con.execute("SELECT 1 AS a").to_arrow_table()
        assert con.execute("SELECT * FROM frame").fetchall() == [(1,)]
        assert frame.num_rows == 1


NEW_YEAR = """
from pathlib import Path
import sys
import duckdb
from ducklake_orch import DuckLake
lake = DuckLake.local(Path(sys.argv[1]) / "lake", data_inlining_row_limit=0)
data = duckdb.sql("SET TimeZone = 'UTC'; SELECT TIMESTAMPTZ '2023-12-31 23:30:00+00' AS ts").to_arrow_table()
for mode in ("append", "overwrite_partitions"):
    lake.write(data, "t", mode=mode, partition_by=["year(ts)"])
lake.write(data, "t", mode="replace_where", where="ts >= '2023-12-31' AND ts < '2024-01-01'")
print([partition.values for partition in lake.table("t").partitions()], lake.table("t").count())
with lake.connect() as con:
    for connection in (con, con.cursor()):
        print(connection.execute("SELECT current_setting('TimeZone'), year(ts) FROM t").fetchall())
"""


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York"])
def test_the_connection_runs_in_utc_in_every_system_time_zone(tmp_path: Path, zone: str) -> None:
    # In a new process, because an engine reads the time zone when it starts.
    process = subprocess.run(
        [sys.executable, "-c", NEW_YEAR, str(tmp_path)],
        env=os.environ | {"TZ": zone},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines() == ["[{'year(ts)': '2023'}] 1", "[('UTC', 2023)]", "[('UTC', 2023)]"]


def test_settings_limits_and_extensions_are_applied_before_attach(tmp_path: Path) -> None:
    lake = DuckLake.local(
        tmp_path / "lake",
        memory_limit="512 MiB",
        threads=1,
        temp_directory=str(tmp_path / "spill"),
        settings={"preserve_insertion_order": False, "default_null_order": "nulls_first"},
        extensions=["httpfs"],
    )
    with lake.connect() as con:
        names = ["memory_limit", "threads", "temp_directory", "preserve_insertion_order", "default_null_order"]
        questions = ", ".join(f"current_setting({name!r})" for name in names)
        values = con.execute(f"SELECT {questions}").fetchone()
        assert values == ("512.0 MiB", 1, str(tmp_path / "spill"), False, "NULLS_FIRST")
        loaded = con.execute("SELECT extension_name FROM duckdb_extensions() WHERE loaded").fetchall()
        assert ("httpfs",) in loaded


def test_settings_of_duckdb_and_of_its_extensions_reach_every_connection_of_a_lake(tmp_path: Path) -> None:
    lake = DuckLake.from_url(
        "lake",
        catalog=f"sqlite:///{tmp_path}/lake.sqlite",
        storage=str(tmp_path / "files"),
        create_if_missing=True,
        extensions=["httpfs"],
        settings={"order_by_non_integer_literal": True, "http_timeout": 7},
    )
    names = ("order_by_non_integer_literal", "http_timeout", "sqlite_disable_multithreaded_scans")
    question = f"SELECT {', '.join(f'current_setting({name!r})' for name in names)}"
    with lake.connect() as con:
        assert con.execute(question).fetchone() == con.cursor().execute(question).fetchone() == (True, 7, True)


def test_a_setting_that_no_other_connection_would_get_is_refused(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", settings={"enable_progress_bar": True})
    with pytest.raises(errors.SettingError, match="cannot be set globally"), lake.connect():
        pass


@catalogs(shared=True)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_transaction_reads_all_rows_of_its_snapshot_while_files_are_merged(
    make_lake: MakeLake, read_only: bool
) -> None:
    lake, other = make_lake(), make_lake()
    for number in range(3):
        for table in ("t", "u"):
            lake.write(pa.table({"id": [number]}), table, mode="append")
    question = "SELECT (SELECT list_sort(list(id)) FROM t), (SELECT list_sort(list(id)) FROM u)"
    with lake.connect(read_only=read_only) as con:
        con.execute("BEGIN")
        assert con.execute("SELECT count(*) FROM t").fetchone() == (3,)
        other.maintain({"merge": {"min_files": 2}, "force": True}, operations=["merge"]).raise_for_error()
        assert con.execute(question).fetchone() == ([0, 1, 2], [0, 1, 2])
        con.execute("ROLLBACK")
    assert len(lake.table("t").files()) == 1


def test_hooks_get_the_connection_before_and_after_attach(tmp_path: Path) -> None:
    calls: list[tuple[str, str]] = []

    def note(name: str) -> Any:
        def hook(con: duckdb.DuckDBPyConnection) -> None:
            row = con.execute("SELECT current_database()").fetchone()
            assert row is not None
            calls.append((name, row[0]))

        return hook

    lake = DuckLake.local(tmp_path / "lake", on_connect=note("connect"), on_attach=note("attach"))
    with lake.connect():
        pass
    assert calls == [("connect", "memory"), ("attach", "lake")]


@catalogs()
@pytest.mark.parametrize("hook", ["on_connect", "on_attach"])
def test_a_failing_hook_closes_the_connection(make_lake: MakeLake, hook: str) -> None:
    make_lake().execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    opened: list[Any] = []

    def fail(con: duckdb.DuckDBPyConnection) -> None:
        opened.append(con)
        raise RuntimeError("hook says no")

    broken = make_lake(**{hook: fail})
    with pytest.raises(RuntimeError, match="hook says no"), broken.connect():
        raise AssertionError("the block must not run")
    with pytest.raises(duckdb.Error, match="closed"):
        opened[0].execute("SELECT 1")
    make_lake().execute("INSERT INTO t VALUES (1)").raise_for_error()


@catalogs()
def test_an_exception_in_the_block_propagates_and_closes_the_connection(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()

    def insert_and_fail() -> None:
        with lake.connect() as con:
            con.execute("BEGIN")
            con.execute("INSERT INTO t VALUES (1)")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        insert_and_fail()
    # The open transaction leaves no rows and no locks.
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 0}]
    lake.execute("INSERT INTO t VALUES (2)").raise_for_error()


def test_closing_the_connection_inside_its_block_is_harmless(embedded: DuckLake) -> None:
    with embedded.connect() as con:
        con.close()
    assert embedded.execute("SELECT 1 AS one").rows == [{"one": 1}]


def test_session_state_does_not_leak_to_the_next_connection(embedded: DuckLake) -> None:
    with embedded.connect() as con:
        con.execute("SET threads = 1")
        con.execute("CREATE TABLE memory.main.leftover AS SELECT range AS i FROM range(100000)")
        con.execute("CREATE TEMP TABLE mine (i INTEGER)")
        con.execute("CREATE TEMPORARY SECRET s (TYPE http, BEARER_TOKEN 'a')")
        con.execute("ATTACH ':memory:' AS other")
        con.execute("SET VARIABLE v = 1")
    with embedded.connect() as con:
        assert con.execute("SELECT count(*) FROM duckdb_databases() WHERE database_name = 'other'").fetchone() == (0,)
        assert con.execute("SELECT count(*) FROM duckdb_secrets()").fetchone() == (0,)
        assert con.execute("SELECT getvariable('v')").fetchone() == (None,)
        for name in ("memory.main.leftover", "mine"):
            with pytest.raises(duckdb.CatalogException):
                con.execute(f"SELECT * FROM {name}")
        expected = len(os.sched_getaffinity(0))
        assert con.execute("SELECT current_setting('threads')").fetchone() == (expected,)


@catalogs(pooled=True)
class TestPool:
    """Connections to server catalogs stay open between uses."""

    def test_later_uses_reuse_the_server_connections(self, make_lake: MakeLake) -> None:
        lake = make_lake()
        lake.execute("SELECT 1").raise_for_error()
        backends = []
        for _ in range(6):
            with lake.connect(read_only=True) as con:
                kind = lake.config.catalog.type
                ask = {"postgres": "select pg_backend_pid()", "mysql": "select connection_id()"}[kind]
                query = f"SELECT * FROM {kind}_query('{lake.config.metadata_alias}', ?)"
                backends.append(con.execute(query, [ask]).fetchone())
        assert len(set(backends)) <= 2  # DuckDB alternates between two

    def test_a_dropped_idle_connection_is_replaced(self, make_lake: MakeLake, monkeypatch: pytest.MonkeyPatch) -> None:
        lake = make_lake()
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        drop_all_connections(lake)
        monkeypatch.setattr("ducklake_orch.engine.opening._TRUSTED_IDLE_S", 0)
        result = lake.execute("SELECT count(*) AS n FROM t")
        assert result.raise_for_error().rows == [{"n": 0}]

    def test_an_idle_connection_has_no_open_transaction(self, make_lake: MakeLake) -> None:
        lake = make_lake()
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        assert len(lake.snapshots()) == 2
        assert open_transactions(lake) == 0
        with lake.connect() as con:
            assert con.execute("SELECT count(*) FROM t").fetchone() == (0,)
            con.execute("FROM t").fetchmany(1)
        assert open_transactions(lake) == 0

    def test_the_pool_opens_no_more_connections_than_its_size(self, make_lake: MakeLake) -> None:
        lake = make_lake(pool=PoolPolicy(size=1, wait="0.2s"))
        lake.execute("SELECT 1")
        with lake.connect(), pytest.raises(errors.PoolExhaustedError, match="All 1 connections"), lake.connect():
            raise AssertionError("the block must not run")

    def test_threads_wait_for_a_free_connection(self, make_lake: MakeLake) -> None:
        lake = make_lake(pool=PoolPolicy(size=2, wait="30s"))
        lake.execute("SELECT 1").raise_for_error()
        failures: list[BaseException] = []

        def work() -> None:
            try:
                assert lake.execute("SELECT 1 AS one", read_only=True).rows == [{"one": 1}]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []


def open_transactions(lake: DuckLake) -> int:
    """Count the idle transactions in the catalog of a lake."""
    kind, alias = lake.config.catalog.type, lake.config.metadata_alias
    sql = {
        "postgres": "select count(*) from pg_stat_activity"
        " where datname = current_database() and state like 'idle in transaction%'",
        "mysql": "select count(*) from information_schema.innodb_trx t join information_schema.processlist p"
        " on p.id = t.trx_mysql_thread_id where p.db = database() and p.command = 'Sleep'",
    }
    time.sleep(0.3)  # the process list of MariaDB lags by a tenth of a second
    with lake.connect_metadata(read_only=False) as con:
        return int(con.execute(f"SELECT * FROM {kind}_query('{alias}', ?)", [sql[kind]]).fetchall()[0][0])


def drop_all_connections(lake: DuckLake) -> None:
    catalog = lake.config.catalog
    with lake.connect_metadata(read_only=False) as con:
        if catalog.type == "postgres":
            others = "datname = current_database() and pid <> pg_backend_pid()"
            sql = f"select count(pg_terminate_backend(pid)) from pg_stat_activity where {others}"
            con.execute(f"SELECT * FROM postgres_query('{lake.config.metadata_alias}', ?)", [sql]).fetchall()
        else:
            sql = "select id from information_schema.processlist where db = database() and id <> connection_id()"
            rows = con.execute(f"SELECT * FROM mysql_query('{lake.config.metadata_alias}', ?)", [sql]).fetchall()
            for (number,) in rows:
                con.execute(f"CALL mysql_execute('{lake.config.metadata_alias}', 'kill {number}')")


def test_idle_connections_are_closed_after_the_idle_timeout(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.create_database("idle")
    url, pool = postgres.url("idle"), PoolPolicy(idle="0s")
    lake = DuckLake.from_url("idle", catalog=url, storage=str(tmp_path), pool=pool, create_if_missing=True)
    lake.execute("SELECT 1").raise_for_error()
    assert other_connections(postgres, "idle") > 0
    time.sleep(0.05)
    DuckLake.local(tmp_path / "other").execute("SELECT 1").raise_for_error()  # any use closes idle connections
    deadline = time.monotonic() + 5
    while other_connections(postgres, "idle") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert other_connections(postgres, "idle") == 0


def test_reads_of_many_snapshots_keep_few_connections_open(postgres: PostgresServer, tmp_path: Path) -> None:
    postgres.create_database("pinned")
    lake = DuckLake.from_url(
        "pinned", catalog=postgres.url("pinned"), storage=str(tmp_path), pool=PoolPolicy(size=2), create_if_missing=True
    )
    for number in range(12):
        lake.write(pa.table({"i": [number]}), "t", mode="append")
    assert [lake.read("t", snapshot=number).num_rows for number in range(1, 13)] == list(range(1, 13))
    deadline = time.monotonic() + 5
    # An instance of DuckDB keeps up to three connections: two that it alternates between, and one for the lock.
    while (found := other_connections(postgres, "pinned")) > 6 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert found <= 6


def test_a_server_without_a_free_connection_is_busy(postgres: PostgresServer, tmp_path: Path) -> None:
    """Another attempt can succeed, and the login is not to blame."""
    postgres.create_database("crowded")
    postgres.create_role("guest", "secret")
    with postgres.connect() as con:
        con.autocommit = True
        con.execute("ALTER DATABASE crowded CONNECTION LIMIT 0")
    url = postgres.url("crowded", "guest", "secret")
    lake = DuckLake.from_url("crowded", catalog=url, storage=str(tmp_path), retry=RetryPolicy(max_attempts=1))
    with pytest.raises(errors.CatalogBusyError, match=r"lower `pool\.size`"):
        lake.snapshots()


# The extension ends the process when it closes a connection whose transaction cannot be rolled back.
@pytest.mark.parametrize(
    ("connect", "read"),
    [("connect", "FROM ducklake_snapshots('lake')"), ("connect_metadata", "FROM ducklake_snapshot")],
)
@pytest.mark.parametrize("on_cursor", [False, True])
def test_a_server_that_goes_away_during_a_transaction_does_not_end_the_process(
    postgres: PostgresServer, tmp_path: Path, connect: str, read: str, on_cursor: bool
) -> None:
    database = f"gone during {connect} {on_cursor}"
    postgres.create_database(database)
    storage = {"type": "local", "path": tmp_path}
    lake = DuckLake.from_url("lake", catalog=postgres.url(database), storage=storage, create_if_missing=True)
    lake.ensure_exists()
    with getattr(lake, connect)() as con:
        user = con.cursor() if on_cursor else con
        user.execute("BEGIN")
        user.execute(read).fetchall()
        postgres.terminate_backends(database)
    assert len(lake.snapshots()) == 1


def test_a_connection_is_refused_after_a_fork(embedded: DuckLake) -> None:
    with embedded.connect() as con:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                con.execute("SELECT 1")
            except errors.ForkedConnectionError:
                # The child can open a new connection.
                answer = embedded.execute("SELECT 41 + 1 AS n").rows[0]["n"]
                os.write(write, str(answer).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(write)
        assert os.read(read, 10) == b"42"
        os.close(read)
        assert con.execute("SELECT 1").fetchone() == (1,)


def test_a_closed_pool_opens_new_connections(embedded: DuckLake) -> None:
    embedded.execute("SELECT 1").raise_for_error()
    instances.pool.close()
    assert embedded.execute("SELECT 2 AS n").rows == [{"n": 2}]


def test_existing_secrets_give_access_to_catalog_and_storage(
    postgres: PostgresServer, versity_s3: VersityS3, tmp_path: Path
) -> None:
    postgres.create_database("by_secret")
    postgres.create_role("by_secret_user", "pass word", superuser=True)
    versity_s3.create_bucket("by-secret")

    def create_secrets(con: duckdb.DuckDBPyConnection) -> None:
        login = f"HOST '{postgres.socket_folder}', DATABASE 'by_secret', USER 'by_secret_user', PASSWORD 'pass word'"
        con.execute(f"CREATE OR REPLACE SECRET my_catalog (TYPE postgres, {login})")
        keys = f"KEY_ID '{versity_s3.access_key_id}', SECRET '{versity_s3.secret_access_key}'"
        server = f"ENDPOINT '{versity_s3.endpoint}', REGION '{versity_s3.region}', URL_STYLE 'path', USE_SSL false"
        con.execute(f"CREATE OR REPLACE SECRET my_bucket (TYPE s3, {keys}, {server}, SCOPE 's3://by-secret/')")

    lake = DuckLake.from_url(
        "lake",
        catalog="postgresql:///?secret_name=my_catalog",
        storage={"type": "s3", "bucket": "by-secret", "secret_name": "my_bucket"},
        extensions=["httpfs"],
        on_connect=create_secrets,
        create_if_missing=True,
    )
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 50}]
    assert [key.startswith("main/t/") for key in versity_s3.list_keys("by-secret")] == [True]
