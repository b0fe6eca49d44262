"""Dropping a whole lake."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.extensions import open_database
from ducklake_orch.errors import DuckLakeOrchError, LakeNotFoundError
from tests.support.backends import backends, catalogs
from tests.support.lakes import MakeLake

ROWS = pa.table({"k": [1, 2, 3]})


def fill(lake: DuckLake) -> None:
    """Write rows into files and into the catalog, with files that are retired and scheduled for deletion."""
    lake.write(ROWS, "t", mode="append")
    lake.write(ROWS, "u", mode="append")
    lake.delete("t", "k = 1")
    lake.write(ROWS, "t", mode="overwrite")
    lake.maintain({"force": True, "expire": {"older_than": 0, "retain_last": 1}}, ["expire"]).raise_for_error()


def files_of(lake: DuckLake) -> list[Path]:
    return [path for path in Path(str(lake.config.data_path)).rglob("*") if path.is_file()]


@catalogs()
def test_a_dry_run_changes_nothing_and_a_drop_leaves_no_file_and_no_table(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    fill(lake)
    other = make_lake("other", data_inlining_row_limit=0)
    other.write(ROWS, "t", mode="append")
    files = files_of(lake)
    plan = lake.drop_lake()
    assert (plan.tables, plan.files, plan.files_outside, plan.files_unknown) == (2, len(files), 0, 0)
    assert plan.dry_run
    assert lake.read("u").num_rows == 3
    assert lake.drop_lake(dry_run=False).files == len(files)
    assert files_of(lake) == []
    with pytest.raises(LakeNotFoundError):
        DuckLake(lake.config.model_copy(update={"create_if_missing": False})).tables()
    assert other.read("t").num_rows == 3
    fill(lake)  # the place is free for a new lake
    assert [table.table for table in lake.tables()] == ["t", "u"]


@backends(shared=True)
def test_files_of_other_writers_stay(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(ROWS, "t", mode="append")
    root = str(lake.config.data_path)
    with lake.connect() as con:
        con.execute(f"COPY (SELECT 1 AS k) TO '{root.replace(chr(39), chr(39) * 2)}main/t/foreign.parquet'")
        con.execute(f"COPY (SELECT 1 AS k) TO '{tmp_path}/outside.parquet'")
    lake.add_files("t", [f"{tmp_path}/outside.parquet"])
    dropped = lake.drop_lake(dry_run=False)
    assert (dropped.files, dropped.files_outside, dropped.files_unknown) == (1, 1, 1)
    assert (tmp_path / "outside.parquet").exists()


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_other_lakes_tables_and_views_of_the_database_stay(kind: str, tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    schemas = ("a", "b") if kind == "duckdb" else (None,)
    lakes = [
        DuckLake.from_url(
            f"l{n}",
            catalog=f"{kind}:///{file}",
            storage=f"{tmp_path}/f{n}",
            metadata_schema=schema,
            create_if_missing=True,
        )
        for n, schema in enumerate(schemas)
    ]
    for lake in lakes:
        lake.write(ROWS, "t", mode="append")
    with open_database(["sqlite_scanner"], {}) as con:
        con.execute(f"ATTACH '{file}' AS db (TYPE {kind})")
        con.execute("CREATE TABLE db.main.ducklake_report AS SELECT 1 AS one")
        con.execute("CREATE VIEW db.main.mine AS SELECT 1 AS one")
    lakes[0].drop_lake(dry_run=False)
    for lake in lakes[1:]:
        assert lake.read("t").num_rows == 3
        lake.drop_lake(dry_run=False)
    with open_database(["sqlite_scanner"], {}) as con:
        con.execute(f"ATTACH '{file}' AS db (TYPE {kind})")
        names = (
            "SELECT table_name FROM duckdb_tables() UNION ALL SELECT view_name FROM duckdb_views() WHERE NOT internal"
        )
        assert sorted(con.execute(names).fetchall()) == [("ducklake_report",), ("mine",)]


def test_files_are_inside_the_data_path_by_folder_and_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "lake").symlink_to(tmp_path / "real")
    (tmp_path / "lake_backup").mkdir()
    duckdb.sql("SELECT 1::BIGINT AS k").write_parquet(str(tmp_path / "lake_backup/mine.parquet"))
    lake = DuckLake.from_url(
        "l", catalog=f"sqlite:///{tmp_path}/c.sqlite", storage=f"{tmp_path}/lake", create_if_missing=True
    )
    lake.write(ROWS, "t", mode="append")
    lake.add_files("t", [f"{tmp_path}/lake_backup/mine.parquet"])
    dropped = lake.drop_lake(dry_run=False)
    assert (dropped.files, dropped.files_outside) == (1, 1)
    assert (tmp_path / "lake_backup/mine.parquet").exists()
    assert list((tmp_path / "real").rglob("*.parquet")) == []


def test_a_read_only_lake_and_a_missing_lake_are_refused(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(ROWS, "t", mode="append")
    with pytest.raises(DuckLakeOrchError, match="read-only"):
        DuckLake(lake.config.model_copy(update={"read_only": True})).drop_lake(dry_run=False)
    lake.drop_lake(dry_run=False)
    with pytest.raises(LakeNotFoundError):
        DuckLake(lake.config.model_copy(update={"create_if_missing": False})).drop_lake()
