"""Invalid input raises one ducklake-orch error that names value, place and remedy, and leaves nothing behind.

Unusual valid input, such as names and paths with special characters, is tested here as well.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake, LakeConfig, errors
from ducklake_orch.engine.locks import FileQueue
from tests.support.backends import MYSQL, POSTGRES, Backend, catalogs
from tests.support.lakes import MakeLake
from tests.support.refusals import refused


@pytest.fixture(autouse=True)
def separate_working_directory(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))  # a lake without a storage creates its files here


ROWS = "CREATE TABLE t AS SELECT range AS i FROM range(30)"
SERVERS = [POSTGRES, MYSQL]


@pytest.fixture(autouse=True)
def no_open_connection_or_lock(tmp_path: Path) -> Iterator[None]:
    yield
    links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert [str(link.readlink()) for link in links if str(link.readlink()).startswith(str(tmp_path))] == []
    for lock in tmp_path.rglob("*.lock"):
        assert FileQueue(lock.with_suffix("")).holder() is None


def files_under(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


class TestNames:
    @pytest.mark.parametrize("name", ["a-b", "a.b", "select", "a b", "it's", 'q"q', "1x", "é", "x;y", "TABLE"])
    def test_any_lake_name_works(self, tmp_path: Path, name: str) -> None:
        lake = DuckLake.local(tmp_path / "lake", name=name, alias=name)
        sql = f"{ROWS}; SELECT current_database() AS lake, count(*) AS n FROM t"
        assert lake.execute(sql).raise_for_error().rows == [{"lake": name, "n": 30}]
        assert LakeConfig(name=name).alias.isidentifier()

    @pytest.mark.parametrize("name", ["a-b", "a.b", "select", "a b", "it's", 'q"q', "é;--"])
    def test_any_table_name_works(self, tmp_path: Path, name: str) -> None:
        lake = DuckLake.local(tmp_path / "lake")
        quoted = '"{0}"."{0}"'.format(name.replace('"', '""'))
        lake.create_table(quoted, {name: "int", "d": "date"}, partition_by=['"{}"'.format(name.replace('"', '""'))])
        lake.execute(f"INSERT INTO {quoted} SELECT range, NULL FROM range(3)").raise_for_error()
        lake.set_option("parquet_compression", "zstd", table=quoted)
        assert [(t.schema, t.table) for t in lake.tables()] == [(name, name)]
        assert lake.table(quoted).schema()[0].partition == "identity"
        assert len(lake.table(quoted).history()) == 2
        lake.truncate(quoted)
        lake.drop_table(quoted)
        assert not lake.exists(quoted)

    @pytest.mark.parametrize("alias", ["memory", "MAIN", "temp", "  ", "a\x00b"])
    def test_an_alias_that_duckdb_reserves_is_refused(self, alias: str) -> None:
        refused(errors.ConfigError, lambda: LakeConfig(name="x", alias=alias), repr(alias), "that DuckDB reserves")


class TestPaths:
    @pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
    @pytest.mark.parametrize("form", ["raw", "encoded"])
    def test_a_path_with_spaces_and_quotes_works(self, tmp_path: Path, kind: str, form: str) -> None:
        file = tmp_path / f'it\'s a "dir"; #1 é\\/lake (1).{kind}'
        storage = tmp_path / 'it\'s "data"; 100% #1 é'
        url = (
            f"{kind}:///{file}" if form == "raw" else LakeConfig(name="x", catalog=f"{kind}:///{file}").catalog.to_url()
        )
        lake = DuckLake.from_url("x", catalog=url, storage=str(storage), create_if_missing=True)
        lake.execute(ROWS).raise_for_error()
        assert file.exists()
        assert len(list(storage.rglob("*.parquet"))) == 1

    @pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
    def test_the_error_names_a_folder_without_write_permission(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / "file").touch()
        catalog, storage = f"{kind}:///{tmp_path}/new/lake", str(tmp_path / "data")
        for fields in (
            {"catalog": f"{kind}:///{tmp_path}/file/under/lake", "storage": storage},
            {"catalog": catalog, "storage": str(tmp_path / "file" / "under")},
            {"catalog": catalog, "storage": "/proc/nowhere"},
        ):
            lake = DuckLake.from_url("x", create_if_missing=True, **fields)
            place = "/proc/nowhere" if "/proc/nowhere" in fields["storage"] else f"{tmp_path}/file/under"
            refused(errors.StorageError, partial(lake.execute, ROWS), place, "permissions")
            assert files_under(tmp_path) == ["file"]

    @pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
    def test_a_folder_given_as_the_catalog_file_is_refused(self, tmp_path: Path, kind: str) -> None:
        (tmp_path / "folder").mkdir()
        lake = DuckLake.from_url("x", catalog=f"{kind}:///{tmp_path}/folder", storage=str(tmp_path / "f"))
        refused(errors.StorageError, lambda: lake.execute("SELECT 1"), f"{tmp_path}/folder")

    @pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
    @pytest.mark.parametrize("create", [True, False])
    def test_a_file_that_is_no_catalog_of_this_type_stays_unchanged(
        self, tmp_path: Path, kind: str, create: bool
    ) -> None:
        other_type = {"sqlite": "duckdb", "duckdb": "sqlite"}[kind]
        DuckLake.from_url("x", catalog=f"{other_type}:///{tmp_path}/other", create_if_missing=True).execute("SELECT 1")
        (tmp_path / "garbage").write_bytes(b"no database at all" * 500)
        for name in ("other", "garbage"):
            before = (tmp_path / name).read_bytes()
            lake = DuckLake.from_url("x", catalog=f"{kind}:///{tmp_path}/{name}", create_if_missing=create)
            # Refused before the engine guesses the type and fetches an extension from the network.
            refused(errors.ConfigError, partial(lake.execute, "SELECT 1"), f"{tmp_path}/{name}", f"`{other_type}:///…`")
            assert (tmp_path / name).read_bytes() == before

    def test_lakes_with_shared_or_nested_data_paths_are_refused(self, tmp_path: Path) -> None:
        for path, relation in [("data", "share"), ("./data/../data/", "share"), ("data/inner", "nest"), ("", "nest")]:
            file = tmp_path / "ducklake.toml"
            file.write_text(
                f'[lakes.a]\ncatalog = "sqlite:///a"\nstorage = "{tmp_path}/data"\n'
                f'[lakes.b]\ncatalog = "sqlite:///b"\nstorage = "{tmp_path}/{path}"\n'
            )
            words = ("`a`", "`b`", relation, str(tmp_path / "data"), str(file), "folder of its own")
            refused(errors.IncompatibleConfigError, partial(DuckLake.from_toml, file, lake="a"), *words)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("fields", "words"),
        [
            ({"catalog": "oracle://u:canary@h/d"}, ("`oracle`", "oracle://u:***@h/d", "`postgresql`")),
            ({"catalog": "sqlit:///x"}, ("sqlit:///x", "Did you mean `sqlite`?")),
            ({"catalog": "just/a/path"}, ("just/a/path", "no scheme")),
            ({"catalog": "sqlite:///x", "storage": "ftp://h/x"}, ("`ftp`", "`s3`")),
            ({"catalog": "sqlite:///x", "storag": "y"}, ("`storag`", "Did you mean `storage`?")),
            ({"catalog": "postgres://u:canary@h/d?sslmod=x"}, ("`sslmod`", "u:***@h/d", "Did you mean `sslmode`?")),
            ({"catalog": "postgres://u:canary@h:no/d"}, ("u:***@h", "1 to 65535")),
            ({"catalog": {"type": "sqlite", "pth": "x"}}, ("sqlite", "`pth`", "Did you mean `path`?")),
            ({"catalog": {"type": "squlite", "path": "x"}}, ("`squlite`", "Did you mean `sqlite`?")),
            (
                {"catalog": "sqlite:///x", "attach_options": {"overide_data_path": 1}},
                ("Did you mean `override_data_path`",),
            ),
            ({"catalog": "sqlite:///x", "attach_options": {"encrypted": 1}}, ("a field of its own",)),
            ({"catalog": "sqlite:///x", "options": {"target_filesize": 1}}, ("Did you mean `target_file_size`?",)),
            ({"catalog": "sqlite:///x", "as_of": datetime(2024, 1, 2)}, ("2024-01-02T00:00:00", "`+00:00`")),
            ({"catalog": "sqlite:///x", "snapshot": -1}, ("`snapshot` = -1", "0")),
            (
                {"catalog": "sqlite:///x", "settings": {"s3_secret_access_key": "canary"}},
                ("`settings`", "`on_connect`"),
            ),
            ({"catalog": "sqlite:///x", "settings": {"TimeZone": "Asia/Tokyo"}}, ("`TimeZone`", "`settings`", "UTC")),
            ({"catalog": "sqlite:///x", "attach_options": {"meta_password": "canary"}}, ("`meta_password`", "secret")),
        ],
    )
    def test_an_invalid_value_is_refused_before_connecting(self, fields: Any, words: tuple[str, ...]) -> None:
        refused(errors.ConfigError, lambda: DuckLake.from_url("x", **fields), *words)

    @pytest.mark.parametrize(
        ("settings", "words"),
        [
            ({"no_such_setting": 1}, ("no_such_setting", "`settings`")),
            ({"threads": "many"}, ("threads", "'many'", "`settings`")),
            ({"memory_limit": "-5GB"}, ("memory_limit", "'-5GB'", "did not apply")),
            ({"allow_unsigned_extensions": True}, ("allow_unsigned_extensions", "`settings`")),
        ],
    )
    def test_an_unknown_or_ineffective_setting_is_refused(
        self, tmp_path: Path, settings: Any, words: tuple[str, ...]
    ) -> None:
        lake = DuckLake.local(tmp_path / "lake", settings=settings)
        refused(errors.SettingError, lambda: lake.execute("SELECT 1"), *words)
        assert files_under(tmp_path) == []

    @pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
    def test_an_unknown_option_of_the_catalogs_attach_is_refused(self, tmp_path: Path, kind: str) -> None:
        url, storage = f"{kind}:///{tmp_path}/lake", str(tmp_path / "data")
        fields: Any = {"create_if_missing": True, "attach_options": {"meta_no_such": 1}}
        lake = DuckLake.from_url("x", catalog=url, storage=storage, **fields)
        refused(errors.ConfigError, lambda: lake.execute("SELECT 1"), "no_such", "`attach_options`")
        assert files_under(tmp_path) == []


@catalogs()
class TestEveryCatalog:
    def test_a_missing_lake_is_not_created(self, make_lake: MakeLake, backend: Backend, tmp_path: Path) -> None:
        lake = make_lake(create_if_missing=False)
        refused(errors.LakeNotFoundError, lambda: lake.execute("SELECT 1"), "lake", "`create_if_missing=True`")
        assert files_under(tmp_path) == []
        if backend.catalog in SERVERS:
            with lake.connect_metadata() as con:
                tables = con.execute("SELECT schema_name, table_name FROM duckdb_tables()").fetchall()
            schemas = ("public", getattr(lake.config.catalog, "database", None))
            assert [name for schema, name in tables if schema in schemas and name.startswith("ducklake")] == []

    def test_a_data_path_mismatch_names_both_paths(self, make_lake: MakeLake, tmp_path: Path) -> None:
        lake = make_lake()
        lake.execute("SELECT 1").raise_for_error()
        moved = make_lake(storage=str(tmp_path / "elsewhere"))
        words = (str(lake.config.data_path), str(moved.config.data_path), "`override_data_path=True`")
        refused(errors.DataPathMismatchError, lambda: moved.execute("SELECT 1"), *words)
        assert not (tmp_path / "elsewhere").exists()

    @pytest.mark.parametrize(
        ("version", "remedy"), [("0.3", "`automatic_migration=True`"), ("9.9", "newer ducklake-orch")]
    )
    def test_a_catalog_of_another_format_version_is_refused(
        self, make_lake: MakeLake, backend: Backend, version: str, remedy: str
    ) -> None:
        lake = make_lake(threads=2)
        lake.execute("SELECT 1").raise_for_error()
        statement = f"UPDATE ducklake_metadata SET value = '{version}' WHERE value = '1.0'"
        with lake.connect_metadata(read_only=False) as con:
            con.execute(statement)
        # `threads=1` opens a new connection, because the pooled one is attached already.
        again = make_lake(threads=1, create_if_missing=False)
        refused(errors.CatalogVersionError, lambda: again.execute("SELECT 1"), version, "1.0", remedy)

    def test_a_missing_snapshot_or_time_is_refused(self, lake: DuckLake) -> None:
        lake.execute("SELECT 1").raise_for_error()
        listed = "`ducklake-orch snapshots`"
        refused(errors.SnapshotNotFoundError, lambda: lake.execute("SELECT 1", snapshot=99), "99", listed)
        early = datetime(2004, 5, 6, tzinfo=UTC)
        refused(errors.SnapshotNotFoundError, lambda: lake.execute("SELECT 1", as_of=early), "2004-05-06", listed)
        refused(errors.ConfigError, lambda: lake.execute("SELECT 1", as_of=datetime(2024, 1, 2)), "2024-01-02", "zone")
        refused(errors.ConfigError, lambda: lake.tables(snapshot=-1), "-1", "0")

    def test_an_unsupported_statement_names_the_alternative(self, lake: DuckLake) -> None:
        lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        unsupported = errors.UnsupportedStatementError
        for sql, kind, word in [
            ("CREATE TABLE p (i INTEGER PRIMARY KEY)", unsupported, "`merge` with `keys=…`"),
            ("CREATE TABLE p (i INTEGER UNIQUE)", unsupported, "`merge` with `keys=…`"),
            ("CREATE TABLE p (i INTEGER REFERENCES t (i))", unsupported, "`merge` with `keys=…`"),
            ("CREATE TABLE p (i INTEGER CHECK (i > 0))", unsupported, "NOT NULL"),
            ("FROM t FOR SYSTEM_TIME AS OF 1", unsupported, "AT (VERSION => 5)"),
            ("FROM nowhere", errors.ObjectNotFoundError, "nowhere"),
            ("SELEC 1", errors.StatementError, "SELEC"),
        ]:
            refused(kind, lake.execute(sql).raise_for_error, word)
        assert len(lake.snapshots()) == 2  # the snapshot of the lake and that of the table

    @pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
    def test_a_text_that_no_catalog_can_store_is_refused(self, lake: DuckLake, text: str) -> None:
        lake.execute("CREATE TABLE t (i INTEGER, s VARCHAR)").raise_for_error()
        calls: list[Callable[[], object]] = [
            lambda: lake.write([{"i": 1}], "t", mode="append", idempotency_key=text),
            lambda: lake.write([{"i": 1}], text, mode="append"),
            lambda: lake.write([{text: 1}], "t", mode="append"),
            lambda: lake.create_table("u", {text: "INTEGER"}),
            lambda: lake.create_table("u", {"i": text}),
            lambda: lake.create_table("u", {"i": "INTEGER"}, comment=text),
            lambda: lake.alter_table("t", rename_columns={"s": text}),
            lambda: lake.set_option("parquet_compression", text),
            lambda: lake.delete("t", f"s = '{text}'"),
            lambda: lake.stage(text),
            lambda: lake.tag(text),
        ]
        for call in calls:
            with pytest.raises(errors.DuckLakeOrchError):
                call()
        assert [len(lake.snapshots()), *lake.read("t").to_pylist()] == [2]

    def test_half_a_surrogate_pair_in_a_row_is_refused(self, lake: DuckLake) -> None:
        refused(errors.DataError, lambda: lake.write([{"s": "a\ud800b"}], "t", mode="append"), "`s` of rows 1 to 1")

    def test_a_read_only_lake_refuses_writes(self, make_lake: MakeLake) -> None:
        make_lake().execute("CREATE TABLE t (i INTEGER)").raise_for_error()
        for reader in (make_lake(read_only=True), make_lake(snapshot=1)):
            refused(errors.ReadOnlyError, partial(reader.drop_table, "t"), "`read_only`")
        assert make_lake().exists("t")
