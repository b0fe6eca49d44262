"""Lakes as Dagster resources, on the catalog and storage that a test asks for."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, S3Storage
from ducklake_orch.spark import local_session
from tests.support.dagster_runs import FAR
from tests.support.lakes import Servers, catalog_fields, storage_fields


@pytest.fixture
def resource(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> DuckLakeResource:
    """A lake on SQLite; in tests marked `central`, also one on a catalog server and a bucket."""
    catalog: str = f"sqlite:///{tmp_path / 'catalog.sqlite'}"
    storage: str | S3Storage = str(tmp_path / "files")
    if getattr(request, "param", None) == FAR:
        catalog = catalog_fields(FAR.catalog, servers, tmp_path, "lake")["url"]
        fields = storage_fields(FAR.storage, servers, tmp_path, "lake")
        storage = S3Storage(**{name: value for name, value in fields.items() if name != "type"})
    return DuckLakeResource(name="lake", catalog=catalog, storage=storage, create_if_missing=True)


@pytest.fixture
def io_manager(resource: DuckLakeResource) -> DuckLakeIOManager:
    return DuckLakeIOManager(lake=resource)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as ephemeral:
        yield ephemeral


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    """A session that already runs when assets start."""
    running = SparkSession.getActiveSession()
    session = local_session("dagster tests", master="local[2]", conf={"spark.sql.shuffle.partitions": 2})
    yield session
    if running is None:
        session.stop()
