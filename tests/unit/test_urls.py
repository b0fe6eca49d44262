"""URLs of catalogs and storages round-trip, and the error for an invalid URL names the mistake."""

from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from hypothesis import given, settings
from hypothesis import strategies as st

from ducklake_orch.config.catalogs import (
    CATALOGS,
    DuckDBCatalog,
    MotherDuckCatalog,
    MySQLCatalog,
    PostgresCatalog,
    SQLiteCatalog,
)
from ducklake_orch.config.storages import STORAGES, AzureStorage, GCSStorage, LocalStorage, R2Storage, S3Storage
from ducklake_orch.errors import ConfigError

# Any text that a password generator or a user might choose.
HOSTILE = ["'", '"', ";", "\\", " ", "@", "/", "%", "?", "#", "&", "=", ":", "+", "ü", "日本", "%41", "p'a\"s;s\\w @/%"]
samples = settings(max_examples=60, deadline=None, derandomize=True, database=None)
texts = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=20))
hosts = st.sampled_from(["localhost", "db.example.com", "10.0.0.1", "::1", "/var/run/postgresql", "/tmp/my socket"])
ports = st.one_of(st.none(), st.integers(1, 65535))
file_names = texts.map(lambda t: t.replace("/", "").replace("\x00", "")).filter(lambda t: t.strip(".") != "")
prefixes = st.lists(texts.filter(lambda t: "/" not in t and t not in {".", ".."}), max_size=3).map("/".join)
buckets = st.sampled_from(["bucket", "my-bucket.example", "b_1"])


def round_trips(model: Any, read: Any) -> bool:
    return bool(read(model.to_url(reveal=True)) == model)


class TestEveryUrlFormRoundTrips:
    @samples
    @given(host=hosts, port=ports, user=texts, password=st.none() | texts, database=texts, options=st.none() | texts)
    def test_postgres_round_trips(
        self, host: str, port: int | None, user: str, password: str | None, database: str, options: str | None
    ) -> None:
        model = PostgresCatalog(
            host=host, port=port, user=user, password=password, database=database, options=options, sslmode="require"
        )
        assert round_trips(model, CATALOGS.read)

    @samples
    @given(password=texts, root=texts)
    def test_postgres_with_libpq_parameters_round_trips(self, password: str, root: str) -> None:
        parameters = {"sslrootcert": root, "application_name": "a b"}
        model = PostgresCatalog(host="h", password=password, parameters=parameters, service=root)
        assert round_trips(model, CATALOGS.read)

    @samples
    @given(host=hosts, port=ports, user=texts, password=texts, database=texts, file=file_names)
    def test_mysql_round_trips(
        self, host: str, port: int | None, user: str, password: str, database: str, file: str
    ) -> None:
        login: dict[str, Any] = {"host": host, "port": port, "user": user, "password": password, "database": database}
        files = {name: Path(file) for name in ("ssl_ca", "ssl_cert", "ssl_key")}
        model = MySQLCatalog(**login, ssl_mode="verify_ca", **files)
        assert round_trips(model, CATALOGS.read)

    @samples
    @given(
        database=texts.filter(lambda t: not t.startswith("/")),
        token=st.none() | texts,
        mode=st.sampled_from(["managed", "own_bucket", "own_compute"]),
    )
    def test_motherduck_round_trips(self, database: str, token: str | None, mode: Any) -> None:
        assert round_trips(MotherDuckCatalog(database=database, token=token, mode=mode, region="eu"), CATALOGS.read)

    @samples
    @given(name=file_names, absolute=st.booleans())
    def test_file_catalogs_round_trip(self, name: str, absolute: bool) -> None:
        path = Path("/data" if absolute else "data") / name
        assert round_trips(SQLiteCatalog(path=path, busy_timeout=5), CATALOGS.read)
        assert round_trips(DuckDBCatalog(path=path), CATALOGS.read)

    @samples
    @given(name=file_names)
    def test_local_storage_round_trips(self, name: str) -> None:
        assert round_trips(LocalStorage(path=Path("/data") / name), STORAGES.read)

    @samples
    @given(bucket=buckets, prefix=prefixes, key=texts, secret=texts, token=st.none() | texts)
    def test_s3_round_trips(self, bucket: str, prefix: str, key: str, secret: str, token: str | None) -> None:
        model = S3Storage(
            bucket=bucket,
            prefix=prefix,
            access_key_id=key,
            secret_access_key=secret,
            session_token=token,
            endpoint="http://localhost:9000",
            url_style="path",
        )
        assert round_trips(model, STORAGES.read)

    @samples
    @given(prefix=prefixes, secret=texts)
    def test_r2_round_trips(self, prefix: str, secret: str) -> None:
        model = R2Storage(account_id="acc", bucket="b", prefix=prefix, access_key_id="k", secret_access_key=secret)
        assert round_trips(model, STORAGES.read)

    @samples
    @given(prefix=prefixes, secret=texts)
    def test_gcs_round_trips(self, prefix: str, secret: str) -> None:
        assert round_trips(GCSStorage(bucket="b", prefix=prefix, key_id="k", secret=secret), STORAGES.read)

    @samples
    @given(prefix=prefixes, key=texts)
    def test_azure_round_trips(self, prefix: str, key: str) -> None:
        model = AzureStorage(container="c", prefix=prefix, account_name="acc", account_key=key)
        assert round_trips(model, STORAGES.read)

    def test_a_url_without_reveal_has_no_secret(self) -> None:
        model = PostgresCatalog(host="h", user="u", password="canary")
        assert model.to_url() == "postgresql://u:***@h"


