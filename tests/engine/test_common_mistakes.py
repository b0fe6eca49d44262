"""Regression tests for mistakes that other DuckLake packages make."""

import gc
import resource
import threading
from pathlib import Path
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.engine.storage_secrets import STORAGE_SECRET
from tests.support.backends import catalogs
from tests.support.lakes import CANARY, MakeLake


@pytest.fixture(autouse=True)
def separate_working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))  # a lake without a storage creates its files here


SQLITE_MAGIC, DUCKDB_MAGIC = b"SQLite format 3\x00", b"DUCK"


@pytest.fixture
def embedded(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


class TestCatalogFiles:
    def test_a_sqlite_catalog_url_creates_a_sqlite_file(self, tmp_path: Path) -> None:
        for name, url in [("a", f"sqlite:///{tmp_path}/a"), ("b.duckdb", f"sqlite:///{tmp_path}/b.duckdb")]:
            DuckLake.from_url("x", catalog=url, create_if_missing=True).execute("SELECT 1").raise_for_error()
            assert (tmp_path / name).read_bytes()[:16] == SQLITE_MAGIC
        local = DuckLake.local(tmp_path / "c")
        local.execute("SELECT 1").raise_for_error()
        assert (tmp_path / "c.sqlite").read_bytes()[:16] == SQLITE_MAGIC

    def test_a_duckdb_catalog_url_creates_a_duckdb_file(self, tmp_path: Path) -> None:
        url = f"duckdb:///{tmp_path}/lake.sqlite"
        DuckLake.from_url("x", catalog=url, create_if_missing=True).execute("SELECT 1").raise_for_error()
        assert (tmp_path / "lake.sqlite").read_bytes()[8:12] == DUCKDB_MAGIC


@catalogs()
def test_hostile_values_in_password_path_and_alias_round_trip(make_lake: MakeLake) -> None:
    # Password and paths of the test lakes, and the alias here, contain quotes, spaces and semicolons.
    lake = make_lake(alias=f"al'i\"as; {CANARY}")
    lake.execute("CREATE TABLE t AS SELECT 'it''s; \"it\"' AS v").raise_for_error()
    read = lake.execute("SELECT v, current_database() AS lake FROM t").raise_for_error()
    assert read.rows == [{"v": 'it\'s; "it"', "lake": f"al'i\"as; {CANARY}"}]
    assert [table.table for table in lake.tables()] == ["t"]


def test_use_applies_to_the_connection_and_its_cursors(embedded: DuckLake) -> None:
    with embedded.connect() as con:
        for connection in (con, con.cursor(), con.cursor().cursor(), con.duplicate()):
            assert connection.execute("SELECT current_database()").fetchone() == ("lake",)
            connection.execute("CREATE OR REPLACE TABLE made AS SELECT 1 AS i")
    assert [str(t).split(":")[0] for t in embedded.tables()] == ["main.made"]


@catalogs()
def test_connecting_writes_no_option_to_the_shared_catalog(make_lake: MakeLake) -> None:
    def persisted(lake: DuckLake) -> list[Any]:
        with lake.connect_metadata() as con:
            return sorted(con.execute("FROM ducklake_metadata").fetchall(), key=str)

    lake = make_lake()
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    before = persisted(lake)
    options = {"expire_older_than": "1 day", "parquet_compression": "zstd"}
    configured = make_lake(options=options, settings={"threads": 1}, data_inlining_row_limit=7)
    with pytest.warns(errors.OptionDriftWarning):
        configured.execute("SELECT * FROM t").raise_for_error()
    for duck_lake in (lake, make_lake(read_only=True)):
        duck_lake.execute("SELECT * FROM t").raise_for_error()
        assert (len(duck_lake.tables()), len(duck_lake.table("t").history())) == (1, 1)
        assert duck_lake.options()
    assert persisted(lake) == before


class TestClosing:
    @catalogs()
    def test_a_connection_is_detached_before_it_closes_on_an_error(self, make_lake: MakeLake, tmp_path: Path) -> None:
        lake = make_lake()
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        with pytest.raises(duckdb.Error, match="nowhere"), lake.connect() as con:
            con.execute("BEGIN; INSERT INTO t VALUES (1); FROM nowhere")
        links = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        assert [link for link in links if link.startswith(str(tmp_path))] == []
        assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 0}]
        lake.truncate("t")

    def test_a_hundred_connections_leak_no_memory(self, embedded: DuckLake) -> None:
        def cycle(times: int) -> int:
            for _ in range(times):
                with embedded.connect() as con:
                    con.execute("SELECT count(*) FROM t").fetchall()
            gc.collect()
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            return pages * resource.getpagesize()

        embedded.execute("CREATE TABLE t AS SELECT range AS i FROM range(1000)").raise_for_error()
        before = cycle(20)
        assert cycle(100) - before < 20 * 2**20


