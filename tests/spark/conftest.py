"""One Spark session per test file: two concurrent tasks, three attempts, 1 MB of driver results, an event log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch.spark import local_session


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's event log: plans, settings and accumulators of every job."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(event_log: Path) -> Iterator[SparkSession]:
    if (active := SparkSession.getActiveSession()) is not None:
        active.stop()  # left by tests of a host in this process, with other settings
    conf = {
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.maxResultSize": "1m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    session = local_session("tests", master="local[2,3]", conf=conf)
    yield session
    session.stop()
