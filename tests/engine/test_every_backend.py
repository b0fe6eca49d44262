"""Behaviour that is the same on every catalog and every storage."""

import datetime as dt
from pathlib import Path

import duckdb
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import Backend, backends, catalogs
from tests.support.lakes import MakeLake

pytestmark = pytest.mark.every_catalog


@backends()
def test_a_lake_is_created_written_and_read(lake: DuckLake) -> None:
    result = lake.execute(
        [
            "CREATE TABLE t (i INTEGER, name VARCHAR)",
            "INSERT INTO t SELECT range, 'é ''' || range FROM range(50)",  # enough rows for a file
            "SELECT count(*) AS n, sum(i) AS total, max(name) AS last FROM t",
        ]
    )
    result.raise_for_error()
    assert result.rows == [{"n": 50, "total": 1225, "last": "é '9"}]
    assert result.commands[1].affected_rows == 50
    assert [c.snapshot_after for c in result.commands] == [1, 2, 2]


@backends()
def test_files_land_under_the_configured_data_path(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
    assert lake.config.data_path is not None
    with lake.connect() as con:
        (path,) = con.execute("SELECT DISTINCT filename FROM t").fetchall()[0]
    # The engine keeps the configured spelling of Google's scheme; both spellings name the same bucket.
    assert str(path).startswith(lake.config.data_path)


@backends()
def test_orphan_cleanup_finds_no_file_of_the_lake(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
    sql = "SELECT * FROM ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)"
    result = lake.execute(sql)
    assert result.raise_for_error().rows == []


@catalogs(sql_writes=True)
def test_a_pinned_connection_reads_an_earlier_snapshot(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(20)").raise_for_error()
    lake.execute("DELETE FROM t WHERE i < 5").raise_for_error()
    with lake.connect(snapshot=1) as con:
        assert con.execute("SELECT count(*) FROM t").fetchone() == (20,)
    assert lake.execute("SELECT count(*) AS n FROM t", snapshot=1).rows == [{"n": 20}]
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 15}]
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)
    assert lake.execute("SELECT count(*) AS n FROM t", as_of=later).rows == [{"n": 15}]


@catalogs()
def test_a_pinned_or_read_only_connection_refuses_writes(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    for result in (
        lake.execute("INSERT INTO t VALUES (1)", read_only=True),
        lake.execute("INSERT INTO t VALUES (1)", snapshot=1),
    ):
        assert isinstance(result.commands[0].error, errors.ReadOnlyError)
    assert lake.execute("SELECT * FROM t").rows == []


@catalogs()
def test_tables_are_created_with_their_layout_listed_described_and_dropped(lake: DuckLake, backend: Backend) -> None:
    comment = "what was sold" if backend.catalog.sql_comments else None
    items = "struct(sku varchar, n int)[]" if backend.catalog.sql_comments else "varchar"
    lake.create_table(
        "sales.orders",
        {"id": "bigint not null", "ts": "timestamp", "region": "varchar", "items": items},
        partition_by=["day(ts)", "bucket(16, id)", "region"],
        sort_by=["ts desc nulls last", "lower(region)"],
        comment=comment,
        options={"target_file_size": "10MB"},
    )
    lake.create_table("orders", {"x": "int"})
    assert [str(t).split(":")[0] for t in lake.tables()] == ["main.orders", "sales.orders"]
    assert lake.tables()[1].comment == comment
    columns = lake.table("sales.orders").schema()
    assert [str(c) for c in columns] == [
        "id BIGINT NOT NULL",
        "ts TIMESTAMP",
        "region VARCHAR",
        "items STRUCT(sku VARCHAR, n INTEGER)[]" if backend.catalog.sql_comments else "items VARCHAR",
    ]
    assert [c.partition for c in columns] == ["bucket(16)", "day", "identity", None]
    assert len(lake.snapshots()) == 3  # one for the lake, and one for each table with its layout and comments
    lake.create_table("orders", {"y": "int"}, if_not_exists=True)
    assert [c.name for c in lake.table("orders").schema()] == ["x"]
    with pytest.raises(errors.ObjectExistsError):
        lake.create_table("orders", {"y": "int"})
    assert lake.exists("sales.orders")
    lake.drop_table("sales.orders")
    lake.drop_table("sales.orders", if_exists=True)
    assert not lake.exists("sales.orders")
    with pytest.raises(errors.ObjectNotFoundError):
        lake.drop_table("sales.orders")
    with pytest.raises(errors.ObjectNotFoundError, match=r"Did you mean `main\.orders`"):
        lake.table("order").schema()


def test_a_retried_create_table_sets_options_after_a_crash(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"i": "int"})  # the first attempt was killed after this
    lake.create_table("t", {"i": "int"}, options={"target_file_size": "10MB"}, if_not_exists=True)
    assert "target_file_size = 10000000 of table main.t" in map(str, lake.options())