class TestPostgresUrls:
    @pytest.mark.parametrize("scheme", ["postgresql", "postgres", "POSTGRES", "postgresql+psycopg"])
    def test_both_schemes_are_equivalent(self, scheme: str) -> None:
        model = CATALOGS.read(f"{scheme}://loader:pass@localhost:5432/db?sslmode=require")
        assert model == PostgresCatalog(
            host="localhost", port=5432, user="loader", password="pass", database="db", sslmode="require"
        )

    @pytest.mark.parametrize("password", ["p@ss", "p/w", "p?x=1", "a#b", "a:b", "p@h:5432/x", "p%zz", "p ' \" ; \\"])
    def test_a_password_may_be_unencoded(self, password: str) -> None:
        model = CATALOGS.read(f"postgresql://u:{password}@db.example.com:5432/lake?sslmode=require")
        assert model.password.get_secret_value() == password
        assert (model.user, model.host, model.port, model.database) == ("u", "db.example.com", 5432, "lake")

    def test_a_percent_encoded_password_is_decoded(self) -> None:
        assert CATALOGS.read("postgresql://u:p%40s%2Fs@h/db").password.get_secret_value() == "p@s/s"

    def test_the_host_may_be_a_socket_folder(self) -> None:
        model = CATALOGS.read("postgresql://postgres:@/lake?host=/var/run/postgresql")
        assert (model.user, model.host, model.database) == ("postgres", "/var/run/postgresql", "lake")
        assert model.password.get_secret_value() == ""

    def test_the_database_may_be_a_parameter(self) -> None:
        assert CATALOGS.read("postgresql://h?dbname=lake").database == "lake"

    def test_an_ipv6_host_is_in_brackets(self) -> None:
        model = CATALOGS.read("postgresql://u@[::1]:5432/db")
        assert (model.host, model.port) == ("::1", 5432)

    def test_libpq_parameters_are_kept(self) -> None:
        assert CATALOGS.read("postgresql://h/db?connect_timeout=5").parameters == {"connect_timeout": "5"}

    def test_the_error_for_an_unknown_postgres_parameter_suggests_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"`sslmod`.*Did you mean `sslmode`"):
            CATALOGS.read("postgresql://h/db?sslmod=require")

    def test_a_repeated_parameter_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="`sslmode` is given twice"):
            CATALOGS.read("postgresql://h/db?sslmode=require&sslmode=disable")

    @pytest.mark.parametrize("port", ["0", "65536", "http", "²"])
    def test_a_port_is_a_number_in_range(self, port: str) -> None:
        with pytest.raises(ConfigError, match="port"):
            CATALOGS.read(f"postgresql://h:{port}/db")


