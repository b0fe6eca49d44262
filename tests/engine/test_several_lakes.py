"""Several lakes in one PostgreSQL database, each in a schema of its own."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.servers.postgres import PostgresServer

Open = Callable[[str], DuckLake]


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    postgres.create_database("several_lakes")
    return postgres.url("several_lakes")


@pytest.fixture
def open_lake(url: str, tmp_path: Path) -> Open:
    def open_one(name: str) -> DuckLake:
        storage = str(tmp_path / name)
        return DuckLake.from_url(name, catalog=url, storage=storage, metadata_schema=name, create_if_missing=True)

    return open_one


def test_lakes_of_one_database_are_independent_and_listed(open_lake: Open, url: str, tmp_path: Path) -> None:
    first, second = open_lake("first"), open_lake("second")
    first.write(pa.table({"i": [1, 2]}), "events", mode="append")
    second.write(pa.table({"name": ["a"]}), "events", mode="append")
    second.write(pa.table({"name": ["b"]}), "events", mode="append")
    assert first.read("events").to_pydict() == {"i": [1, 2]}
    assert sorted(second.read("events")["name"].to_pylist()) == ["a", "b"]
    assert [len(lake.snapshots()) for lake in (first, second)] == [2, 3]
    listed = {entry.metadata_schema: entry.data_path for entry in DuckLake.list_lakes(url)}
    assert listed == {name: f"{tmp_path / name}/" for name in ("first", "second")}
    second.drop_table("events")
    assert (first.exists("events"), second.exists("events")) == (True, False)


def test_a_catalog_file_lists_no_lakes(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigError, match="holds one lake"):
        DuckLake.list_lakes(f"sqlite:///{tmp_path}/lake.sqlite")
