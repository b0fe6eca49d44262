"""Secrets never appear in outputs, logs, errors, previews, results or dumps. Only pickles contain them."""

import base64
import json
import logging
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb
import pytest

from ducklake_orch import DuckLake, LakeConfig, RetryPolicy, errors
from ducklake_orch.config.redaction import spellings
from tests.servers.azure import AzuriteServer
from tests.servers.base import LOOPBACK, free_port
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import VersityS3
from tests.support.backends import Backend, catalogs
from tests.support.lakes import CANARY

ROWS = "CREATE TABLE t AS SELECT range AS i FROM range(30)"
BROKEN: list[Any] = [
    {"type": "postgres", "host": "h", "passwrd": CANARY},
    {"type": "postgres", "host": "h", "password": [CANARY]},
    {"type": "postgres", "password": CANARY, "port": "no"},
    {"type": "mysql", "secret_name": "s", "password": CANARY},
    f"postgresql//me:{CANARY}@h/d",
    f"oracle://me:{CANARY}@h/d",
    f"postgresql://me:{quote(CANARY, safe='')}@h:port/d",
    f"mysql://me:{CANARY}@h/d?ssl_mode=no",
    f"mysql://me@h/d?pasword={CANARY}",
    f"md:db?tokn={CANARY}",
]