class TestFileUrls:
    @pytest.mark.parametrize(
        ("url", "path"),
        [
            ("sqlite:///lake.sqlite", "lake.sqlite"),
            ("sqlite:///sub/lake.sqlite", "sub/lake.sqlite"),
            ("sqlite:////data/lake.sqlite", "/data/lake.sqlite"),
            ("sqlite:////data/my lake's.sqlite", "/data/my lake's.sqlite"),
            ("sqlite:////data/my%20lake%27s.sqlite", "/data/my lake's.sqlite"),
            ("sqlite:////data/what?.sqlite", "/data/what?.sqlite"),
            ("sqlite:////data/%C3%BC.sqlite", "/data/ü.sqlite"),
        ],
    )
    def test_three_slashes_are_relative_and_four_absolute(self, url: str, path: str) -> None:
        assert CATALOGS.read(url) == SQLiteCatalog(path=Path(path))
        assert CATALOGS.read(url.replace("sqlite:", "duckdb:")).path == Path(path)

    def test_a_sqlite_url_takes_a_timeout(self) -> None:
        assert CATALOGS.read("sqlite:///lake.sqlite?busy_timeout=5").busy_timeout == 5

    def test_the_error_for_an_unknown_file_parameter_suggests_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"`busytimeout`.*Did you mean `busy_timeout`"):
            CATALOGS.read("sqlite:///lake.sqlite?busytimeout=5")

    @pytest.mark.parametrize("url", ["sqlite://lake.sqlite", "sqlite://", "duckdb:///"])
    def test_two_slashes_are_refused_with_a_remedy(self, url: str) -> None:
        with pytest.raises(ConfigError, match="with three slashes"):
            CATALOGS.read(url)


class TestMotherDuckUrls:
    @pytest.mark.parametrize("url", ["md:lake", "md:///lake", "motherduck:lake"])
    def test_three_forms_are_equivalent(self, url: str) -> None:
        assert CATALOGS.read(url) == MotherDuckCatalog(database="lake")

    def test_parameters_are_read(self) -> None:
        model = CATALOGS.read("md:lake?motherduck_token=t&mode=own_bucket&region=us-east-1")
        assert model == MotherDuckCatalog(database="lake", token="t", mode="own_bucket", region="us-east-1")


class TestStorageUrls:
    @pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n", "S3"])
    def test_s3a_is_rewritten(self, scheme: str) -> None:
        assert STORAGES.read(f"{scheme}://bucket/a//b/").data_path == "s3://bucket/a/b/"

    @pytest.mark.parametrize(
        ("url", "path"),
        [("./files", "files"), ("/data/my files", "/data/my files"), ("file:///data/my%20files", "/data/my files")],
    )
    def test_a_path_is_local(self, url: str, path: str) -> None:
        assert STORAGES.read(url) == LocalStorage(path=Path(path))

    def test_a_path_object_is_local(self) -> None:
        assert STORAGES.read(Path("files")) == LocalStorage(path=Path("files"))

    def test_abfss_names_container_and_account(self) -> None:
        model = STORAGES.read("abfss://container@account.dfs.core.windows.net/some/prefix")
        assert model == AzureStorage(container="container", account_name="account", prefix="some/prefix")

    def test_abfss_of_another_cloud_keeps_its_suffix(self) -> None:
        model = STORAGES.read("abfss://c@account.dfs.core.chinacloudapi.cn/p")
        assert model.endpoint_suffix == "core.chinacloudapi.cn"

    @pytest.mark.parametrize("scheme", ["az", "azure"])
    def test_azure_takes_its_account_as_a_parameter(self, scheme: str) -> None:
        assert STORAGES.read(f"{scheme}://c/p?account_name=a") == AzureStorage(
            container="c", prefix="p", account_name="a"
        )

    @pytest.mark.parametrize("scheme", ["gs", "gcs"])
    def test_both_gcs_schemes_are_equivalent(self, scheme: str) -> None:
        assert STORAGES.read(f"{scheme}://b/p") == GCSStorage(bucket="b", prefix="p")

    def test_an_r2_url_names_bucket_and_account(self) -> None:
        assert STORAGES.read("r2://b/p?account_id=acc") == R2Storage(account_id="acc", bucket="b", prefix="p")

    def test_the_error_for_an_unknown_storage_parameter_suggests_the_nearest(self) -> None:
        with pytest.raises(ConfigError, match=r"`regoin`.*Did you mean `region`"):
            STORAGES.read("s3://b?regoin=eu")

    @pytest.mark.parametrize("url", ["s3://key:secret@bucket/p", "s3://bucket:9000/p"])
    def test_a_login_or_port_is_refused_rather_than_ignored(self, url: str) -> None:
        with pytest.raises(ConfigError, match="login or a port"):
            STORAGES.read(url)


