"""The Spark session of a task: the one that runs, else one that is stopped with the task."""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from ducklake_orch.airflow.connection import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ducklake_orch")


class TaskSpark:
    """The Spark session of a block: started when it is asked for, stopped at the end if nobody else had started it.

    Its jobs are cancelled when the block fails, for a killed task must not go on in the cluster.

    Args:
        settings: Tells what the connection says about it.
    """

    def __init__(self, settings: Callable[[], SparkSettings]) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._own = False
        self._tag = f"ducklake-task-{uuid4().hex}"

    def session(self) -> "SparkSession":
        """Return the session."""
        if self._session is None:
            self._session, self._own = session_of(self._settings())
            self._session.addTag(self._tag)
        return self._session

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            if kind is not None:
                session.interruptTag(self._tag)
            session.removeTag(self._tag)
        finally:
            if self._own:
                session.stop()


def session_of(settings: SparkSettings) -> "tuple[SparkSession, bool]":
    """Return a session, and whether it was started for it."""
    from ducklake_orch.spark.session import check_pyspark, local_session

    check_pyspark()
    # Airflow logs all of INFO, and Py4J tells of every connection there.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    from pyspark.sql import SparkSession

    if (running := SparkSession.getActiveSession()) is not None:
        return running, False
    if settings.remote is None:
        master = settings.master or "local[*]"
        log.info("starting a Spark session at %s", master)
        return local_session("airflow", master=master, conf=settings.conf), True
    builder = SparkSession.builder.remote(settings.remote)
    for name, value in settings.conf.items():
        builder = builder.config(name, value)
    return builder.getOrCreate(), True
