"""No secret is ever seen: not in outputs, logs, errors, previews, results or dumps. Only pickles carry them."""

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
    """Everything that a person could get to see."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def add(self, *values: object) -> None:
        self.texts += [form for value in values for form in (str(value), repr(value))]

    def add_error(self, error: BaseException) -> None:
        """Add an error, whatever is chained to it, its traceback, and how it looks in another process."""
        seen: set[int] = set()
        chain: list[BaseException | None] = [error]
        self.texts += traceback.format_exception(error)
        while chain:
            one = chain.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            self.add(one, one.args, vars(one), getattr(one, "__notes__", []))
            if isinstance(one, errors.DuckLakeOrchError):
                self.add(json.dumps(one.to_dict()), pickle.loads(pickle.dumps(one)))
            chain += [one.__cause__, one.__context__]

    def raised(self, work: Callable[[], object]) -> BaseException:
        """Run what must fail, and add its error."""
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
    found = Evidence()
    yield found
    for record in caplog.records:
        found.add(record.getMessage(), record.args, record.exc_text or "")
    found.add(*capfd.readouterr(), *[warning.message for warning in recwarn.list])
    assert len(found.texts) > 4
    found.assert_clean()


def test_configuration_is_shown_and_dumped_without_secrets_and_pickled_with_them(evidence: Evidence) -> None:
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
def test_a_broken_configuration_does_not_show_its_secret(catalog: Any, evidence: Evidence) -> None:
    error = evidence.raised(lambda: DuckLake.from_url("lake", catalog=catalog))
    assert isinstance(error, errors.ConfigError)


@catalogs(pooled=True)
class TestServers:
    """Engine errors hold the whole connection string; ours do not."""

    @pytest.fixture(autouse=True)
    def at_first(self, lake: DuckLake) -> None:
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()

    def changed(self, lake: DuckLake, **fields: Any) -> DuckLake:
        catalog = lake.config.catalog.model_copy(update=fields)
        return DuckLake(lake.config.model_copy(update={"catalog": catalog}))

    def test_work_that_succeeds(self, lake: DuckLake, evidence: Evidence) -> None:
        result = lake.execute(["SELECT 1 AS one", "INSERT INTO t VALUES (1)", "CALL lake.options()"])
        evidence.add(result, json.dumps(result.to_dict()), lake, lake.tables(), lake.snapshots(), lake.options())
        with lake.connect() as con:
            evidence.add(con, con.execute("FROM duckdb_secrets()").fetchall())
            evidence.add(con.execute("SELECT path FROM duckdb_databases()").fetchall())
            evidence.add(con.execute("FROM duckdb_settings()").fetchall())
        evidence.add(DuckLake.list_lakes(lake.config.catalog))

    def test_a_server_a_database_or_a_user_that_is_not_there(self, lake: DuckLake, evidence: Evidence) -> None:
        for fields in (
            {"port": free_port()},
            {"host": "no-such-host.invalid"},
            {"database": "nowhere"},
            {"user": "no"},
        ):
            other = self.changed(lake, **fields)
            evidence.raised(lambda one=other: one.execute("SELECT 1"))  # type: ignore[misc]
            evidence.raised(lambda one=other: one.connect_metadata().__enter__())  # type: ignore[misc]
            evidence.raised(lambda one=other: DuckLake.list_lakes(one.config.catalog))  # type: ignore[misc]

    def test_a_server_that_goes_away_in_the_middle(
        self, lake: DuckLake, backend: Backend, evidence: Evidence, request: pytest.FixtureRequest
    ) -> None:
        kill = self.kill(lake, backend, request)
        with lake.connect() as con:
            evidence.raised(lambda: self.lose(con, kill))  # as the user sees it inside the block …
        with pytest.raises(duckdb.Error) as caught, lake.connect() as con:
            self.lose(con, kill)
        evidence.add_error(caught.value)  # … and outside of it

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

    def test_statements_with_secrets_that_fail(self, lake: DuckLake, evidence: Evidence) -> None:
        lake = DuckLake(lake.config.model_copy(update={"extensions": ["httpfs", "postgres_scanner"]}))
        # The lake's own secret, and one that the package has never heard of.
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

    def test_s3_with_wrong_keys(self, versity_s3: VersityS3, tmp_path: Path, evidence: Evidence) -> None:
        storage = {"type": "s3", "bucket": "b-b", "endpoint": f"http://{versity_s3.endpoint}", "region": "us-east-1"}
        login = {"access_key_id": versity_s3.access_key_id, "secret_access_key": CANARY, "session_token": CANARY}
        self.fails(evidence, tmp_path, storage | login)

    def test_azure_with_a_wrong_key(self, azurite: AzuriteServer, tmp_path: Path, evidence: Evidence) -> None:
        for key in (base64.b64encode(CANARY.encode()).decode(), CANARY):
            text = azurite.connection_string.replace(azurite.account_key, key)
            self.fails(evidence, tmp_path, {"type": "azure", "container": "c-c", "connection_string": text})
            evidence.assert_clean(key)


def test_a_program_that_dies_of_an_error_prints_no_secret(tmp_path: Path) -> None:
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
    found = Evidence()
    found.add(run.stdout, run.stderr)
    found.assert_clean()