@pytest.mark.parametrize("given", ["int primary key", "int unique", "int references u(i)"])
def test_a_primary_key_in_a_column_type_is_refused_with_a_remedy(tmp_path: Path, given: str) -> None:
    with pytest.raises(errors.UnsupportedStatementError, match="merge"):
        DuckLake.local(tmp_path / "lake").create_table("t", {"i": given})


@pytest.mark.parametrize("given", ["int default 5", "int, b int", "int); DROP TABLE t; --", "nope"])
def test_an_invalid_column_type_is_refused(tmp_path: Path, given: str) -> None:
    with pytest.raises(errors.ConfigError, match="Column `i`"):
        DuckLake.local(tmp_path / "lake").create_table("t", {"i": given})


@pytest.mark.parametrize("key", ["day(i)", "hour(d)", "month(s)"])
def test_an_unwritable_partition_key_is_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(errors.ConfigError, match="is of type"):
        DuckLake.local(tmp_path / "lake").create_table(
            "t", {"i": "bigint", "d": "date", "s": "varchar"}, partition_by=[key]
        )


def test_a_local_lake_is_opened_by_its_catalog_file(tmp_path: Path) -> None:
    DuckLake.local(tmp_path / "lake").create_table("t", {"i": "int"})
    assert DuckLake.local(tmp_path / "lake.sqlite").exists("t")


def test_a_tilde_expands_to_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    lake = DuckLake.from_url("x", catalog="sqlite:///~/x.sqlite", storage="~/files")
    assert (str(lake.config.catalog.path), lake.config.data_path) == (  # type: ignore[union-attr]
        f"{tmp_path}/x.sqlite",
        f"{tmp_path}/files/",
    )


def test_a_pickled_lake_keeps_the_path_of_its_file(tmp_path: Path) -> None:
    import pickle

    lines = [f'[lakes.{name}]\ncatalog = "sqlite:///{name}.sqlite"\nstorage = "./{name}"' for name in "ab"]
    (tmp_path / "ducklake.toml").write_text("\n".join(lines))
    lake = pickle.loads(pickle.dumps(DuckLake.from_toml(tmp_path / "ducklake.toml", lake="a")))
    assert lake.sibling("b").config.name == "b"


@catalogs(sql_writes=True)
def test_the_history_of_a_table_has_only_its_own_changes(lake: DuckLake) -> None:
    lake.create_table("a", {"i": "int"})
    lake.create_table("b", {"i": "int"})
    lake.execute("INSERT INTO a VALUES (1)").raise_for_error()
    lake.execute("INSERT INTO b VALUES (1)").raise_for_error()
    lake.truncate("a")
    assert [s.snapshot_id for s in lake.table("a").history()] == [5, 3, 1]
    assert [s.snapshot_id for s in lake.table("b").history(limit=1)] == [4]
    assert [s.snapshot_id for s in lake.snapshots(limit=2)] == [5, 4]
    assert lake.snapshots()[0].snapshot_time.tzinfo is not None


@catalogs()
def test_the_metadata_database_can_be_inspected(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    with lake.connect_metadata() as con:
        assert con.execute("SELECT table_name FROM ducklake_table").fetchall() == [("t",)]
        with pytest.raises(duckdb.Error):
            con.execute("DELETE FROM ducklake_table")
    assert lake.exists("t")


@catalogs()
def test_an_equal_configuration_opens_the_same_lake(make_lake: MakeLake, backend: Backend) -> None:
    make_lake().execute("CREATE TABLE t AS SELECT 42 AS i").raise_for_error()
    again = make_lake(create_if_missing=False)
    assert again.execute("SELECT i FROM t").rows == [{"i": 42}]
    assert str(again.config.catalog.type) == backend.catalog.name


@catalogs(pooled=False)
def test_a_file_catalog_is_closed_between_uses(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    with lake.connect() as con:
        con.execute("SELECT * FROM t")
    path = str(lake.config.catalog.path)  # type: ignore[union-attr]
    open_files = [str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
    assert not [name for name in open_files if name.startswith(path)]


@catalogs(sql_writes=True)
@pytest.mark.filterwarnings("ignore")  # warnings from ibis about DuckDB and pandas
def test_ibis_works_on_a_lake_connection(lake: DuckLake) -> None:
    import ibis

    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(20)").raise_for_error()
    with lake.connect() as con:
        backend = ibis.duckdb.from_connection(con)
        table = backend.table("t")
        assert table.filter(table.i > 9).count().execute() == 10
        assert backend.list_tables() == ["t"]
