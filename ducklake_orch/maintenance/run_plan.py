"""Run a maintenance plan step by step (`lake.maintain`); a failed step does not affect the others."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal
from uuid import uuid4

from ducklake_orch.catalog.metadata import make_structs_readable
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import OPERATIONS, MaintenancePolicy
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.quoting import TableName, table_name
from ducklake_orch.errors import ConfigError, DuckLakeOrchError, ObjectNotFoundError, StalePlanError, TableDroppedError
from ducklake_orch.maintenance.lake_figures import Figures, figures
from ducklake_orch.maintenance.ranking import task_name
from ducklake_orch.maintenance.results import (
    REPORT,
    MaintenancePlan,
    MaintenanceReport,
    PlannedStep,
    Status,
    StepReport,
    add_up,
)
from ducklake_orch.maintenance.run_limits import Stop, handling_signals
from ducklake_orch.maintenance.run_log import note_begin, note_end, only_runner
from ducklake_orch.maintenance.run_step import run_step
from ducklake_orch.maintenance.step_context import Work
from ducklake_orch.maintenance.table_plan import TABLE_OPERATIONS

log = logging.getLogger("ducklake_orch")
# Called with each step before it runs, and with its report afterwards.
Progress = Callable[[PlannedStep], None]


def maintain(
    config: LakeConfig,
    plan: MaintenancePlan,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    spark: Any = None,
) -> MaintenanceReport:
    """Run a plan; see `DuckLake.maintain`."""
    plan.policy.refuse_below_floors()
    _refuse_another_lake(config, plan)
    run = _Run(config, plan, progress or (lambda _: None), spark)
    if dry_run:
        steps = [_report(step, "planned" if step.action == "run" else "skipped") for step in plan.operations]
        return run.report(steps, plan.snapshot, dry_run=True)
    refuse_read_only(config, "maintenance")
    if spark is None and any(step.engine == "spark" for step in plan.operations):
        raise ConfigError(
            "The plan has steps for Spark.", remedy="Pass the session: `maintain(…, spark=spark)`, or `--spark`."
        )
    with only_runner(config) as check_lock, handling_signals(run.stop):
        return run.run_all(check_lock)


def _refuse_another_lake(config: LakeConfig, plan: MaintenancePlan) -> None:
    """Refuse the plan of another lake, because plans identify tables, files and snapshots by ids that every lake has.

    A copy of a catalog has the identity of the original; the plan's snapshot tells them apart once one of them has new
    commits.
    """
    with planning(config, "Comparing the plan with the lake") as metadata:
        lake_id, made_at = metadata.lake_id(), metadata.snapshot_time(plan.snapshot)
        ahead = plan.snapshot > metadata.latest().snapshot_id
    planned_id, planned_time = plan.lake_id
    # A snapshot that has expired since the plan proves nothing.
    if lake_id != planned_id or ahead or (made_at is not None and made_at != planned_time):
        raise ConfigError(
            f"The plan was made for another lake (`{plan.lake}`, {planned_id}), not for `{config.name}` ({lake_id}).",
            remedy="Plan and maintain with the same lake: `lake.maintain(lake.plan_maintenance(…))`.",
        )


class _Run:
    """One run of a plan."""

    def __init__(self, config: LakeConfig, plan: MaintenancePlan, progress: Progress, spark: Any) -> None:
        limits = {name: getattr(plan.policy, name) for name in ("memory_limit", "threads", "temp_directory")}
        self._config = config.model_copy(update={name: value for name, value in limits.items() if value is not None})
        self._plan = plan
        self._progress = progress
        self._spark = spark
        self._id = uuid4().hex
        self._started_at = datetime.now(UTC)
        self.stop = Stop(plan.policy)

    def run_all(self, check_lock: Callable[[], None]) -> MaintenanceReport:
        """Run all steps in order."""
        note_begin(self._config, self._id)
        make_structs_readable(self._config)  # of programs that insert without ducklake-orch
        before = figures(self._config)
        done = [self._run_step(step, check_lock) for step in self._plan.operations]
        after = figures(self._config)
        report = self.report([_with_figures(step_report, before, after) for step_report in done], after.snapshot)
        summary: dict[str, Any] = {"totals": report.totals, "operations": _by_operation(done)}
        summary |= {"predicted": _predicted(self._plan.operations), "outcome": _outcome(done)}
        summary |= _waiting(done)
        summary["orphans"] = _orphans(report, self._plan.policy)
        note_end(self._config, self._id, report.status, summary)
        return report

    def _run_step(self, step: PlannedStep, check_lock: Callable[[], None]) -> StepReport:
        """Run a step, unless the plan skips it or the run has to stop."""
        if step.action == "skip":
            return _report(step, "skipped")
        try:
            check_lock()
        except DuckLakeOrchError as error:
            self.stop.lost = error.message
        if (reason := self.stop.before(step.operation)) is not None:
            return _report(replace(step, reason=reason), "stopped")
        self._progress(step)
        done = self._execute(step)
        self._progress(done)
        log.info("lake `%s`: %s", self._config.name, done)
        return done

    def _execute(self, step: PlannedStep) -> StepReport:
        started = time.monotonic()
        policy = self._plan.policy if step.table is None else self._plan.policy.of_table(*table_name(step.table))
        stopping = partial(self.stop.before, step.operation)
        work = Work(self._config, step, policy, self._plan.planned_at, self._id, stopping, self._spark)
        try:
            done = run_step(work)
        except (KeyboardInterrupt, RuntimeError):
            if not self.stop.broken_off:
                raise
            return _report(replace(step, reason="interrupted and rolled back"), "stopped")
        except Exception as error:  # an error of one table does not stop the others
            return self._failed(step, error, time.monotonic() - started)
        self.stop.read += (done.step.bytes or 0) if step.operation in TABLE_OPERATIONS else 0
        outcome = {"duration_s": time.monotonic() - started, "snapshot_id": done.snapshot_id}
        if done.stopped is not None:
            return _report(replace(done.step, reason=f"{done.stopped}; the rest was not started"), "stopped", **outcome)
        return _report(done.step, "done", **outcome)

    def _failed(self, step: PlannedStep, error: Exception, seconds: float) -> StepReport:
        if isinstance(error, StalePlanError):
            return _report(replace(step, action="skip", reason="a concurrent write changed it; plan again"), "skipped")
        is_missing = isinstance(error, TableDroppedError | ObjectNotFoundError) and step.table is not None
        if is_missing and not self._table_exists(table_name(step.table or "")):
            return _report(replace(step, action="skip", reason="the table was dropped"), "skipped")
        failure = classify(error, self._config, f"{step.operation} of {step.where} failed")
        log.error("lake `%s`: %s of %s failed: %s", self._config.name, step.operation, step.where, failure)
        self.stop.failed = self._plan.policy.on_error == "stop"
        return _report(step, "failed", duration_s=seconds, error=failure)

    def _table_exists(self, name: TableName) -> bool:
        with planning(self._config, "Finding a table", reads=True) as metadata:
            return metadata.find_table(name, metadata.latest().snapshot_id) is not None

    def report(self, steps: Sequence[StepReport], last: int, *, dry_run: bool = False) -> MaintenanceReport:
        """Return the report of the run."""
        status: Literal["ok", "error", "stopped"] = "ok"
        signal = None
        if any(step.status == "stopped" for step in steps):
            status = "stopped"
            signal = self.stop.received.name if self.stop.received is not None else None
        if any(step.status == "failed" for step in steps):
            status = "error"
        return MaintenanceReport(
            lake=self._config.name,
            status=status,
            run_id=self._id,
            snapshot_before=self._plan.snapshot,
            snapshot_after=last,
            started_at=self._started_at,
            duration_s=(datetime.now(UTC) - self._started_at).total_seconds(),
            operations=steps,
            dry_run=dry_run,
            warnings=self._plan.warnings,
            signal=signal,
        )


def _report(step: PlannedStep, status: Status, **outcome: Any) -> StepReport:
    return StepReport(
        **{field.name: getattr(step, field.name) for field in fields(PlannedStep)}, status=status, **outcome
    )


def _with_figures(step: StepReport, before: Figures, after: Figures) -> StepReport:
    if step.status == "skipped":
        return step
    return replace(step, before=before.of(step), after=after.of(step))


def _waiting(steps: Sequence[StepReport]) -> dict[str, list[str]]:
    """Return the operations of tables that a run planned, and those of which it did not get to any step."""
    planned, begun = set[str](), set[str]()
    for step in steps:
        if step.table is not None and (step.status != "skipped" or step.waiting):
            planned.add(task_name(step))
            if step.status in ("done", "failed") or step.snapshot_id is not None:
                begun.add(task_name(step))
    return {"planned": sorted(planned), "left": sorted(planned - begun)}


def _predicted(steps: Sequence[PlannedStep]) -> dict[str, float | None]:
    """Return what a plan says of the steps of tables: their cost, what they save a day, and their duration."""
    planned = [step for step in steps if step.action == "run" and step.table is not None]
    seconds = [step.seconds for step in planned if step.seconds is not None]
    figures = {"cost": sum(step.cost for step in planned), "benefit": sum(step.benefit for step in planned)}
    return figures | {"seconds": sum(seconds) if len(seconds) == len(planned) else None}


def _outcome(steps: Sequence[StepReport]) -> dict[str, float]:
    """Return the same figures of the steps that ran."""
    done = [step for step in steps if step.status == "done" and step.table is not None]
    return {
        "cost": sum(step.cost for step in done),
        "benefit": sum(step.benefit for step in done),
        "seconds": sum(step.duration_s for step in done),
    }


def _by_operation(steps: Sequence[StepReport]) -> dict[str, dict[str, int]]:
    """Return the summed figures of the steps that ran, by operation."""
    done = [step for step in steps if step.status == "done"]
    totals = {operation: add_up(step for step in done if step.operation == operation) for operation in OPERATIONS}
    return {operation: figures for operation, figures in totals.items() if figures["steps"]}


def _orphans(report: MaintenanceReport, policy: MaintenancePolicy) -> dict[str, int] | None:
    """Return the count and size of the remaining orphaned files; None if the run did not search for them."""
    searches = [
        operation
        for operation in report.operations
        if operation.operation == "orphans" and operation.status in ("done", "skipped")
    ]
    if not searches or policy.orphans.action == "off":
        return None
    reported = [step_report for step_report in searches if step_report.engine == REPORT]
    return {
        "files": sum(step_report.files_in for step_report in reported),
        "bytes": sum(step_report.bytes or 0 for step_report in reported),
    }