class TestUnknownSchemes:
    def test_an_unknown_catalog_scheme_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`postgre` .*Did you mean `postgres`"):
            CATALOGS.read("postgre://h/db")

    def test_an_unknown_storage_scheme_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`s3b` .*Did you mean `s3"):
            STORAGES.read("s3b://b")

    def test_a_catalog_url_needs_a_scheme(self) -> None:
        with pytest.raises(ConfigError, match=r"no scheme.*`sqlite`"):
            CATALOGS.read("lake.sqlite")
        with pytest.raises(ConfigError, match=r"Write `sqlite:///lite`"):
            CATALOGS.read("lite")

    def test_only_catalogs_have_drivers(self) -> None:
        with pytest.raises(ConfigError, match=r"`s3\+boto` .* is not a storage scheme"):
            STORAGES.read("s3+boto://b")


class TestSqlAlchemy:
    @pytest.mark.parametrize(
        ("url", "same"),
        [
            ("mysql+pymysql://u:p%40@h:3307/db", "mysql://u:p%40@h:3307/db"),
            ("mariadb://u:p%40@h/db", "mysql://u:p%40@h/db"),
            ("postgresql+psycopg2://u:p%40@h/db?sslmode=require", "postgresql://u:p%40@h/db?sslmode=require"),
            ("sqlite+pysqlite:////data/c.sqlite", "sqlite:////data/c.sqlite"),
        ],
    )
    def test_a_url_may_name_a_driver_and_be_an_object(self, url: str, same: str) -> None:
        assert CATALOGS.read(url) == CATALOGS.read(sqlalchemy.make_url(url)) == CATALOGS.read(same)


class TestTablesWithAUrl:
    def test_fields_next_to_a_url_override_it(self) -> None:
        model = CATALOGS.read({"url": "postgresql://u:old@h/db?connect_timeout=5", "password": "new", "port": 6543})
        assert model.password.get_secret_value() == "new"
        assert (model.user, model.host, model.port) == ("u", "h", 6543)

    def test_fields_next_to_a_url_complete_it(self) -> None:
        assert STORAGES.read({"url": "az://c/p", "account_name": "a"}) == AzureStorage(
            container="c", prefix="p", account_name="a"
        )
        keyed = STORAGES.read({"url": "s3://b?access_key_id=k", "secret_access_key": "s"})
        assert keyed.access_key_id == "k"

    def test_parameters_are_merged(self) -> None:
        table = {"url": "postgresql://h/db?connect_timeout=5", "parameters": {"sslrootcert": "x"}}
        assert CATALOGS.read(table).parameters == {"connect_timeout": "5", "sslrootcert": "x"}
        with pytest.raises(ConfigError, match="`parameters`"):
            CATALOGS.read(table | {"parameters": 5})

    def test_a_type_that_differs_from_the_url_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"`gcs`.*`s3`"):
            STORAGES.read({"url": "s3://b", "type": "gcs"})