SECRETS: list[tuple[str, dict[str, Any]]] = [
    ("s3 with keys", {"type": "s3", "access_key_id": "a", "secret_access_key": CANARY, "region": "eu-west-1"}),
    ("s3 with a token", {"type": "s3", "access_key_id": "a", "secret_access_key": "b", "session_token": CANARY}),
    ("s3 with a server", {"type": "s3", "access_key_id": "a", "secret_access_key": "b", "endpoint": "https://h:1"}),
    ("s3 with a key of kms", {"type": "s3", "secret_parameters": {"kms_key_id": CANARY}}),
    ("s3 with the chain", {"type": "s3", "provider": "credential_chain"}),
    ("s3 with a profile", {"type": "s3", "profile": "work"}),
    ("r2 with keys", {"type": "r2", "account_id": "acc", "access_key_id": "a", "secret_access_key": CANARY}),
    ("gcs with hmac", {"type": "gcs", "key_id": "a", "secret": CANARY}),
    ("gcs with the chain", {"type": "gcs", "provider": "credential_chain"}),
    ("azure with a key", {"type": "azure", "account_name": "acc", "account_key": "Y2FuYXJ5"}),
    ("azure with a string", {"type": "azure", "connection_string": "AccountName=acc;AccountKey=Y2FuYXJ5"}),
    (
        "azure with a principal",
        {"type": "azure", "account_name": "a", "tenant_id": "t", "client_id": "c", "client_secret": CANARY},
    ),
    ("azure with the chain", {"type": "azure", "account_name": "acc", "provider": "credential_chain"}),
    ("azure open to all", {"type": "azure", "account_name": "acc"}),
]


