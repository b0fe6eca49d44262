"""The exact SQL that opens a lake, for every catalog, every storage and the three modes of MotherDuck."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake, LakeConfig
from ducklake_orch.engine.attach import Access, preview
from ducklake_orch.engine.dialects import dialect_of

SQLITE = "sqlite:////data/lake.sqlite"
KEYS = "access_key_id=id&secret_access_key=canary"
WAL = "META_BUSY_TIMEOUT 30000, META_JOURNAL_MODE 'WAL'"


def statements(name: str = "sales", *, create: bool = True, **fields: Any) -> list[str]:
    return DuckLake(LakeConfig(name=name, create_if_missing=create, **fields)).preview_sql().splitlines()


def attach_of(**fields: Any) -> str:
    return statements(**({"storage": "/data/files"} | fields))[-2]


def secrets_of(**fields: Any) -> list[str]:
    return [
        statement for statement in statements(**({"catalog": SQLITE} | fields)) if "SECRET" in statement.split("(")[0]
    ]


def test_a_preview_loads_extensions_applies_settings_attaches_and_uses_the_lake() -> None:
    assert statements(catalog=SQLITE, storage="/data/files", settings={"threads": 2}, extensions=["httpfs"]) == [
        'LOAD "ducklake";',
        'LOAD "sqlite_scanner";',
        'LOAD "httpfs";',
        'SET GLOBAL "sqlite_disable_multithreaded_scans" = true;',
        'SET GLOBAL "threads" = 2;',
        "SET GLOBAL TimeZone = 'UTC';",
        f"ATTACH 'ducklake:sqlite:/data/lake.sqlite' AS \"sales\" (DATA_PATH '/data/files/', {WAL});",
        'USE "sales";',
    ]


@pytest.mark.parametrize(
    ("catalog", "expected"),
    [
        (
            SQLITE,
            f"ATTACH 'ducklake:sqlite:/data/lake.sqlite' AS \"sales\" (DATA_PATH '/data/files/', {WAL});",
        ),
        (
            'sqlite:////it\'s "here"/a b.sqlite?busy_timeout=5',
            "ATTACH 'ducklake:sqlite:/it''s \"here\"/a b.sqlite' AS \"sales\" (DATA_PATH '/data/files/',"
            " META_BUSY_TIMEOUT 5, META_JOURNAL_MODE 'WAL');",
        ),
        (
            "duckdb:////data/lake.ducklake",
            "ATTACH 'ducklake:/data/lake.ducklake' AS \"sales\" (DATA_PATH '/data/files/', META_TYPE 'duckdb');",
        ),
        (
            "postgresql://me:canary@db:5433/cat?sslmode=require&options=-c%20search_path%3Dx&sslrootcert=/a%20b",
            "ATTACH 'ducklake:postgres:application_name=''ducklake-orch'' sslmode=''require''"
            " options=''-c search_path=x'' sslrootcert=''/a b''' AS \"sales\" (DATA_PATH '/data/files/',"
            " META_SECRET 'ducklake_orch_catalog');",
        ),
        (
            "postgresql:///?secret_name=of%20mine",
            "ATTACH 'ducklake:postgres:application_name=''ducklake-orch''' AS \"sales\" (DATA_PATH '/data/files/',"
            " META_SECRET 'of mine');",
        ),
        (
            "mysql://me:canary@db/cat",
            "ATTACH 'ducklake:mysql:' AS \"sales\" (DATA_PATH '/data/files/', META_SECRET 'ducklake_orch_catalog');",
        ),
    ],
)
def test_each_catalog_is_attached_without_credentials_in_the_statement(catalog: str, expected: str) -> None:
    assert attach_of(catalog=catalog) == expected


@pytest.mark.parametrize(
    ("catalog", "expected"),
    [
        ("postgresql://me:canary@db:5433/cat", "TYPE postgres, HOST 'db', PORT 5433, DATABASE 'cat', USER 'me'"),
        ("postgresql://me:canary@/cat?host=/run/pg", "TYPE postgres, HOST '/run/pg', DATABASE 'cat', USER 'me'"),
        ("mysql://me:canary@db:3307/cat", "TYPE mysql, HOST 'db', PORT 3307, DATABASE 'cat', USER 'me'"),
    ],
)
def test_server_credentials_are_in_a_temporary_secret(catalog: str, expected: str) -> None:
    secret = f"CREATE OR REPLACE TEMPORARY SECRET \"ducklake_orch_catalog\" ({expected}, PASSWORD '***');"
    assert secrets_of(catalog=catalog, storage="/data") == [secret]


def test_an_existing_secret_is_not_created_again() -> None:
    assert secrets_of(catalog="mysql:///?secret_name=mine", storage="s3://bucket?secret_name=theirs") == []


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        (
            f"s3://bucket/pre/fix?{KEYS}&session_token=canary&region=eu-west-1",
            "TYPE s3, KEY_ID 'id', SECRET '***', SESSION_TOKEN '***', REGION 'eu-west-1', SCOPE 's3://bucket/'",
        ),
        (
            f"s3a://bucket?{KEYS}&endpoint=http://127.0.0.1:9000",
            "TYPE s3, KEY_ID 'id', SECRET '***', SESSION_TOKEN '', ENDPOINT '127.0.0.1:9000', URL_STYLE 'path',"
            " USE_SSL false, SCOPE 's3://bucket/'",
        ),
        ("s3://bucket?provider=credential_chain", "TYPE s3, PROVIDER credential_chain, SCOPE 's3://bucket/'"),
        (
            "s3://bucket?profile=work",
            "TYPE s3, PROVIDER credential_chain, CHAIN 'config;sso', PROFILE 'work', SCOPE 's3://bucket/'",
        ),
        (
            "s3://bucket?role_arn=arn:aws:iam::1:role/r",
            "TYPE s3, PROVIDER credential_chain, CHAIN 'sts', ASSUME_ROLE_ARN 'arn:aws:iam::1:role/r',"
            " SCOPE 's3://bucket/'",
        ),
        (
            {"type": "s3", "bucket": "b", "scope": "s3://b/x/", "secret_parameters": {"kms_key_id": "canary"}},
            "TYPE s3, SCOPE 's3://b/x/', KMS_KEY_ID '***'",
        ),
        (
            f"r2://bucket?account_id=acc&{KEYS}",
            "TYPE r2, ACCOUNT_ID 'acc', KEY_ID 'id', SECRET '***', SESSION_TOKEN '', SCOPE 'r2://bucket/'",
        ),
        (
            "r2://bucket?account_id=acc&provider=credential_chain",
            "TYPE r2, PROVIDER credential_chain, ACCOUNT_ID 'acc', SCOPE 'r2://bucket/'",
        ),
        (
            {"type": "gcs", "bucket": "b", "secret_parameters": {"provider": "credential_chain"}},
            "TYPE gcs, PROVIDER '***', SCOPE 'gs://b/'",
        ),
        (
            "gs://bucket?key_id=id&secret=canary",
            "TYPE gcs, KEY_ID 'id', SECRET '***', SESSION_TOKEN '', SCOPE 'gs://bucket/'",
        ),
        ("gs://bucket", "TYPE gcs, KEY_ID '', SECRET '', SESSION_TOKEN '', SCOPE 'gs://bucket/'"),
        ("gcs://bucket?provider=credential_chain", "TYPE gcs, PROVIDER credential_chain, SCOPE 'gs://bucket/'"),
        (
            "az://container?account_name=acc&account_key=canary",
            "TYPE azure, CONNECTION_STRING '***', SCOPE 'az://container/'",
        ),
        (
            "abfss://container@acc.dfs.core.windows.net/p?provider=credential_chain",
            "TYPE azure, ACCOUNT_NAME 'acc', PROVIDER credential_chain, SCOPE 'az://container/'",
        ),
        (
            "az://container?account_name=acc&tenant_id=t&client_id=c&client_secret=canary",
            "TYPE azure, ACCOUNT_NAME 'acc', PROVIDER service_principal, TENANT_ID 't', CLIENT_ID 'c',"
            " CLIENT_SECRET '***', SCOPE 'az://container/'",
        ),
    ],
)
def test_storage_credentials_are_in_a_secret_scoped_to_the_bucket(storage: Any, expected: str) -> None:
    assert secrets_of(storage=storage) == [f'CREATE OR REPLACE TEMPORARY SECRET "ducklake_orch_storage" ({expected});']


def test_attach_options_are_in_the_attach_statement() -> None:
    text = attach_of(
        catalog="duckdb:////a",
        alias="my lake",
        metadata_schema="x",
        encrypted=True,
        data_inlining_row_limit=0,
        override_data_path=True,
        automatic_migration=True,
        attach_options={"metadata_catalog": "m", "META_X": 1, "metadata_parameters": {"a'b": True}},
    )
    assert text == (
        "ATTACH 'ducklake:/a' AS \"my lake\" (DATA_PATH '/data/files/', METADATA_SCHEMA 'x', META_TYPE 'duckdb',"
        " ENCRYPTED true, DATA_INLINING_ROW_LIMIT 0, OVERRIDE_DATA_PATH true, AUTOMATIC_MIGRATION true,"
        " METADATA_CATALOG 'm', META_X 1, METADATA_PARAMETERS MAP {'a''b': 'True'});"
    )


@pytest.mark.parametrize(
    ("access", "expected"),
    [
        (Access(), "META_TYPE 'duckdb'"),
        (Access(read_only=True), "META_TYPE 'duckdb', READ_ONLY true, CREATE_IF_NOT_EXISTS false"),
        (Access(snapshot=3), "META_TYPE 'duckdb', SNAPSHOT_VERSION 3, CREATE_IF_NOT_EXISTS false"),
        (
            Access(as_of=datetime(2024, 2, 3, 4, 5, 6, tzinfo=UTC)),
            "META_TYPE 'duckdb', SNAPSHOT_TIME '2024-02-03 04:05:06+00:00', CREATE_IF_NOT_EXISTS false",
        ),
    ],
)
def test_a_reader_is_pinned_and_never_creates(access: Access, expected: str) -> None:
    config = LakeConfig(name="sales", catalog="duckdb:////a", storage="/f", create_if_missing=True)
    assert f"(DATA_PATH '/f/', {expected});" in preview(config, access)


def test_without_create_if_missing_attach_disables_creation() -> None:
    assert attach_of(catalog="duckdb:////a", create=False).endswith("META_TYPE 'duckdb', CREATE_IF_NOT_EXISTS false);")


class TestMotherDuck:
    """The statements follow the documentation of MotherDuck, with quoted names and texts."""

    bucket = f"s3://mybucket/my_optional_path?{KEYS}&region=us-east-1"
    secret = (
        "CREATE OR REPLACE SECRET \"ducklake_orch_my_ducklake\" IN MOTHERDUCK (TYPE s3, KEY_ID 'id', SECRET '***',"
        " REGION 'us-east-1', SCOPE 's3://mybucket/');"
    )

    def of(self, url: str, **fields: Any) -> list[str]:
        """Return the statements after those for extensions and time zone."""
        lines = statements(**({"name": "my_ducklake", "catalog": url} | fields))
        return lines[lines.index("SET GLOBAL TimeZone = 'UTC';") + 1 :]

    def test_a_managed_lake_is_created_with_its_inlining_limit(self) -> None:
        assert self.of("md:my_ducklake") == [
            "ATTACH 'md:';",
            'CREATE DATABASE "my_ducklake" (TYPE DUCKLAKE);',
            'USE "my_ducklake";',
        ]
        create = self.of("md:my_ducklake", data_inlining_row_limit=100)[1]
        assert create == 'CREATE DATABASE "my_ducklake" (TYPE DUCKLAKE, DATA_INLINING_ROW_LIMIT 100);'

    def test_an_existing_managed_lake_is_attached_by_name(self) -> None:
        assert self.of("md:my_ducklake?token=canary", create=False) == [
            "SET motherduck_token = '***';",
            "ATTACH 'md:my_ducklake';",
            'USE "my_ducklake";',
        ]

    def test_an_own_bucket_gets_a_secret_at_motherduck_after_connecting(self) -> None:
        assert self.of("md:my_ducklake?mode=own_bucket", storage=self.bucket) == [
            "ATTACH 'md:';",
            self.secret,
            "CREATE DATABASE \"my_ducklake\" (TYPE DUCKLAKE, DATA_PATH 's3://mybucket/my_optional_path/');",
            'USE "my_ducklake";',
        ]

    @pytest.mark.parametrize(
        ("storage", "expected"),
        [
            (
                f"r2://mybucket?account_id=acc&{KEYS}",
                "TYPE r2, ACCOUNT_ID 'acc', KEY_ID 'id', SECRET '***', SCOPE 'r2://mybucket/'",
            ),
            (
                "s3://mybucket?profile=work",
                "TYPE s3, PROVIDER credential_chain, CHAIN 'sso', PROFILE 'work', SCOPE 's3://mybucket/'",
            ),
        ],
    )
    def test_the_secret_may_be_for_r2_or_from_a_profile(self, storage: str, expected: str) -> None:
        secret = f'CREATE OR REPLACE SECRET "ducklake_orch_my_ducklake" IN MOTHERDUCK ({expected});'
        assert secret in self.of("md:my_ducklake?mode=own_bucket", storage=storage)

    def test_an_existing_motherduck_secret_is_not_created_again(self) -> None:
        lines = self.of("md:my_ducklake?mode=own_bucket&secret_name=theirs", storage="s3://mybucket")
        assert [line for line in lines if "SECRET" in line] == []

    def test_own_compute_attaches_the_metadata_through_ducklake(self) -> None:
        fields = {"storage": self.bucket, "alias": "my alias", "create": False}
        attach = (
            "ATTACH 'ducklake:md:__ducklake_metadata_my_ducklake' AS \"my alias\""
            " (DATA_PATH 's3://mybucket/my_optional_path/', CREATE_IF_NOT_EXISTS false);"
        )
        secret = self.secret.replace("orch_my_ducklake", "orch_my alias")
        lines = self.of("md:my_ducklake?mode=own_compute", **fields)
        assert lines == ["ATTACH 'md:';", secret, attach, 'USE "my alias";']

    def test_the_metadata_database_is_attached_for_inspection(self) -> None:
        config = LakeConfig(name="my_ducklake", catalog="md:my_ducklake")
        sql = dialect_of(config).metadata_attach("meta", read_only=True)
        assert sql == "ATTACH 'md:__ducklake_metadata_my_ducklake' AS \"meta\""


def test_a_preview_needs_neither_engine_nor_network() -> None:
    code = """
