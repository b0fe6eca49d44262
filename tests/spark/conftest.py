"""One Spark session for the tests of a file: two tasks at a time, three attempts, a driver without rows, a log."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch.spark import local_session


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of what Spark notes of every job: its plans, settings and accumulators."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(event_log: Path) -> Iterator[SparkSession]:
    if (other := SparkSession.getActiveSession()) is not None:
        other.stop()  # a host's tests ran before in this process, with settings of their own
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
