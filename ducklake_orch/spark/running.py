"""What still runs of a write whose outcome is known: Spark lets other attempts go on, and they leave files behind."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# How long to wait for tasks to end.
_PATIENCE = 20.0
# Workers of Python go on after their tasks, until they next read or write: Spark kills them after two seconds
# (`spark.python.task.killTimeout`), in which they may begin another file.
_QUIET = 4.0


@contextmanager
def swept_if_it_fails(spark: Any, write_id: str, sweep: Callable[[], int]) -> Iterator[None]:
    """Cancel the jobs of a block that fails, for whatever reason, and remove what their tasks have written.

    Args:
        spark: The session that runs the jobs.
        write_id: Tells them from others.
        sweep: Removes the files that are there, and says how many there were.
    """
    tag = _tag(write_id)
    tag_jobs(spark, tag)
    try:
        yield
    except BaseException:
        cancel_jobs(spark, tag)
        wait_for_others(spark, write_id)
        _sweep_until_quiet(sweep)
        raise
    finally:
        untag_jobs(spark, tag)


def tag_jobs(spark: Any, tag: str) -> None:
    """Give a tag to the jobs that this thread starts from now on."""
    context = getattr(spark, "_sc", None)
    (context.addJobTag if context else spark.addTag)(tag)


def untag_jobs(spark: Any, tag: str) -> None:
    """Give it to no more of them."""
    context = getattr(spark, "_sc", None)
    (context.removeJobTag if context else spark.removeTag)(tag)


def cancel_jobs(spark: Any, tag: str) -> bool:
    """Cancel the jobs with a tag, whatever thread started them; return whether one was running."""
    if (context := getattr(spark, "_sc", None)) is None:
        return bool(spark.interruptTag(tag))
    tracker = context._jsc.sc().statusTracker()
    running = set(tracker.getJobIdsForTag(tag)).intersection(tracker.getActiveJobIds())
    context.cancelJobsWithTag(tag)
    return bool(running)


def wait_for_others(spark: Any, write_id: str) -> None:
    """Wait until no task of a write runs, as far as Spark keeps account of it; with Connect it tells nobody."""
    if (context := getattr(spark, "_sc", None)) is None:
        return
    store, stages = context._jsc.sc().statusStore(), _stages(context, write_id)
    until = time.monotonic() + _PATIENCE
    while time.monotonic() < until and any(_runs(store, stage) for stage in stages):
        time.sleep(0.05)


def was_repeated(spark: Any, write_id: str) -> bool:
    """Whether a stage of a write began again, as far as Spark keeps account of it: its tasks count from 0 then."""
    if (context := getattr(spark, "_sc", None)) is None:
        return False
    store = context._jsc.sc().statusStore()
    return any(_attempts(store, stage) > 1 for stage in _stages(context, write_id))


def _tag(write_id: str) -> str:
    return f"ducklake-{write_id}"


def _stages(context: Any, write_id: str) -> set[int]:
    tracker = context._jsc.sc().statusTracker()
    return {
        stage
        for job in tracker.getJobIdsForTag(_tag(write_id))
        if (known := tracker.getJobInfo(job)).isDefined()
        for stage in known.get().stageIds()
    }


def _runs(store: Any, stage: int) -> bool:
    last = _last_attempt(store, stage)
    return last is not None and bool(last.numActiveTasks())


def _attempts(store: Any, stage: int) -> int:
    last = _last_attempt(store, stage)
    return 0 if last is None else int(last.attemptId()) + 1


def _last_attempt(store: Any, stage: int) -> Any:
    from py4j.protocol import Py4JJavaError

    try:
        return store.lastStageAttempt(stage)
    except Py4JJavaError:  # it never began, or is forgotten
        return None


def _sweep_until_quiet(sweep: Callable[[], int]) -> None:
    """Remove files until no more of them turn up."""
    until = time.monotonic() + _PATIENCE
    quiet_since = time.monotonic()
    while time.monotonic() < min(until, quiet_since + _QUIET):
        if sweep():
            quiet_since = time.monotonic()
        time.sleep(0.25)
