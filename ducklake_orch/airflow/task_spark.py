"""The Spark session of a task: the running one, else a new one that stops with the task."""

import logging
from collections.abc import Callable
from threading import Thread
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from ducklake_orch.airflow.connection import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# How long Spark may take to answer which jobs it has cancelled.
_PATIENCE = 20.0
log = logging.getLogger("ducklake_orch")


class TaskSpark:
    """The Spark session of a `with` block: started on first use, and stopped at the end unless it ran before.

    If the block fails, its jobs are cancelled, because a killed task must not keep running in the cluster.

    Args:
        settings: Returns the Spark settings of the connection.
    """

    def __init__(self, settings: Callable[[], SparkSettings]) -> None:
        self._settings = settings
        self._session: SparkSession | None = None
        self._own = False
        self._tag = f"ducklake-task-{uuid4().hex}"

    def session(self) -> "SparkSession":
        """Return the session."""
        from ducklake_orch.spark.task_cleanup import tag_jobs

        if self._session is None:
            self._session, self._own = session_of(self._settings())
            tag_jobs(self._session, self._tag)
        return self._session

    def cancel(self) -> bool:
        """Cancel the running jobs, and return whether there were any. Calls that wait for them then raise an error.

        The method can be called during another call to Spark, because Py4J has a connection for each thread.
        """
        from ducklake_orch.spark.task_cleanup import cancel_jobs

        session, cancelled = self._session, list[bool]()
        if session is not None:
            thread = Thread(target=lambda: cancelled.append(cancel_jobs(session, self._tag)), daemon=True)
            thread.start()
            thread.join(_PATIENCE)
        return any(cancelled)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        from ducklake_orch.spark.task_cleanup import cancel_jobs, untag_jobs

        try:
            if kind is not None:
                cancel_jobs(session, self._tag)
            untag_jobs(session, self._tag)
        finally:
            if self._own:
                session.stop()


def session_of(settings: SparkSettings) -> "tuple[SparkSession, bool]":
    """Return the running session or a new one, and whether it is new."""
    from ducklake_orch.spark.session import check_pyspark, local_session

    check_pyspark()
    # Airflow logs everything from INFO on, and Py4J logs every connection at INFO.
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
