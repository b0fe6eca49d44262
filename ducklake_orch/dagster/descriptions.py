"""Describes the assets, checks and jobs of maintenance: what they do, when they fail, and what helps."""

from ducklake_orch.maintenance.health import HELPS

_OPERATIONS = {
    "flush": "Writes rows and deletions that are inlined in the catalog to Parquet files and delete files.",
    "rewrite": "Rewrites data files that have lost many of their rows, without the deleted rows.",
    "merge": "Merges the small data files of each partition into larger ones.",
    "layout": "Clusters the data files of tables with cluster keys or sort keys, so that queries skip more of them.",
    "expire": "Expires old snapshots and retires the files that no other snapshot needs.",
    "cleanup": "Deletes files from the storage that were retired longer ago than `cleanup.older_than` in the policy.",
    "orphans": "Searches the storage for files that the catalog does not know, and deletes or reports them.",
}
_FIGURES = {
    "small_file_ratio": "Share of a table's files that a merge combines. Small files slow down every query.",
    "files_per_partition": "Largest number of files in a partition of a table. Many files slow down every query.",
    "delete_share": "Share of a table's stored rows that are deleted. Queries still read these rows.",
    "depth": "Number of files of a partition that hold a value of a cluster key or sort key. Queries read them all.",
    "inlined_rows": "Rows of a table that only the catalog holds. Other engines cannot read the table until a flush.",
    "snapshot_count": "Number of snapshots that expiry can remove. Many snapshots slow down the catalog.",
    "snapshot_age": "Age in seconds of the oldest snapshot that expiry can remove. Snapshots keep old files alive.",
    "pending_bytes": "Size of the retired files that are not deleted yet.",
}

JOB = (
    "A table that fails does not stop the others: the check `no_step_failed` of the operation fails, and the next run"
    " tries again. The run fails if the lake does not open, or if another maintenance run is active for long."
    "\n\nWhat helps: read the first failed step; run the job again, which is always safe. `ducklake-orch doctor` shows"
    " whether the lake opens, and `ducklake-orch health` which figure is bad."
)
SCHEDULE = "The schedule is off until you start it. After a missed night, run the job by hand, which is always safe."
PLAN_JOB = (
    "Changes nothing: the page of each operation's asset shows what the operation would do. It fails only if the lake"
    " does not open. `ducklake-orch maintain --plan` prints the same plan."
)


def of_lake(lake: str) -> str:
    """Describe the key under which the health of the lake is checked."""
    return (
        f"The health of the lake `{lake}` as a whole, measured after maintenance. It has only checks and is never"
        " materialized. `ducklake-orch health` prints the same figures."
    )


def of_operation(operation: str, scope: str) -> str:
    """Describe the asset of an operation; `scope` names the lake and its maintained tables."""
    return (
        f"{_OPERATIONS[operation]} {scope}\n\n"
        "If a table fails, the check `no_step_failed` fails, the other tables are maintained, and the next run tries"
        " again. The run itself fails if the lake does not open, or if another maintenance run is active.\n\n"
        f"What helps: `ducklake-orch maintain --plan --operation {operation}` shows what it would do and why it skips"
        f" the rest. `ducklake-orch doctor` shows whether the lake opens. The policy has settings for `{operation}`."
    )


def of_steps(operation: str) -> str:
    """Describe the check that no step of an operation failed."""
    return (
        "Fails with an error if a step failed, and with a warning if a step was not started because the run had to"
        " end. What helps: the error in the result names the cause; the next run repeats the work."
        f" `ducklake-orch maintain --operation {operation}` repeats it now."
    )


def of_figure(metric: str) -> str:
    """Describe the check of a health figure."""
    return (
        f"{_FIGURES[metric]} Fails with a warning at the first threshold of `health.{metric}` in the maintenance"
        " policy, and with an error at the second."
        f" What helps: `ducklake-orch maintain --operation {HELPS[metric]}`; `ducklake-orch health` names the"
        " tables and commands."
    )


def of_consistency(what: str) -> str:
    """Describe the fsck check of the lake or of a table."""
    return (
        f"The catalog's records of {what} are consistent. Reads the catalog, not the files. Fails with an error if"
        " queries can fail or return wrong rows, else with a warning."
        " What helps: `ducklake-orch fsck` names the effect and the remedy of each finding; `--deep` also reads files."
    )
