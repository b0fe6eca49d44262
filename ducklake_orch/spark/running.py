"""What still runs of a write that failed: Spark lets other tasks go on for a while, and they write files.

They have to be at an end before the write's files are removed, or some appear after that.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# Workers of Python end a moment after the tasks that they work for.
_MOMENT = 1.0
_PATIENCE = 20.0


@contextmanager
def ended_if_it_fails(spark: Any, write_id: str) -> Iterator[None]:
    """Cancel the jobs of a block that fails, for whatever reason, and wait for their tasks."""
    tag = f"ducklake-{write_id}"
    context = getattr(spark, "_sc", None)
    (context.addJobTag if context else spark.addTag)(tag)
    try:
        yield
    except BaseException:
        if context is None:
            spark.interruptTag(tag)
        else:
            context.cancelJobsWithTag(tag)
            _wait(context, tag)
        time.sleep(_MOMENT)
        raise
    finally:
        (context.removeJobTag if context else spark.removeTag)(tag)


def _wait(context: Any, tag: str) -> None:
    """Wait until no task of a job runs, as far as Spark keeps account of it."""
    scala = context._jsc.sc()
    tracker, store = scala.statusTracker(), scala.statusStore()
    stages = {
        stage
        for job in tracker.getJobIdsForTag(tag)
        if (known := tracker.getJobInfo(job)).isDefined()
        for stage in known.get().stageIds()
    }
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and any(_runs(store, stage) for stage in stages):
        time.sleep(0.05)


def _runs(store: Any, stage: int) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        return bool(store.lastStageAttempt(stage).numActiveTasks())
    except Py4JJavaError:  # it never began, or is forgotten
        return False
