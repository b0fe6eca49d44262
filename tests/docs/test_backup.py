"""Catalog backups by the steps of the run-book: taken during writes, and restored to an intact lake."""

import subprocess
from pathlib import Path

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.servers.postgres import PostgresServer

ROWS = pa.table({"id": [1, 2, 3], "region": ["a", "b", "c"]})


def create_and_write(lake: DuckLake) -> DuckLake:
    lake.write(ROWS, "sales.orders", mode="append", partition_by=["region"])
    lake.execute("INSERT INTO sales.orders VALUES (4, 'd')").raise_for_error()  # an inlined row
    lake.delete("sales.orders", "id = 2")
    return lake


def check_restored(lake: DuckLake) -> None:
    assert sorted(lake.read("sales.orders")["id"].to_pylist()) == [1, 3, 4]
    assert lake.read("sales.orders", snapshot=1).num_rows == 3
    report = lake.fsck(deep=True, storage=True)
    assert report.ok
    assert {finding.code for finding in report.findings} <= {"stray-file"}
    lake.write(ROWS, "sales.orders", mode="append")  # the restored lake accepts writes
    assert lake.fsck(deep=True).ok


def test_a_postgres_dump_restores_the_lake(tmp_path: Path, postgres: PostgresServer) -> None:
    for database in ("backed_up", "restored"):
        postgres.create_database(database)
    live = DuckLake.from_url(
        "lake", catalog=postgres.url("backed_up"), storage=str(tmp_path / "files"), create_if_missing=True
    )
    create_and_write(live)
    dump = str(tmp_path / "lake.dump")

    def run(program: str, *arguments: str) -> None:
        subprocess.run([str(postgres.programs / program), *arguments], check=True, timeout=120)

    run("pg_dump", "--format=custom", f"--file={dump}", postgres.url("backed_up"))
    live.write(ROWS, "sales.orders", mode="append")
    run("pg_restore", "--no-owner", f"--dbname={postgres.url('restored')}", dump)
    check_restored(DuckLake.from_url("lake", catalog=postgres.url("restored"), storage=str(tmp_path / "files")))


def test_a_copy_of_a_duckdb_catalog_restores_the_lake(tmp_path: Path) -> None:
    files = str(tmp_path / "files")
    live = DuckLake.from_url(
        "lake", catalog=f"duckdb:///{tmp_path}/lake.ducklake", storage=files, create_if_missing=True
    )
    create_and_write(live)
    with live.connect_metadata() as con:
        (name,) = con.execute("SELECT current_database()").fetchone() or ("",)
        con.execute(f"ATTACH '{tmp_path}/backup.ducklake' AS backup")
        con.execute(f'COPY FROM DATABASE "{name}" TO backup')
        con.execute("DETACH backup")
    live.write(ROWS, "sales.orders", mode="append")
    check_restored(DuckLake.from_url("lake", catalog=f"duckdb:///{tmp_path}/backup.ducklake", storage=files))
