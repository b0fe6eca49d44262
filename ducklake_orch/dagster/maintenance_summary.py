"""Says in a few sentences what a maintenance operation did, or what its plan would do."""

from collections.abc import Sequence

from ducklake_orch.config.units import in_bytes
from ducklake_orch.maintenance.results import QUARANTINE, REPORT, MaintenanceReport, PlannedStep, add_up

_VERBS = {
    "flush": ("Wrote", "write"),
    "rewrite": ("Rewrote", "rewrite"),
    "merge": ("Merged", "merge"),
    "layout": ("Clustered", "cluster"),
    "expire": ("Expired", "expire"),
    "cleanup": ("Deleted", "delete"),
    "orphans": ("Deleted", "delete"),
}


def done(operation: str, report: MaintenanceReport) -> str:
    """Say what an operation did."""
    steps = [step for step in report.operations if step.operation == operation]
    if report.dry_run:
        return planned(operation, steps)
    worked = [step for step in steps if step.status == "done"]
    failed = [step for step in steps if step.status == "failed"]
    stopped = [step for step in steps if step.status == "stopped"]
    aside, other = _apart(worked)
    sentences = [f"{_VERBS[operation][0]} {work}, {report.duration_s:.1f} s." for work in _work(operation, other)]
    sentences += [f"Moved {work} to quarantine." for work in _work(operation, aside)] + _found(worked)
    if failed:
        sentences.append(f"**{_count(len(failed), 'step')} failed**, the first for {failed[0].where}.")
    if stopped:
        sentences.append(f"{_count(len(stopped), 'step')} stopped early; the next run goes on.")
    return " ".join(sentences) or _nothing(steps)


def planned(operation: str, steps: Sequence[PlannedStep]) -> str:
    """Say what the steps of a plan would do."""
    todo = [step for step in steps if step.action == "run"]
    aside, other = _apart(todo)
    sentences = [f"Would {_VERBS[operation][1]} {work}." for work in _work(operation, other)]
    sentences += [f"Would move {work} to quarantine." for work in _work(operation, aside)]
    return " ".join([*sentences, *_found(todo)]) or _nothing(steps)


def _apart(steps: Sequence[PlannedStep]) -> tuple[list[PlannedStep], list[PlannedStep]]:
    """Return the steps that move files to quarantine, and the others."""
    return [s for s in steps if s.engine == QUARANTINE], [s for s in steps if s.engine != QUARANTINE]


def _work(operation: str, steps: Sequence[PlannedStep]) -> list[str]:
    """Return the work of steps as the rest of a sentence; nothing if there is none."""
    working = [step for step in steps if step.engine != REPORT]
    total = add_up(working)
    files, size = _count(total["files_in"], "file"), in_bytes(total["bytes"])
    known = all(step.files_out is not None for step in working)
    match operation:
        case _ if not working:
            return []
        case "flush":
            words = [_count(total[name], name.removesuffix("s")) for name in ("rows", "deletions") if total[name]]
            written = f" to {_count(total['files_out'], 'file')}" if known and total["rows"] else ""
            return [f"{' and '.join(words) or 'no rows'} of {_tables(working)}{written}"]
        case "rewrite" | "merge" | "layout":
            written = f" into {total['files_out']}" if known else ""
            return [f"{files} of {_tables(working)}{written} ({size})"]
        case "expire":
            retired = f" and retired {files} ({size})" if total["files_in"] else ""
            return [f"{_count(total['snapshots'], 'snapshot')}{retired}"]
        case _:
            return [f"{files} ({size})"]


def _found(steps: Sequence[PlannedStep]) -> list[str]:
    """Say which files were found and are only reported."""
    reported = [step for step in steps if step.engine == REPORT]
    if not reported:
        return []
    files, size = sum(step.files_in for step in reported), sum(step.bytes or 0 for step in reported)
    return [f"Found {_count(files, 'file')} ({in_bytes(size)}) that the catalog does not know; the policy keeps them."]


def _nothing(steps: Sequence[PlannedStep]) -> str:
    """Say why there was nothing to do."""
    if not steps:
        return "Nothing to do: there are no tables."
    if len(steps) == 1:
        where = f" for `{steps[0].where}`" if steps[0].table else ""
        return f"Nothing to do{where}: {steps[0].reason}."
    return f"Nothing to do for {_tables(steps)}."


def _tables(steps: Sequence[PlannedStep]) -> str:
    """Name the table of steps, or count the tables."""
    tables = {step.table for step in steps}
    return f"`{steps[0].table}`" if len(tables) == 1 else _count(len(tables), "table")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
