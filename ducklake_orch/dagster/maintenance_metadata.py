"""Builds the metadata of events about maintenance: figures for plots, and a table of the steps."""

from collections.abc import Sequence
from typing import Any

import dagster as dg

from ducklake_orch.maintenance.health_report import HealthReport
from ducklake_orch.maintenance.results import MaintenancePlan, MaintenanceReport, PlannedStep, StepReport, add_up

# Dagster keeps events forever, so a table of steps is short. The log of the run lists all steps.
_LISTED = 100
# Figures of the lake after a run, by their names in the health report.
_LAKE = ("files", "bytes", "rows", "inlined_rows", "deleted_rows", "snapshot_count", "pending_bytes", "catalog_bytes")


def report_metadata(report: MaintenanceReport, health: HealthReport) -> dict[str, Any]:
    """Return what a maintenance run did, and the health of the lake after it."""
    metadata: dict[str, Any] = {
        "ducklake/status": report.status,
        "ducklake/run_id": report.run_id,
        "ducklake/dry_run": report.dry_run,
        "ducklake/snapshot_id": report.snapshot_after,
        "ducklake/seconds": round(report.duration_s, 3),
        "ducklake/grade": health.grade,
    }
    metadata |= {f"ducklake/{name}": value for name, value in report.totals.items()}
    metrics = health.lake.metrics
    metadata |= {f"ducklake/lake_{name}": metrics[name] for name in _LAKE if metrics.get(name) is not None}
    return metadata | _step_metadata(report.warnings, [step for step in report.operations if step.status != "skipped"])


def plan_metadata(plan: MaintenancePlan, operation: str) -> dict[str, Any]:
    """Return the plan of an operation."""
    steps = [step for step in plan.operations if step.operation == operation]
    metadata: dict[str, Any] = {"ducklake/planned": True, "ducklake/snapshot_id": plan.snapshot}
    metadata |= {f"ducklake/{name}": value for name, value in add_up(steps).items()}
    return metadata | _step_metadata(plan.warnings, [step for step in steps if step.action == "run"])


def step_check(name: str, report: MaintenanceReport) -> dg.AssetCheckResult:
    """Return the check that every step of a run succeeded."""
    failed = [step for step in report.operations if step.error is not None]
    stopped = [step for step in report.operations if step.status == "stopped"]
    return dg.AssetCheckResult(
        passed=not failed and not stopped,
        check_name=name,
        severity=dg.AssetCheckSeverity.ERROR if failed else dg.AssetCheckSeverity.WARN,
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
