"""Lakes as resources, on what the test asks for."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from ducklake_orch.spark import local_session


@pytest.fixture
def resource(tmp_path: Path) -> DuckLakeResource:
    return DuckLakeResource(
        name="lake",
        catalog=f"sqlite:///{tmp_path / 'catalog.sqlite'}",
        storage=str(tmp_path / "files"),
        create_if_missing=True,
    )


@pytest.fixture
def io_manager(resource: DuckLakeResource) -> DuckLakeIOManager:
    return DuckLakeIOManager(lake=resource)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as made:
        yield made


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that assets find running."""
    running = SparkSession.getActiveSession()
    session = local_session("dagster tests", master="local[2]", conf={"spark.sql.shuffle.partitions": 2})
    yield session
    if running is None:
        session.stop()