class TestStorageSecrets:
    """The extension knows every keyword of the secrets that ducklake-orch creates."""

    @pytest.fixture(autouse=True)
    def machine_credentials(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "config").write_text("[profile work]\nregion = eu-west-1\n")
        (tmp_path / "credentials").write_text("[work]\naws_access_key_id = a\naws_secret_access_key = b\n")
        for key, value in {
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": str(tmp_path / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        }.items():
            monkeypatch.setenv(key, value)

    @pytest.mark.parametrize(("name", "fields"), SECRETS, ids=[name for name, _ in SECRETS])
    def test_the_extension_accepts_every_storage_secret(
        self, name: str, fields: dict[str, Any], tmp_path: Path
    ) -> None:
        root = {"container": "c"} if fields["type"] == "azure" else {"bucket": "b"}
        lake = DuckLake.local(tmp_path / "lake", storage=STORAGES.read(fields | root))
        with lake.connect() as con:
            secret = con.execute(f"SELECT type, scope FROM duckdb_secrets() WHERE name = '{STORAGE_SECRET}'").fetchone()
        scheme = {"gcs": "gs", "azure": "az"}.get(fields["type"], fields["type"])
        assert secret == (fields["type"], [f"{scheme}://{'c' if scheme == 'az' else 'b'}/"])

    @pytest.mark.full  # the extension calls AWS at once, and waits half a minute without a network
    def test_the_extension_accepts_a_role_to_assume(self, tmp_path: Path) -> None:
        storage = STORAGES.read({"type": "s3", "bucket": "b", "role_arn": "arn:aws:iam::1:role/r"})
        lake = DuckLake.local(tmp_path / "lake", storage=storage)
        with pytest.raises(errors.AuthenticationError, match="Role-arn: 'arn:aws:iam::1:role/r'"):
            lake.execute("SELECT 1")


class TestWriting:
    @catalogs()
    def test_the_partition_spec_applies_to_the_first_rows(self, make_lake: MakeLake) -> None:
        lake = make_lake(data_inlining_row_limit=0)
        lake.create_table("events", {"ts": "timestamp", "i": "int"}, partition_by=["day(ts)", "bucket(4, i)"])
        days = "SELECT TIMESTAMP '2024-01-01' + INTERVAL (range % 3) DAY, range FROM range(60)"
        lake.execute(f"INSERT INTO events {days}").raise_for_error()
        with lake.connect_metadata() as con:
            files = con.execute("SELECT partition_id FROM ducklake_data_file").fetchall()
            values = con.execute("SELECT count(*) FROM ducklake_file_partition_value").fetchone()
        assert len(files) >= 3
        assert None not in [partition for (partition,) in files]
        assert values == (2 * len(files),)

    @catalogs()
    def test_the_same_table_name_in_two_schemas_stays_two_tables(self, lake: DuckLake) -> None:
        lake.create_table("a.t", {"x": "int"}, options={"parquet_compression": "zstd"})
        lake.create_table("b.t", {"y": "varchar", "x": "int"}, partition_by=["y"])
        lake.create_table("t", {"z": "int"})
        lake.execute("INSERT INTO a.t SELECT range FROM range(20)").raise_for_error()
        assert [c.name for c in lake.table("b.t").schema()] == ["y", "x"]
        assert [c.partition for c in lake.table("a.t").schema()] == [None]
        assert [c.name for c in lake.table("t").schema()] == ["z"]
        lake.drop_table("b.t")
        assert [str(t).split(":")[0] for t in lake.tables()] == ["a.t", "main.t"]
        assert lake.execute("SELECT count(*) AS n FROM a.t").rows == [{"n": 20}]
        assert [len(lake.table(name).history()) for name in ("a.t", "t")] == [2, 1]

    @catalogs(sql_writes=True)
    def test_an_atomic_delete_and_failed_insert_keep_the_rows(self, lake: DuckLake) -> None:
        lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(30)").raise_for_error()
        result = lake.execute(["DELETE FROM t", "INSERT INTO t SELECT error('no') FROM range(3)"], atomic=True)
        assert [command.status for command in result.commands] == ["skipped", "error"]
        assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 30}]
        assert len(lake.snapshots()) == 2

    @catalogs(sql_writes=True)
    def test_one_configuration_serves_many_threads(self, lake: DuckLake) -> None:
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        failures: list[BaseException] = []

        def work(number: int) -> None:
            try:
                lake.execute(f"INSERT INTO t VALUES ({number})").raise_for_error()
                assert lake.execute("SELECT 1 AS one").rows == [{"one": 1}]
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert lake.execute("SELECT count(*) AS n, sum(i) AS s FROM t").rows == [{"n": 6, "s": 15}]


@catalogs(pooled=True)
def test_a_pooled_connection_sees_the_first_deletions_of_another_writer(make_lake: MakeLake) -> None:
    reader, writer = make_lake(), make_lake(threads=2)
    writer.execute(["CREATE TABLE t (i INTEGER)", "INSERT INTO t SELECT i FROM range(50) r(i)"]).raise_for_error()
    assert reader.execute("SELECT count(*) AS n FROM t").rows == [{"n": 50}]
    writer.execute("DELETE FROM t WHERE i < 2").raise_for_error()  # creates the table of inlined deletions
    assert reader.execute("SELECT count(*) AS n, min(i) AS least FROM t").rows == [{"n": 48, "least": 2}]
