"""The notes of the maintenance DAG and of its tasks in Airflow, for the person on call."""

from collections.abc import Sequence
from typing import NamedTuple

RUN_BOOK = "docs/maintenance-runbook.md"


class Note(NamedTuple):
    """The note of a task.

    Attributes:
        does: What the task does.
        fails: When it fails, other than by a lost worker or an unreachable catalog.
        helps: What to do then.
    """

    does: str
    fails: str
    helps: str

    def __str__(self) -> str:
        return f"{self.does}\n\n**Fails** when {self.fails}.\n\n**What helps:** {self.helps} Run-book: `{RUN_BOOK}`."


_FILES = "a data file cannot be read or written, or the worker runs out of memory"
_MEMORY = '`fsck` for a file that cannot be read; a `memory_limit`, a lower `max_files_per_run` or `engine="spark"`.'
NOTES = {
    "plan": Note(
        "Reads the catalog and returns what each operation would do. Changes nothing.",
        "the lake cannot be opened, or the policy or a table name is wrong. The operations then do not start",
        "`ducklake-orch doctor`; the message names a wrong setting.",
    ),
    "flush": Note(
        "Writes rows that the catalog holds inline to data files.",
        "a data file cannot be written",
        "access of the worker to the storage.",
    ),
    "rewrite": Note("Rewrites data files that have many deleted rows.", _FILES, _MEMORY),
    "merge": Note("Merges small data files.", _FILES, _MEMORY),
    "layout": Note("Clusters data files by the cluster keys or sort keys of their tables.", _FILES, _MEMORY),
    "expire": Note(
        "Expires old snapshots, as the policy's `expire` says.",
        "another program locks the catalog for longer than `lock_timeout`",
        "`ducklake-orch doctor` shows who holds the lock.",
    ),
    "cleanup": Note(
        "Deletes data files that no snapshot needs any more.",
        "the storage refuses to delete. The files stay scheduled for the next run",
        "the permission to delete objects in the storage.",
    ),
    "orphans": Note(
        "Finds data files that the catalog does not know, and reports or deletes them.",
        "the storage cannot be listed",
        "the permission to list the storage.",
    ),
    "health": Note(
        "Grades the lake and its tables. Runs at the end, whatever happened before.",
        "the grade reaches `fail_at`, or the lake cannot be read",
        "the report in its log, which names each bad figure and the command that improves it.",
    ),
    "all_succeeded": Note(
        "Does nothing. The state of a run is that of its last task.",
        "any other task failed: it is then `upstream_failed`, and the run is red",
        "the failed task: read its log and its note.",
    ),
}


def dag_note(ducklake_conn_id: str, operations: Sequence[str], tries: int) -> str:
    """Return the note of the DAG.

    Args:
        ducklake_conn_id: The connection to the lake.
        operations: The operations, in the order in which they run.
        tries: How many times each task is tried.
    """
    tasks = ["plan", *operations, "health", "all_succeeded"]
    rows = [f"| `{task}` | {' | '.join(NOTES[task])} |" for task in tasks if task in NOTES]
    return _DAG.format(lake=ducklake_conn_id, tries=tries, rows="\n".join(rows), run_book=RUN_BOOK)


_DAG = """\
Maintains the lake of connection `{lake}`, one run at a time.

**The run is red: what now?** Nothing is broken by a failed or killed task: each operation commits a finished step or
nothing, and the next run does the remaining work. Readers and writers are not affected. One red night can wait for the
morning. Several in a row let files, snapshots and storage grow.

1. Open the red task and read the end of its log. The message says what happened and what helps.
2. Fix that, then clear the task with its downstream tasks. Every task is safe to run again.
3. The same task fails again: follow the run-book, `{run_book}` in ducklake-orch.

Tries of each task: {tries}. A failed operation does not stop the others. `health` always runs. The last task,
`all_succeeded`, makes the run red if any task failed.

| Task | What it does | Fails when | What helps |
|---|---|---|---|
{rows}

Every task also fails after its last try if its workers were lost, if the catalog is unreachable, or if another
maintenance run holds the lake. `ducklake-orch doctor` shows the last two.
"""
