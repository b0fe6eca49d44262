"""Stray and missing files in the storage."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

from ducklake_orch import DuckLake, S3Storage, errors
from ducklake_orch.catalog.lifecycle import plan_orphans
from ducklake_orch.catalog.lifecycle.orphans import Orphans
from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.quoting import literal
from tests.catalog.fsck.damage import damage, found, path_of, repaired, value
from tests.catalog.fsck.damage import refused as refused_sql
from tests.support.backends import AZURE, GCS, POSTGRES, S3_MEMORY, Backend
from tests.support.lakes import MakeLake
from tests.support.refusals import refused


@pytest.fixture
def numbers(own: DuckLake) -> DuckLake:
    own.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
    return own


def test_stray_files_are_listed_with_their_writer(numbers: DuckLake) -> None:
    write_id, unknown_id = numbers.snapshots()[0].extra["ducklake_orch"]["write_id"], "0" * 32
    strays = {
        "ducklake-01a1ff14-33e6-739d-870e-4f3a6811dead.parquet": "written by the engine",
        "ducklake-01a1ff14-33e6-739d-870e-4f3a6811dead-delete.parquet": "written by the engine",
        "part-00000.snappy.parquet": "written by another program",
        "some.puffin": "written by another program",
        f"ducklake-{unknown_id}-01a1ff14.parquet": f"of write {unknown_id}, which has no snapshot",
        f"ducklake-{write_id}-01a1ff14.parquet": f"of write {write_id}, which committed snapshot 1 without this file",
    }
    folder = Path(path_of(numbers, 0)).parent
    for name in strays:
        (folder / name).write_bytes(b"")
    report = numbers.fsck(storage=True, repair=True)
    assert {(finding.code, finding.severity, finding.table) for finding in report.findings} == {
        ("stray-file", "info", "main.t")
    }
    assert {finding.file: finding.detail for finding in report.findings} == {
        str(folder / name): strays[name] for name in strays
    }
    assert report.ok
    assert all((folder / name).exists() for name in strays)


def test_other_formats_and_scheduled_files_are_not_stray_files(numbers: DuckLake) -> None:
    assert numbers.config.data_path is not None
    Path(numbers.config.data_path, "README.txt").write_text("hello")
    numbers.execute(
        [
            "INSERT INTO t SELECT range FROM range(50)",
            "CALL ducklake_merge_adjacent_files('lake')",
            "DELETE FROM t WHERE i < 20",
            "DELETE FROM t WHERE i < 40",
            "TRUNCATE t",
        ]
    ).raise_for_error()
    report = numbers.fsck(storage=True)
    assert report.findings == []
    assert report.checked["objects_listed"] == 6


@pytest.mark.parametrize("host", ["", "localhost"])
def test_files_of_a_data_path_with_a_url_are_neither_missing_nor_stray(tmp_path: Path, host: str) -> None:
    files, catalog = tmp_path / "a b%20é", tmp_path / "lake.sqlite"
    with duckdb.connect() as con:
        for name in ("ducklake", "sqlite_scanner"):
            load_extension(con, name)
        attach = f"ATTACH {literal(f'ducklake:sqlite:{catalog}')} AS lake"
        con.execute(f"{attach} (DATA_PATH {literal(f'file://{host}{files}')}, DATA_INLINING_ROW_LIMIT 0)")
        con.execute("CREATE TABLE lake.t AS SELECT range AS i FROM range(100)")
        con.execute("DELETE FROM lake.t WHERE i < 3")
    lake = DuckLake.from_url("lake", catalog=f"sqlite:///{catalog}", storage=str(files))
    assert {finding.code for finding in lake.fsck(storage=True, deep=True).findings} == {"odd-data-path"}
    assert plan_orphans(lake.config, datetime.now(UTC) + timedelta(days=1)) == Orphans()


def test_an_unreachable_storage_raises_an_error(tmp_path: Path) -> None:
    s3 = {"type": "s3", "bucket": "b", "endpoint": "http://127.0.0.1:1", "region": "us-east-1", "access_key_id": "k"}
    secret = {"secret_access_key": "canary"}
    lake = DuckLake.local(tmp_path / "lake", storage=s3 | secret, settings={"http_retries": 0})
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    assert lake.fsck(deep=True).findings == []
    refused(errors.StorageBusyError, lambda: lake.fsck(storage=True), "Listing the storage")


@pytest.mark.parametrize(
    "backend",
    [
        Backend(POSTGRES, S3_MEMORY),
        pytest.param(Backend(POSTGRES, GCS), marks=pytest.mark.full),
        pytest.param(Backend(POSTGRES, AZURE), marks=pytest.mark.full),
    ],
    indirect=True,
    ids=str,
)
def test_object_stores_are_listed_and_read(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.execute(
        [
            "CREATE TABLE t AS SELECT range AS i, 'a b' AS p FROM range(50)",
            "ALTER TABLE t SET PARTITIONED BY (p)",
            "INSERT INTO t SELECT range, 'a b/é' FROM range(50)",
            "DELETE FROM t WHERE i < 20",
        ]
    ).raise_for_error()
    report = lake.fsck(deep=True, storage=True)
    assert report.findings == []
    assert (report.checked["files_read"], report.checked["objects_listed"]) == (4, 4)
    damage(lake, "UPDATE ducklake_data_file SET file_size_bytes = file_size_bytes - 1")
    if isinstance(lake.config.storage, S3Storage):
        fresh = make_lake(settings={"threads": 1})  # has no cached files
        assert "No magic bytes" in refused_sql(fresh, "SELECT sum(i) FROM t")
    assert {finding[0] for finding in repaired(lake, deep=True)} == {"wrong-file-size"}
    assert value(lake, "SELECT sum(i) FROM t") == 2 * 1225 - 2 * 190
    with lake.connect() as con:
        stray = f"{lake.config.data_path}main/t/part-0.parquet"
        con.execute(f"COPY (SELECT 1 AS i) TO '{stray}' (FORMAT parquet)")
    damage(lake, "UPDATE ducklake_data_file SET path = 'gone.parquet' WHERE data_file_id = 0")
    for mode in ("storage", "deep"):
        findings = found(lake.fsck(storage=mode == "storage", deep=mode == "deep"))
        assert ("missing-file", "main.t", f"{lake.config.data_path}main/t/gone.parquet") in findings
        assert (("stray-file", "main.t", stray) in findings) is (mode == "storage")