class Evidence:
    """All text that a user could see."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, *values: object) -> None:
        self.texts += [form for value in values for form in (str(value), repr(value))]

    def add_error(self, error: BaseException) -> None:
        """Add an error with its chain, its traceback, and its form after pickling."""
        seen: set[int] = set()
        chain: list[BaseException | None] = [error]
        self.texts += traceback.format_exception(error)
        while chain:
            current = chain.pop()
            if current is None or id(current) in seen:
                continue
            seen.add(id(current))
            self.add(current, current.args, vars(current), getattr(current, "__notes__", []))
            if isinstance(current, errors.DuckLakeOrchError):
                self.add(json.dumps(current.to_dict()), pickle.loads(pickle.dumps(current)))
            chain += [current.__cause__, current.__context__]

    def raised(self, work: Callable[[], object]) -> BaseException:
        """Run work that must fail, and add its error."""
        with pytest.raises(Exception) as caught:  # noqa: PT011 - any error may hold a secret
            work()
        self.add_error(caught.value)
        return caught.value

    def assert_clean(self, *secrets: str) -> None:
        forms = {form for secret in (CANARY, *secrets) for form in spellings(secret)} | {"canary"}
        for text in self.texts:
            assert [form for form in forms if form in text] == [], text


@pytest.fixture
def evidence(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> Iterator[Evidence]:
    caplog.set_level(logging.DEBUG)
    evidence = Evidence()
    yield evidence
    for record in caplog.records:
        evidence.add(record.getMessage(), record.args, record.exc_text or "")
    evidence.add(*capfd.readouterr(), *[warning.message for warning in recwarn.list])
    assert len(evidence.texts) > 4
    evidence.assert_clean()


def test_a_shown_or_dumped_configuration_has_no_secrets_and_a_pickled_one_has(evidence: Evidence) -> None:
    storage: dict[str, Any] = {"type": "s3", "bucket": "b", "access_key_id": "id", "secret_access_key": CANARY}
    storage |= {"session_token": CANARY, "secret_parameters": {"kms_key_id": CANARY}}
    for catalog in (
        {"type": "postgres", "host": "h", "user": "me", "password": CANARY},
        {"type": "mysql", "host": "h", "user": "me", "password": CANARY},
        {"type": "motherduck", "database": "db", "token": CANARY, "mode": "own_bucket"},
    ):
        config = LakeConfig(name="lake", catalog=catalog, storage=storage)
        lake = DuckLake(config)
        assert config.storage is not None
        evidence.add(lake, config, config.catalog, config.storage, config.catalog.to_url(), config.storage.to_url())
        evidence.add(config.model_dump(), config.model_dump_json(), config.model_dump(mode="json"), vars(config))
        evidence.add(lake.preview_sql(), lake.preview_sql(read_only=True), lake.origins)
        again = pickle.loads(pickle.dumps(config))
        assert again == config
        assert sorted(again.secret_values()) == sorted(config.secret_values()) == [CANARY] * 4
        assert pickle.loads(pickle.dumps(lake)).config == config


@pytest.mark.parametrize("catalog", BROKEN, ids=str)
def test_the_error_of_an_invalid_configuration_has_no_secret(catalog: Any, evidence: Evidence) -> None:
    error = evidence.raised(lambda: DuckLake.from_url("lake", catalog=catalog))
    assert isinstance(error, errors.ConfigError)


@catalogs(pooled=True)
class TestServers:
    """Engine errors contain the connection string; ducklake-orch errors do not."""

    @pytest.fixture(autouse=True)
    def initial_lake(self, lake: DuckLake) -> None:
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()

    def changed(self, lake: DuckLake, **fields: Any) -> DuckLake:
        catalog = lake.config.catalog.model_copy(update=fields)
        return DuckLake(lake.config.model_copy(update={"catalog": catalog}))

    def test_successful_work_shows_no_secret(self, lake: DuckLake, evidence: Evidence) -> None:
        result = lake.execute(["SELECT 1 AS one", "INSERT INTO t VALUES (1)", "CALL lake.options()"])
        evidence.add(result, json.dumps(result.to_dict()), lake, lake.tables(), lake.snapshots(), lake.options())
        with lake.connect() as con:
            evidence.add(con, con.execute("FROM duckdb_secrets()").fetchall())
            evidence.add(con.execute("SELECT path FROM duckdb_databases()").fetchall())
            evidence.add(con.execute("FROM duckdb_settings()").fetchall())
        evidence.add(DuckLake.list_lakes(lake.config.catalog))

    def test_a_missing_server_database_or_user_shows_no_secret(self, lake: DuckLake, evidence: Evidence) -> None:
        for fields in (
            {"port": free_port()},
            {"host": "no-such-host.invalid"},
            {"database": "nowhere"},
            {"user": "no"},
        ):
            changed = self.changed(lake, **fields)
            evidence.raised(lambda lake=changed: lake.execute("SELECT 1"))  # type: ignore[misc]
            evidence.raised(lambda lake=changed: lake.connect_metadata().__enter__())  # type: ignore[misc]
            evidence.raised(lambda lake=changed: DuckLake.list_lakes(lake.config.catalog))  # type: ignore[misc]

    def test_a_server_lost_during_a_transaction_shows_no_secret(
        self, lake: DuckLake, backend: Backend, evidence: Evidence, request: pytest.FixtureRequest
    ) -> None:
        kill = self.kill(lake, backend, request)
        with lake.connect() as con:
            evidence.raised(lambda: self.lose(con, kill))  # the error inside the block …
        with pytest.raises(duckdb.Error) as caught, lake.connect() as con:
            self.lose(con, kill)
        evidence.add_error(caught.value)  # … and outside the block

    def lose(self, con: duckdb.DuckDBPyConnection, kill: Callable[[], None]) -> None:
        con.execute("BEGIN; INSERT INTO t VALUES (1)")
        kill()
        con.execute("COMMIT")

    def kill(self, lake: DuckLake, backend: Backend, request: pytest.FixtureRequest) -> Callable[[], None]:
        database = str(lake.config.catalog.database)  # type: ignore[union-attr]
        if backend.catalog.name == "postgres":
            postgres: PostgresServer = request.getfixturevalue("postgres")
            return lambda: postgres.terminate_backends(database)
        mariadb: MariaDBServer = request.getfixturevalue("mariadb")
        return lambda: mariadb.kill_connections(database)

    def test_failing_statements_with_secrets_show_no_secret(self, lake: DuckLake, evidence: Evidence) -> None:
        lake = DuckLake(lake.config.model_copy(update={"extensions": ["httpfs", "postgres_scanner"]}))
        # A secret of the lake, and one unknown to ducklake-orch.
        for secret in (CANARY.replace("'", "''"), "other-canary"):
            for sql in (
                f"CREATE SECRET s (TYPE s3, SECRET '{secret}', NO_SUCH 'x')",
                f"CREATE SECRET s (TYPE s3 SECRET '{secret}')",
                f"create or replace persistent secret s in nowhere (type s3, secret $${secret}$$)",
                f"CREATE SECRET s (TYPE s3, SECRET '{secret}",
                f"ATTACH 'host={LOOPBACK} port=1 password=''{secret}''' AS x (TYPE postgres)",
                f"ATTACH 'postgres:postgresql://me:{secret}@{LOOPBACK}:1/d' AS x",
                f"SET s3_secret_access_key = '{secret}'; FROM nowhere",
            ):
                result = lake.execute(sql)
                evidence.add(result, json.dumps(result.to_dict()))
                assert result.status == "error"
                evidence.raised(result.raise_for_error)
                with lake.connect() as con:
                    evidence.add(con)


class TestStorages:
    def fails(self, evidence: Evidence, folder: Path, storage: dict[str, Any]) -> None:
        lake = DuckLake.local(folder / "lake", storage=storage, retry=RetryPolicy(max_attempts=1))
        result = lake.execute(ROWS)
        evidence.add(lake, result, json.dumps(result.to_dict()), lake.preview_sql())
        evidence.raised(result.raise_for_error)
        with pytest.raises(duckdb.Error) as caught, lake.connect() as con:
            con.execute(ROWS)
        evidence.add_error(caught.value)

    def test_wrong_s3_keys_show_no_secret(self, versity_s3: VersityS3, tmp_path: Path, evidence: Evidence) -> None:
        storage = {"type": "s3", "bucket": "b-b", "endpoint": f"http://{versity_s3.endpoint}", "region": "us-east-1"}
        login = {"access_key_id": versity_s3.access_key_id, "secret_access_key": CANARY, "session_token": CANARY}
        self.fails(evidence, tmp_path, storage | login)

    def test_a_wrong_azure_key_shows_no_secret(
        self, azurite: AzuriteServer, tmp_path: Path, evidence: Evidence
    ) -> None:
        for key in (base64.b64encode(CANARY.encode()).decode(), CANARY):
            text = azurite.connection_string.replace(azurite.account_key, key)
            self.fails(evidence, tmp_path, {"type": "azure", "container": "c-c", "connection_string": text})
            evidence.assert_clean(key)


def test_the_traceback_of_a_failed_program_shows_no_secret(tmp_path: Path) -> None:
    code = f"""
import logging
logging.basicConfig(level=logging.DEBUG)
from ducklake_orch import DuckLake
lake = DuckLake.from_url("lake", catalog={{"type": "postgres", "host": "{LOOPBACK}", "port": {free_port()},
                         "user": "me", "password": {CANARY!r}}}, storage={str(tmp_path)!r})
print(lake, lake.config, lake.preview_sql())
lake.execute("SELECT 1")
"""
    run = subprocess.run([sys.executable, "-X", "dev", "-c", code], capture_output=True, text=True, check=False)
    assert "CatalogUnreachableError" in run.stderr
    assert "Connection refused" in run.stderr
    evidence = Evidence()
    evidence.add(run.stdout, run.stderr)
    evidence.assert_clean()
