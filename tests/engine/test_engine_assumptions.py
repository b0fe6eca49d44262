"""Assumptions about DuckDB and its DuckLake extension. These tests do not run ducklake-orch.

A failure after an upgrade of the engine shows which workaround can be removed or must change.
"""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import duckdb
import pytest

from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer

META = "__ducklake_metadata_lake"


def engine(*extensions: str) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect()
    for name in ("ducklake", *extensions):
        spec = find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        file = Path(spec.origin).parent / f"extensions/v{duckdb.__version__}/{name}.duckdb_extension"
        con.execute(f"LOAD '{file}'")
    return con


@contextmanager
def attached(con: duckdb.DuckDBPyConnection, place: str, options: str) -> Iterator[None]:
    con.execute(f"ATTACH 'ducklake:{place}' AS lake ({options})")
    try:
        yield
    finally:
        con.execute("USE memory")
        con.execute("DETACH lake")


@pytest.fixture(scope="module")
def sqlite_engine() -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(engine("sqlite_scanner")) as con:
        yield con


@pytest.fixture
def sqlite_lake(sqlite_engine: duckdb.DuckDBPyConnection, tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    options = f"DATA_PATH '{tmp_path}/files/', META_JOURNAL_MODE 'WAL'"
    with attached(sqlite_engine, f"sqlite:{tmp_path}/lake.sqlite", options):
        sqlite_engine.execute("CREATE TABLE lake.t AS SELECT range AS i FROM range(20)")
        yield sqlite_engine


def scalar(con: duckdb.DuckDBPyConnection, sql: str) -> Any:
    row = con.execute(sql).fetchone()
    assert row is not None
    return row[0]


def latest(con: duckdb.DuckDBPyConnection) -> int:
    return int(scalar(con, "SELECT id FROM ducklake_current_snapshot('lake')"))


class TestConnections:
    @pytest.mark.parametrize("changed", [False, True])
    def test_a_sqlite_transaction_sees_concurrent_commits_until_its_first_write(
        self, sqlite_lake: duckdb.DuckDBPyConnection, tmp_path: Path, changed: bool
    ) -> None:
        con = sqlite_lake.cursor()
        con.execute("BEGIN")
        if changed:
            con.execute(f"DELETE FROM {META}.ducklake_metadata WHERE false")
        count = f"SELECT count(*) FROM {META}.ducklake_snapshot"
        before = scalar(con, count)
        with closing(sqlite3.connect(tmp_path / "lake.sqlite")) as connection:  # a DELETE of no rows takes no lock
            connection.execute("DELETE FROM ducklake_snapshot WHERE snapshot_id = 0")
            connection.commit()
        assert scalar(con, count) == (before if changed else before - 1)
        con.execute("ROLLBACK")

    def test_a_cursor_does_not_inherit_use(self, sqlite_lake: duckdb.DuckDBPyConnection) -> None:
        sqlite_lake.execute("USE lake")
        assert scalar(sqlite_lake, "SELECT current_database()") == "lake"
        with closing(sqlite_lake.cursor()) as cursor:
            assert scalar(cursor, "SELECT current_database()") == "memory"

    def test_attach_creates_an_empty_sqlite_file_even_if_creation_is_disabled(
        self, sqlite_engine: duckdb.DuckDBPyConnection, tmp_path: Path
    ) -> None:
        file = tmp_path / "typo.sqlite"
        with pytest.raises(duckdb.Error, match="creating a new DuckLake is explicitly disabled"):
            sqlite_engine.execute(f"ATTACH 'ducklake:sqlite:{file}' AS lake (CREATE_IF_NOT_EXISTS false)")
        assert file.exists()

    def test_attach_guesses_the_type_of_a_catalog_file_unless_meta_type_is_set(self, tmp_path: Path) -> None:
        file = tmp_path / "a.sqlite"
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE t (i INTEGER)")
        with closing(engine()) as con:
            # Guessing would fetch an extension from the network.
            con.execute("SET autoinstall_known_extensions = false")
            con.execute("SET autoload_known_extensions = false")
            with pytest.raises(duckdb.Error, match="sqlite"):
                con.execute(f"ATTACH 'ducklake:{file}' AS lake")
            with pytest.raises(duckdb.Error, match="not a valid DuckDB database file"):
                con.execute(f"ATTACH 'ducklake:{file}' AS lake (META_TYPE 'duckdb')")

    def test_only_meta_busy_timeout_reaches_sqlite(
        self, sqlite_engine: duckdb.DuckDBPyConnection, tmp_path: Path
    ) -> None:
        con = sqlite_engine

        def pragma(option: str) -> Any:
            place = f"sqlite:{tmp_path}/{option}.sqlite"
            options = f"DATA_PATH '{tmp_path}/{option}/', {option} 12345"
            with attached(con, place, options):
                con.execute("BEGIN")  # the pragma belongs to the connection of a transaction
                value = scalar(con, f"SELECT * FROM sqlite_query('{META}', 'PRAGMA busy_timeout')")
                con.execute("COMMIT")
                return value

        assert int(pragma("BUSY_TIMEOUT")) == 5000
        assert int(pragma("META_BUSY_TIMEOUT")) == 12345

    def test_the_scope_of_a_secret_is_a_plain_prefix(self) -> None:
        with closing(engine("httpfs")) as con:
            con.execute("CREATE SECRET narrow (TYPE s3, KEY_ID 'a', SECRET 'b', SCOPE 's3://bucket')")
            which = "SELECT name FROM which_secret('s3://bucket-of-another/file', 's3')"
            assert con.execute(which).fetchall() == [("narrow",)]
            con.execute("CREATE OR REPLACE SECRET narrow (TYPE s3, KEY_ID 'a', SECRET 'b', SCOPE 's3://bucket/')")
            assert con.execute(which).fetchall() == []


class TestCommits:
    def test_a_metadata_commit_blocks_itself_while_the_lake_is_the_current_database(self, tmp_path: Path) -> None:
        # In SQLite's default journal mode, in which a reader blocks the commit of a writer.
        statement = f"UPDATE {META}.ducklake_metadata SET value = value WHERE key = 'version'"
        options = f"DATA_PATH '{tmp_path}/files/', META_BUSY_TIMEOUT 50"
        with closing(engine("sqlite_scanner")) as con:
            con.execute(f"ATTACH 'ducklake:sqlite:{tmp_path}/lake.sqlite' AS lake ({options})")
            for sql in ("BEGIN", statement, "COMMIT", "USE lake", "BEGIN"):
                con.execute(sql)
            con.execute(statement)
            with pytest.raises(duckdb.Error, match="database is locked"):
                con.execute("COMMIT")

    def test_a_commit_message_alone_creates_no_snapshot(self, sqlite_lake: duckdb.DuckDBPyConnection) -> None:
        before = latest(sqlite_lake)
        sqlite_lake.execute("BEGIN")
        sqlite_lake.execute("CALL lake.set_commit_message(NULL, NULL, extra_info => 'mine')")
        sqlite_lake.execute("COMMIT")
        assert latest(sqlite_lake) == before

    def test_the_extra_info_of_a_commit_without_author_and_message_is_stored(
        self, sqlite_lake: duckdb.DuckDBPyConnection
    ) -> None:
        sqlite_lake.execute("BEGIN")
        sqlite_lake.execute("CALL lake.set_commit_message(NULL, NULL, extra_info => '{\"write_id\": \"it''s\"}')")
        sqlite_lake.execute("INSERT INTO lake.t VALUES (1)")
        sqlite_lake.execute("COMMIT")
        sql = f"SELECT author, commit_message, commit_extra_info FROM {META}.ducklake_snapshot_changes"
        rows = sqlite_lake.execute(f"{sql} WHERE snapshot_id = {latest(sqlite_lake)}").fetchall()
        assert rows == [(None, None, '{"write_id": "it\'s"}')]

    def test_a_transaction_that_deletes_no_row_creates_no_snapshot(
        self, sqlite_lake: duckdb.DuckDBPyConnection
    ) -> None:
        before = latest(sqlite_lake)
        sqlite_lake.execute("BEGIN")
        sqlite_lake.execute("DELETE FROM lake.t WHERE i > 1000")
        sqlite_lake.execute("COMMIT")
        assert latest(sqlite_lake) == before

    def test_the_current_snapshot_of_a_transaction_ignores_concurrent_commits(
        self, sqlite_lake: duckdb.DuckDBPyConnection
    ) -> None:
        with closing(sqlite_lake.cursor()) as other_cursor:
            sqlite_lake.execute("BEGIN")
            before = latest(sqlite_lake)
            other_cursor.execute("INSERT INTO lake.t VALUES (1)")
            assert latest(other_cursor) == before + 1
            assert latest(sqlite_lake) == before
            sqlite_lake.execute("COMMIT")
            assert latest(sqlite_lake) == before + 1

    def test_delete_and_insert_in_one_transaction_are_one_snapshot(
        self, sqlite_lake: duckdb.DuckDBPyConnection
    ) -> None:
        before = latest(sqlite_lake)
        for sql in ("BEGIN", "DELETE FROM lake.t", "INSERT INTO lake.t VALUES (1)", "COMMIT"):
            sqlite_lake.execute(sql)
        assert latest(sqlite_lake) == before + 1


class TestInlinedRows:
    @pytest.mark.parametrize("field", ["DATE '2024-01-01'", "'01:02:03'::TIME", "'nan'::DOUBLE", "uuid()"])
    def test_inlined_structs_in_sqlite_cannot_be_read(self, sqlite_lake: duckdb.DuckDBPyConnection, field: str) -> None:
        sqlite_lake.execute(f"CREATE TABLE lake.s AS SELECT {{'f': {field}}} AS s")
        with pytest.raises(duckdb.ConversionException, match="Failed to read inlined data"):
            sqlite_lake.execute("FROM lake.s")

    def test_texts_in_inlined_structs_in_sqlite_lose_their_quotes(self, sqlite_lake: duckdb.DuckDBPyConnection) -> None:
        sqlite_lake.execute("CREATE TABLE lake.s AS SELECT {'v': 'it''s'} AS s")
        assert scalar(sqlite_lake, "SELECT s.v FROM lake.s") == "its"


class TestServers:
    def test_postgres_is_reached_through_its_unix_socket(self, postgres: PostgresServer, tmp_path: Path) -> None:
        postgres.create_database("assumed_socket")
        place = f"postgres:dbname=assumed_socket host={postgres.socket_folder} user=postgres"
        with closing(engine("postgres_scanner")) as con, attached(con, place, f"DATA_PATH '{tmp_path}/'"):
            con.execute("CREATE TABLE lake.t (i INTEGER)")
            assert scalar(con, "SELECT count(*) FROM lake.t") == 0

    def test_a_transaction_that_waits_for_an_advisory_lock_reads_stale_data(
        self, postgres: PostgresServer, tmp_path: Path
    ) -> None:
        postgres.create_database("assumed_stale")
        dsn = f"dbname=assumed_stale host={postgres.socket_folder} user=postgres"
        wait = "select pg_advisory_xact_lock(4711)"
        count = f"SELECT count(*) FROM {META}.public.counted"
        with postgres.connect("assumed_stale") as holder, closing(engine("postgres_scanner")) as con:
            holder.execute("CREATE TABLE counted (i INTEGER)")
            con.execute(f"ATTACH 'ducklake:postgres:{dsn}' AS lake (DATA_PATH '{tmp_path}/')")
            con.execute(f"ATTACH '{dsn}' AS queue (TYPE postgres)")
            counts = {}
            for place in (META, "queue"):
                holder.execute("SELECT pg_advisory_lock(4711)")
                with closing(con.cursor()) as waiter, closing(con.cursor()) as worker:
                    waiter.execute("BEGIN")
                    waiting = Thread(target=waiter.execute, args=[f"CALL postgres_execute('{place}', '{wait}')"])
                    waiting.start()
                    while not holder.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall():
                        time.sleep(0.01)
                    holder.execute("INSERT INTO counted VALUES (1)")
                    holder.execute("SELECT pg_advisory_unlock(4711)")
                    waiting.join()
                    counts[place] = scalar(waiter if place == META else worker, count)
        assert counts == {META: 0, "queue": 2}

    def test_the_engine_supports_one_insert_on_mysql_and_no_update_or_expiry(
        self, mariadb: MariaDBServer, tmp_path: Path
    ) -> None:
        mariadb.create_database("assumed")
        place = f"mysql:host={mariadb.host} port={mariadb.port} user={mariadb.user} passwd={mariadb.password}"
        with closing(engine("mysql_scanner")) as con, attached(con, f"{place} db=assumed", f"DATA_PATH '{tmp_path}/'"):
            con.execute("CREATE TABLE lake.t (i INTEGER)")
            con.execute("INSERT INTO lake.t SELECT range FROM range(20)")
            for sql in ("INSERT INTO lake.t SELECT range FROM range(20)", "UPDATE lake.t SET i = i + 1"):
                with pytest.raises(duckdb.Error, match=r"Unsupported operator type \w+ in UPDATE statement"):
                    con.execute(sql)
            with pytest.raises(duckdb.Error, match=r"Unsupported operator type \w+ in DELETE statement"):
                con.execute("CALL ducklake_expire_snapshots('lake', versions => [1])")
            assert scalar(con, "SELECT count(*) FROM lake.t") == 20
