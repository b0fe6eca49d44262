"""Maintenance against its policy: what each operation may do, what is due, what the recorded runs did."""

from collections.abc import Mapping, Sequence
from typing import Any

from ducklake_orch.config.units import in_bytes
from ducklake_orch.maintenance.run_log import MaintenanceRun
from ducklake_orch.report.collect import LakeReport
from ducklake_orch.report.formatting import age, counted, table, time
from ducklake_orch.report.markup import Markup, tag


def maintenance_section(report: LakeReport) -> Markup:
    """Return the operations with their rules, and the recorded runs."""
    rows = [
        [
            part.operation,
            part.rule or "disabled",
            "" if part.due is None else did(part.operation, part.due),
            did(part.operation, part.done),
        ]
        for part in report.upkeep
    ]
    since = min((run.started_at for run in report.runs), default=None)
    head = ["operation", "policy", "due now", "done" if since is None else f"done since {since:%Y-%m-%d}"]
    return Markup(_saved(report.runs) + table(head, rows) + _runs(report.runs))


def _saved(runs: Sequence[MaintenanceRun]) -> Markup:
    if not runs:
        command = tag("code", "ducklake-orch maintain --plan")
        return tag("p", "No maintenance run is recorded. ", command, " shows what a run would do.")
    freed = sum((run.summary.get("totals") or {}).get("bytes_freed", 0) for run in runs)
    merged = [(run.summary.get("operations") or {}).get("merge") or {} for run in runs]
    fewer = sum(totals.get("files_in", 0) - totals.get("files_out", 0) for totals in merged)
    saved = [f"{in_bytes(freed)} of storage"] * bool(freed) + [counted(fewer, "file") + " by merging"] * (fewer > 0)
    saved_text = f" The recorded runs saved {' and '.join(saved)}." if saved else ""
    return tag("p", f"Last run: {time(runs[0].started_at)}, {runs[0].status}.{saved_text}")


def did(operation: str, totals: Mapping[str, int]) -> str:
    """Return the figures of an operation in words; nothing if they are all zero."""
    files_in, files_out, size = (totals.get(name) or 0 for name in ("files_in", "files_out", "bytes"))
    said = [counted(totals["snapshots"], "snapshot")] if totals.get("snapshots") else []
    if operation == "flush":
        said += [counted(totals["rows"], "row")] if totals.get("rows") else []
        said += [counted(totals["deletions"], "deletion")] if totals.get("deletions") else []
    elif files_in:
        into = f" into {files_out}" if files_out else ""
        said.append(f"{counted(files_in, 'file')}{into}")
        said += [in_bytes(size)] if size else []
    return ", ".join(said)


def _runs(runs: Sequence[MaintenanceRun]) -> Markup:
    if not runs:
        return Markup()
    rows = [_run(run) for run in runs]
    listed = table(["started", "duration", "status", "process", "did"], rows)
    return tag("details", tag("summary", f"The latest {counted(len(rows), 'run')}"), listed)


def _run(run: MaintenanceRun) -> list[Any]:
    took = "" if run.ended_at is None else age((run.ended_at - run.started_at).total_seconds())
    by_operation = run.summary.get("operations") or {}
    parts = [f"{name}: {words}" for name, totals in by_operation.items() if (words := did(name, totals))]
    totals = run.summary.get("totals") or {}
    parts += [counted(totals[end], "step") + f" {end}" for end in ("failed", "stopped") if totals.get(end)]
    return [
        time(run.started_at),
        took,
        run.status,
        f"process {run.process} on {run.host}",
        "; ".join(parts) or "nothing",
    ]
