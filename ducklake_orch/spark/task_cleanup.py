"""Delete the files that tasks of a write leave behind: `cleaned_up_on_failure`, `remove_other_attempts`.

Spark lets other attempts at a task continue, and their Python workers may begin another file after they were cancelled.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# The longest wait for tasks to end, in seconds.
_MAX_WAIT_S = 20.0
# Python workers continue after their task is cancelled, until they next read or write. Spark kills them after two
# seconds (`spark.python.task.killTimeout`), in which they may begin another file.
_QUIET_S = 4.0


@contextmanager
def cleaned_up_on_failure(spark: Any, write_id: str, remove_files: Callable[[], int]) -> Iterator[None]:
    """Cancel the jobs of a block that fails, for any reason, and delete the files that their tasks have written.

    Args:
        spark: The session that runs the jobs.
        write_id: Identifies the jobs of this write.
        remove_files: Deletes the files of the write and returns how many there were.
    """
    tag = _tag(write_id)
    tag_jobs(spark, tag)
    try:
        yield
    except BaseException:
        cancel_jobs(spark, tag)
        _wait_for_tasks(spark, _stages(spark, write_id))
        remove_strays(remove_files, may_follow=True)
        raise
    finally:
        untag_jobs(spark, tag)


def remove_other_attempts(spark: Any, write_id: str, remove_files: Callable[[], int], *, retried: bool = False) -> None:
    """Delete the files that other attempts at the tasks of a successful write have left.

    Args:
        spark: The session that ran the jobs.
        write_id: Identifies the jobs of this write.
        remove_files: Deletes the files that do not belong to the write's result and returns how many there were.
        retried: Whether a task was retried, as far as the caller knows. Spark's status store tells it too, but Spark
            Connect has none.
    """
    stages = _stages(spark, write_id)
    _wait_for_tasks(spark, stages)
    failed = retried or any(_has_failed_tasks(spark, stage) for stage in stages)
    remove_strays(remove_files, may_follow=failed)


def remove_strays(remove_files: Callable[[], int], *, may_follow: bool) -> None:
    """Delete files; if more may follow, until no new ones have appeared for a while."""
    if not may_follow:
        remove_files()
        return
    deadline = time.monotonic() + _MAX_WAIT_S
    quiet_since = time.monotonic()
    while time.monotonic() < min(deadline, quiet_since + _QUIET_S):
        if remove_files():
            quiet_since = time.monotonic()
        time.sleep(0.25)


def tag_jobs(spark: Any, tag: str) -> None:
    """Tag the jobs that this thread starts from now on."""
    context = getattr(spark, "_sc", None)
    (context.addJobTag if context else spark.addTag)(tag)


def untag_jobs(spark: Any, tag: str) -> None:
    """Stop tagging the jobs that this thread starts."""
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


def was_repeated(spark: Any, write_id: str) -> bool:
    """Whether a stage of a write was repeated, according to Spark's status store; its attempts then restart at 0."""
    return any(_attempts(spark, stage) > 1 for stage in _stages(spark, write_id))


def _wait_for_tasks(spark: Any, stages: set[int]) -> None:
    """Wait until no task of the stages runs, according to Spark's status store."""
    deadline = time.monotonic() + _MAX_WAIT_S
    while time.monotonic() < deadline and any(_is_running(spark, stage) for stage in stages):
        time.sleep(0.05)


def _tag(write_id: str) -> str:
    return f"ducklake-{write_id}"


def _stages(spark: Any, write_id: str) -> set[int]:
    """Return the stages of a write, according to Spark's status store; Spark Connect has none."""
    if (context := getattr(spark, "_sc", None)) is None:
        return set()
    tracker = context._jsc.sc().statusTracker()
    return {
        stage
        for job in tracker.getJobIdsForTag(_tag(write_id))
        if (known := tracker.getJobInfo(job)).isDefined()
        for stage in known.get().stageIds()
    }


def _is_running(spark: Any, stage: int) -> bool:
    last = _last_attempt(spark, stage)
    return last is not None and bool(last.numActiveTasks())


def _has_failed_tasks(spark: Any, stage: int) -> bool:
    last = _last_attempt(spark, stage)
    return last is not None and bool(last.numFailedTasks() or last.numKilledTasks())


def _attempts(spark: Any, stage: int) -> int:
    last = _last_attempt(spark, stage)
    return 0 if last is None else int(last.attemptId()) + 1


def _last_attempt(spark: Any, stage: int) -> Any:
    from py4j.protocol import Py4JJavaError

    try:
        return spark._sc._jsc.sc().statusStore().lastStageAttempt(stage)
    except Py4JJavaError:  # the stage never began, or Spark no longer records it
        return None
