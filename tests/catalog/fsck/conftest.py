"""A lake with every kind of object, created once. Each test damages its own copy of the catalog."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage

SCRIPT = [
    "CREATE TABLE t (i INTEGER, s VARCHAR, d DOUBLE)",
    "INSERT INTO t SELECT range, 'v' || range, range FROM range(50)",
    "INSERT INTO t SELECT range, 'v' || range, range FROM range(50, 100)",
    "DELETE FROM t WHERE i < 20",
    "DELETE FROM t WHERE i = 50",
    "INSERT INTO t VALUES (1000, 'inlined', 1)",
    "CREATE TABLE p (i INTEGER)",
    "ALTER TABLE p SET PARTITIONED BY (bucket(2, i))",
    "INSERT INTO p SELECT range FROM range(100)",
    "CREATE TABLE gone AS SELECT range AS i FROM range(50)",
    "DROP TABLE gone",
    "CREATE SCHEMA other",
    "CREATE TABLE other.u AS SELECT range AS i FROM range(50)",
    "CREATE VIEW v AS FROM t",
]


# Errors are not retried.
NO_RETRIES: dict[str, Any] = {"retry": {"max_attempts": 1}, "settings": {"ducklake_max_retry_count": 1}}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("template")
    DuckLake.local(folder / "lake").execute(SCRIPT).raise_for_error()
    return folder


@pytest.fixture
def lake(template: Path, tmp_path: Path) -> DuckLake:
    """Return a lake with its own catalog. All tests share its files, so a test must not damage them."""
    shutil.copy(template / "lake.sqlite", tmp_path)
    storage = {"type": "local", "path": template / "lake.files"}
    return DuckLake.local(tmp_path / "lake", storage=storage, **NO_RETRIES)


@pytest.fixture(scope="session")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("empty")
    DuckLake.local(folder / "lake").execute("SELECT 1").raise_for_error()
    return folder


@pytest.fixture
def own(empty: Path, tmp_path: Path) -> DuckLake:
    """Return an empty lake with its own catalog and files. Copying it is faster than creating it."""
    shutil.copy(empty / "lake.sqlite", tmp_path)
    (tmp_path / "lake.files").mkdir()
    lake = DuckLake.local(tmp_path / "lake", **NO_RETRIES)
    damage(lake, f"UPDATE ducklake_metadata SET value = '{lake.config.data_path}' WHERE key = 'data_path'")
    return lake
