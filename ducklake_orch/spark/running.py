"""What still runs of a write whose outcome is known: Spark lets other attempts go on, and they leave files behind."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# How long to wait for tasks to end; workers of Python go on after their tasks, until they next read or write.
_PATIENCE = 20.0
_QUIET = 2.0


@contextmanager
def swept_if_it_fails(spark: Any, write_id: str, sweep: Callable[[], int]) -> Iterator[None]:
    """Cancel the jobs of a block that fails, for whatever reason, and remove what their tasks have written.

    Args:
        spark: The session that runs the jobs.
        write_id: Tells them from others.
        sweep: Removes the files that are there, and says how many there were.
    """
    context = getattr(spark, "_sc", None)
    tag = _tag(write_id)
    (context.addJobTag if context else spark.addTag)(tag)
    try:
        yield
    except BaseException:
        (context.cancelJobsWithTag if context else spark.interruptTag)(tag)
        wait_for_others(spark, write_id)
        _sweep_until_quiet(sweep)
        raise
    finally:
        (context.removeJobTag if context else spark.removeTag)(tag)


def wait_for_others(spark: Any, write_id: str) -> None:
    """Wait until no task of a write runs, as far as Spark keeps account of it; with Connect it tells nobody."""
    if (context := getattr(spark, "_sc", None)) is None:
        return
    scala = context._jsc.sc()
    tracker, store = scala.statusTracker(), scala.statusStore()
    stages = {
        stage
        for job in tracker.getJobIdsForTag(_tag(write_id))
        if (known := tracker.getJobInfo(job)).isDefined()
        for stage in known.get().stageIds()
    }
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and any(_runs(store, stage) for stage in stages):
        time.sleep(0.05)


def _tag(write_id: str) -> str:
    return f"ducklake-{write_id}"


def _runs(store: Any, stage: int) -> bool:
    from py4j.protocol import Py4JJavaError

    try:
        return bool(store.lastStageAttempt(stage).numActiveTasks())
    except Py4JJavaError:  # it never began, or is forgotten
        return False


def _sweep_until_quiet(sweep: Callable[[], int]) -> None:
    """Remove files until no more of them turn up."""
    until = time.monotonic() + _PATIENCE
    quiet_since = time.monotonic()
    while time.monotonic() < min(until, quiet_since + _QUIET):
        if sweep():
            quiet_since = time.monotonic()
        time.sleep(0.25)
