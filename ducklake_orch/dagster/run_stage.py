"""The stage of a run: outputs wait in it until all of them are published together."""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from ducklake_orch.dagster.table_names import TableNames
from ducklake_orch.dagster.table_owners import stored_by
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.facade.stage import Stage
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo, TransactionResult

PUBLISH = ("immediately", "run", "after_checks")


def stage_of(lake: DuckLake, run: Any, instance: Any) -> Stage | None:
    """Return the stage of a run, or that of the run which it repeats from failure; None if nothing is staged."""
    status = {stage.name: stage.status for stage in lake.stages()}
    name = _name(run, instance, status)
    return lake.stage(name, create=False) if name in status else None


def open_stage_of(lake: DuckLake, run: Any, instance: Any) -> Stage:
    """Return the stage of a run, or that of the run which it repeats from failure; create it if it is missing."""
    status = {stage.name: stage.status for stage in lake.stages()} if run.parent_run_id is not None else {}
    return lake.stage(_name(run, instance, status), author=f"dagster run {run.run_id}")


def _name(run: Any, instance: Any, status: Mapping[str, str]) -> str:
    """A run that repeats another one goes on in the stage of that run, as long as it is not published."""
    parent = instance.get_run_by_id(run.parent_run_id) if run.parent_run_id is not None else None
    if parent is not None and status.get(name := _name(parent, instance, status)) == "open":
        return name
    return f"dagster run {run.run_id}"


def publish_whole_run(context: dg.OutputContext, stage: Stage, names: TableNames) -> TransactionResult | None:
    """Publish a stage once every asset of the run that the same IO manager stores is in it."""
    step = context.step_context
    graph, selected = step.job_def.asset_layer.asset_graph, step.dagster_run.asset_selection
    manager = graph.get(context.asset_key).io_manager_key
    wanted = {
        names.of_asset(key, metadata).key
        for key, metadata in stored_by(graph, manager)
        if not selected or key in selected
    }
    if not wanted <= {table_name(table.table).key for table in stage.tables()}:
        return None
    return publish(stage, step.dagster_run, "all outputs", context.log)


def publish(stage: Stage, run: Any, what: str, log: Any) -> TransactionResult:
    """Publish a stage, and log what became visible."""
    about = {"run_id": run.run_id, "job": run.job_name, "stage": stage.name}
    commit = CommitInfo("dagster", f"publication of {what}, run {run.run_id}", {"dagster": about})
    result = stage.publish(commit=commit)
    log.info(f"Published as snapshot {result.snapshot_id}: {', '.join(write.table for write in result.writes)}")
    return result