import sys
class Refuse:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("duckdb", "_duckdb", "pyarrow"):
            raise AssertionError(f"imported {name}")
def refuse_network(event, args):
    if event.startswith("socket."):
        raise AssertionError(event)
sys.meta_path.insert(0, Refuse())
sys.addaudithook(refuse_network)
from ducklake_orch import DuckLake
print(DuckLake.from_url("lake", catalog="postgresql://u:canary@h/d", storage="s3://b").preview_sql())
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "ATTACH 'ducklake:postgres:" in run.stdout
    assert "canary" not in run.stdout


def test_connect_runs_the_previewed_statements_with_secrets_filled_in(tmp_path: Path) -> None:
    log = tmp_path / "queries.log"
    storage = f"s3://bucket/prefix?{KEYS}&endpoint=127.0.0.1:1"
    # The engine logs all queries after this setting.
    lake = DuckLake.local(tmp_path / "lake", storage=storage, settings={"log_query_path": str(log), "threads": 2})
    with lake.connect() as con:
        assert con.execute("SELECT current_database()").fetchone() == ("lake",)
    shown = lake.preview_sql().splitlines()
    position = shown.index(f"SET GLOBAL \"log_query_path\" = '{log}';")
    *wanted, enter = [line.rstrip(";").replace("'***'", "'canary'") for line in shown[position + 1 :]]
    assert [line for line in log.read_text().splitlines() if line in wanted] == wanted
    assert enter == 'USE "lake"'
