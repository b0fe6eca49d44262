"""One Spark session per process: two concurrent tasks, three attempts, 1 MB of driver results, an event log."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch.spark import local_session


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Spark's event log: the plans, settings and accumulators of every job."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def spark(event_log: Path) -> SparkSession:
    running = SparkSession.getActiveSession()
    if running is not None and running.sparkContext.appName == "tests":
        return running
    if running is not None:
        running.stop()  # a host's tests ran before in this process, with their own settings
    conf = {
        "spark.sql.shuffle.partitions": 2,
        "spark.driver.maxResultSize": "1m",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
    }
    return local_session("tests", master="local[2,3]", conf=conf)


@pytest.fixture(scope="module")
def new_session(spark: SparkSession) -> Iterator[Callable[[], SparkSession]]:
    """Makes sessions with settings of their own, and makes the first session active again at the module's end.

    `createDataFrame` makes its session the active one, which `local_session` and hosts then use.
    """
    yield spark.newSession
    spark.createDataFrame([], "x INT")
    assert SparkSession.getActiveSession() is spark
