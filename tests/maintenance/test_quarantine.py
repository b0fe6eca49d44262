"""Orphans in quarantine: they are moved aside, come back on demand, and are deleted when their time is over."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy, errors
from ducklake_orch.catalog.search import planning
from ducklake_orch.dagster import maintenance_summary
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import literal
from tests.support.backends import backends, on_sqlite
from tests.support.command_line import run

ASIDE = MaintenancePolicy(orphans={"action": "quarantine", "older_than": 0}, force=True)


def filled(lake: DuckLake) -> None:
    lake.write(pa.table({"a": [1, 2, 3]}), "t", mode="append")


def orphan(lake: DuckLake, folder: str = "main/t/", values: str = "1 AS a") -> str:
    """Write a file as a killed write of the lake leaves it."""
    with planning(lake.config, "Planning") as metadata:
        name = f"ducklake-{uuid4().hex}-{metadata.lake_mark()}-{uuid4()}.parquet"
    path = f"{lake.config.data_path}{folder}{name}"
    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    with working_connection(lake.config) as con:
        con.execute(f"COPY (SELECT {values}) TO {literal(path)} (FORMAT parquet)")
    return path


def content(lake: DuckLake, path: str) -> list[tuple[Any, ...]]:
    with working_connection(lake.config) as con:
        return con.execute(f"FROM read_parquet({literal(path)}, hive_partitioning = false)").fetchall()


def exists(lake: DuckLake, path: str) -> bool:
    with working_connection(lake.config) as con:
        return bool(con.execute(f"FROM glob({literal(f'{path}*')}) WHERE file = {literal(path)}").fetchall())


def search(lake: DuckLake, policy: MaintenancePolicy = ASIDE) -> list[str]:
    """Run the search for orphans, and return what its steps say."""
    report = lake.maintain(policy, operations=["orphans"]).raise_for_error()
    return [step.reason for step in report.operations]


@backends()
def test_orphans_are_moved_aside_and_come_back(lake: DuckLake) -> None:
    filled(lake)
    first, second = orphan(lake), orphan(lake, "main/t/day=2026-01-01/", "42 AS a")
    report = lake.maintain(ASIDE, operations=["orphans"]).raise_for_error()
    assert report.operations[0].reason.endswith("they stay in quarantine for 30 days")
    assert report.totals["bytes_freed"] == 0
    assert maintenance_summary.done("orphans", report).startswith("Moved 2 files (")
    files = lake.quarantined()
    assert {file.path for file in files} == {first, second}
    assert {file.since for file in files} == {datetime.now(UTC).date()}
    assert not exists(lake, first)
    assert content(lake, next(file.place for file in files if file.path == second)) == [(42,)]
    assert "no orphaned file" in search(lake)[0]
    assert lake.fsck(storage=True).counts == {}
    assert [file.path for file in lake.restore_quarantined([second])] == [second]
    assert content(lake, second) == [(42,)]
    assert [file.path for file in lake.quarantined()] == [first]
    assert [file.path for file in lake.restore_quarantined()] == [first]
    assert lake.quarantined() == []
    assert sorted(lake.read("t")["a"].to_pylist()) == [1, 2, 3]


@on_sqlite
def test_files_are_deleted_when_their_time_in_quarantine_is_over(lake: DuckLake) -> None:
    filled(lake)
    old = orphan(lake)

    search(lake)
    folder = Path(f"{lake.config.data_path}ducklake_orch_quarantine")
    today = datetime.now(UTC).date()
    (folder / f"{today}").rename(folder / f"{today - timedelta(days=31)}")
    new = orphan(lake)
    deleted, moved = search(lake)
    assert deleted == "1 files have been in quarantine for 30 days"
    assert "1 orphaned files" in moved
    assert [file.path for file in lake.quarantined()] == [new]
    assert not exists(lake, old)
    longer = ASIDE.model_copy(update={"orphans": ASIDE.orphans.model_copy(update={"quarantine": timedelta(days=90)})})
    assert "no orphaned file" in search(lake, longer)[0]


@on_sqlite
def test_a_file_that_is_there_again_is_not_overwritten(lake: DuckLake) -> None:
    filled(lake)
    path = orphan(lake)
    search(lake)
    with duckdb.connect() as con:
        con.execute(f"COPY (SELECT 'again' AS a) TO {literal(path)} (FORMAT parquet)")
    with pytest.raises(errors.ObjectExistsError, match="There is a file"):
        lake.restore_quarantined()
    assert content(lake, path) == [("again",)]
    assert len(lake.quarantined()) == 1
    with pytest.raises(errors.ObjectNotFoundError, match="is not in quarantine"):
        lake.restore_quarantined([f"{path}.other"])


@on_sqlite
def test_files_of_other_programs_are_moved_only_on_demand(lake: DuckLake) -> None:
    filled(lake)
    other = f"{lake.config.data_path}main/t/other.parquet"
    with working_connection(lake.config) as con:
        con.execute(f"COPY (SELECT 1 AS a) TO {literal(other)} (FORMAT parquet)")
    search(lake)
    assert exists(lake, other)
    policy = ASIDE.model_copy(update={"orphans": ASIDE.orphans.model_copy(update={"unknown": "delete"})})
    search(lake, policy)
    assert [file.path for file in lake.quarantined()] == [other]


@on_sqlite
def test_the_command_line_lists_and_restores_files(lake: DuckLake) -> None:
    filled(lake)
    urls = ("--catalog", f"sqlite:///{lake.config.catalog.path}", "--storage", str(lake.config.data_path))  # type: ignore[union-attr]
    assert "No file is in quarantine" in run("quarantine", *urls).out
    path = orphan(lake)
    search(lake)
    assert [file["path"] for file in run("quarantine", "--json", *urls).json] == [path]
    assert run("quarantine", "--restore", path, "--restore-all", *urls).code == 2
    assert "restored" in run("quarantine", "--restore", path, *urls).out
    assert exists(lake, path)
