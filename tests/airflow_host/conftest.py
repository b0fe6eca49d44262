"""Airflow with a temporary home and database, and connections to lakes."""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.airflow_connections import Connect

# Airflow reads these variables when it is imported, and creates its home at that moment.
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
    """Tolerate warnings raised in Airflow and its libraries; a warning raised in this package stays an error."""
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
    """Return a function that defines a connection in an environment variable and returns its id."""

    def make(conn_id: str = "ducklake_default", conn_type: str = "ducklake", **fields: Any) -> str:
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps({"conn_type": conn_type, **fields}))
        return conn_id

    return make


@pytest.fixture
def conn_id(connect: Connect, tmp_path: Path) -> str:
    """A connection to a lake on SQLite."""
    catalog = {"type": "sqlite", "path": str(tmp_path / "catalog.sqlite")}
    return connect(extra={"catalog": catalog, "storage": str(tmp_path / "files"), "create_if_missing": True})
