"""Builds the metadata of events about maintenance: a summary, a table of the steps, and figures for plots."""

from collections.abc import Mapping, Sequence
from typing import Any

import dagster as dg

from ducklake_orch.dagster import maintenance_summary
from ducklake_orch.maintenance.health_report import HealthReport
from ducklake_orch.maintenance.results import MaintenancePlan, MaintenanceReport, PlannedStep, StepReport, add_up

# Dagster keeps events forever, so a table of steps is short. The log of the run lists all steps.
_LISTED = 100
_FILES = frozenset({"files_in", "files_out", "bytes", "rows"})
# The figures that an operation is about. Each of its events has them, also if they are 0: Dagster plots them over time,
# and a missing figure is a gap in the plot. Other figures are left out if they are 0.
_FIGURES = {
    "flush": frozenset({"files_out", "rows", "deletions"}),
    "rewrite": _FILES,
    "merge": _FILES,
    "layout": _FILES,
    "expire": frozenset({"files_in", "bytes", "snapshots"}),
    "cleanup": frozenset({"files_in", "bytes_freed"}),
    "orphans": frozenset({"files_in", "bytes_freed"}),
}
# Figures of the lake after a run, by their names in the health report.
_LAKE = ("files", "bytes", "rows", "inlined_rows", "deleted_rows", "snapshot_count", "pending_bytes", "catalog_bytes")


def report_metadata(operation: str, report: MaintenanceReport, health: HealthReport) -> dict[str, Any]:
    """Return what an operation did, and the health of the lake after it. Dagster shows them in this order."""
    metadata: dict[str, Any] = {"ducklake/summary": dg.MetadataValue.md(maintenance_summary.done(operation, report))}
    metadata |= _step_metadata(report.warnings, [step for step in report.operations if step.status != "skipped"])
    metadata |= {
        "ducklake/status": report.status,
        "ducklake/grade": health.grade,
        "ducklake/seconds": round(report.duration_s, 3),
    }
    metadata |= _figures(operation, report.totals)
    metrics = health.lake.metrics
    metadata |= {f"ducklake/lake_{name}": metrics[name] for name in _LAKE if metrics.get(name) is not None}
    return metadata | {
        "ducklake/snapshot_id": report.snapshot_after,
        "ducklake/run_id": report.run_id,
        "ducklake/dry_run": report.dry_run,
    }


def plan_metadata(plan: MaintenancePlan, operation: str) -> dict[str, Any]:
    """Return the plan of an operation."""
    steps = [step for step in plan.operations if step.operation == operation]
    summary = maintenance_summary.planned(operation, steps)
    metadata: dict[str, Any] = {"ducklake/summary": dg.MetadataValue.md(summary)}
    metadata |= _step_metadata(plan.warnings, [step for step in steps if step.action == "run"])
    metadata |= _figures(operation, add_up(steps))
    return metadata | {"ducklake/planned": True, "ducklake/snapshot_id": plan.snapshot}


def _figures(operation: str, figures: Mapping[str, int]) -> dict[str, int]:
    own = _FIGURES[operation]
    return {f"ducklake/{name}": value for name, value in figures.items() if value or name in own}


def step_check(name: str, report: MaintenanceReport) -> dg.AssetCheckResult:
    """Return the check that every step of a run succeeded."""
    failed = [step for step in report.operations if step.error is not None]
    stopped = [step for step in report.operations if step.status == "stopped"]
    first = [str(step) for step in [*failed, *stopped][:3]]
    return dg.AssetCheckResult(
        passed=not failed and not stopped,
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR if failed else dg.AssetCheckSeverity.WARN,
        description="; ".join(first) or None,
        metadata={
            "ducklake/failed": len(failed),
            "ducklake/stopped": len(stopped),
            **_step_metadata((), [*failed, *stopped]),
        },
    )


def _step_metadata(warnings: Sequence[str], steps: Sequence[PlannedStep]) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    if warnings:
        metadata["ducklake/warnings"] = dg.MetadataValue.md("\n".join(f"- {warning}" for warning in warnings))
    if steps:
        metadata["ducklake/report"] = dg.MetadataValue.table([_record(step) for step in steps[:_LISTED]])
    return metadata


def _record(step: PlannedStep) -> dg.TableRecord:
    cells: dict[str, Any] = {"operation": step.operation, "where": step.where}
    if isinstance(step, StepReport):
        cells["status"] = step.status
    cells |= {"files in": step.files_in, "files out": step.files_out or 0, "rows": step.rows, "bytes": step.bytes or 0}
    if isinstance(step, StepReport):
        cells["seconds"] = round(step.duration_s, 3)
        return dg.TableRecord(cells | {"note": str(step.error or step.reason)})
    return dg.TableRecord(cells | {"note": step.reason})
