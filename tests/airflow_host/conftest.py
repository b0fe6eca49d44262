"""Airflow with a home and a database of its own, and connections to lakes."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_connections import Connect

# Airflow reads these when it is imported, and makes its home then.
_HOME = tempfile.mkdtemp(prefix="airflow-home-")
os.environ.update(
    AIRFLOW_HOME=_HOME,
    AIRFLOW__CORE__DAGS_FOLDER=f"{_HOME}/dags",
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__CORE__UNIT_TEST_MODE="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{_HOME}/airflow.db",
    AIRFLOW__LOGGING__LOGGING_LEVEL="INFO",
)
Path(_HOME, "dags").mkdir()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let Airflow and its libraries warn each other; what this package is warned of is still an error."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("default"))
            item.add_marker(pytest.mark.filterwarnings("error:::ducklake_orch"))


@pytest.fixture(scope="session", autouse=True)
def airflow_database() -> Iterator[None]:
    from airflow.utils.db import initdb

    initdb()
    yield
    shutil.rmtree(_HOME, ignore_errors=True)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Return a function that makes a connection, as a variable of the environment, and returns its id."""

    def make(conn_id: str = "ducklake_default", conn_type: str = "ducklake", **fields: Any) -> str:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))
        return conn_id

    return make


@pytest.fixture
def conn_id(connect: Connect, tmp_path: Path) -> str:
    """A connection to a lake on SQLite."""
    catalog = {"type": "sqlite", "path": str(tmp_path / "catalog.sqlite")}
    return connect(extra={"catalog": catalog, "storage": str(tmp_path / "files"), "create_if_missing": True})
