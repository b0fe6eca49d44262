"""What piece of work a write is: the same for every attempt at it, and named in the snapshot."""

from typing import Any

import dagster as dg
from dagster import version as dagster_version

from ducklake_orch.results import CommitInfo
from ducklake_orch.slices import Slice
from ducklake_orch.slices.vocabulary import bounded_key


def idempotency_key(context: dg.OutputContext, part: Slice | None) -> str:
    """Return the key of the write of an output: attempts and re-executions of a step that failed share it."""
    what = context.asset_key.to_user_string() if context.has_asset_key else context.step_key
    partitions = part.texts if part else []
    return bounded_key(f"dagster:{_run(context)}:{what[:100]}", what, context.name, context.mapping_key, partitions)


def commit_info(context: dg.OutputContext, what: str, part: Slice | None) -> CommitInfo:
    """Return what the snapshot says about the run that wrote it."""
    about: dict[str, Any] = {
        "run_id": context.run_id,
        "job": context.job_name,
        "step": context.step_key,
        "output": context.name,
        "version": dagster_version.__version__,
    }
    if context.has_asset_key:
        about["asset"] = context.asset_key.to_user_string()
    if part is not None:
        about["partitions"] = part.texts[:100]
        about["partition_count"] = len(part.cells)
    origin = getattr(_dagster_run(context), "remote_job_origin", None)
    if origin is not None:
        about["code_location"] = origin.repository_origin.code_location_origin.location_name
    return CommitInfo(author="dagster", message=f"{what}, run {context.run_id}", extra={"dagster": about})


def _run(context: dg.OutputContext) -> str:
    """Return the run in which this work began: while a step did not succeed, re-executions go on with it."""
    run, instance = _dagster_run(context), getattr(context.step_context, "instance", None) if _real(context) else None
    while run is not None and instance is not None and run.parent_run_id is not None:
        parent = instance.get_run_by_id(run.parent_run_id)
        steps = instance.get_run_step_stats(run.parent_run_id, [context.step_key]) if parent else []
        if any(step.status is not None and step.status.value == "SUCCESS" for step in steps):
            break  # it is done on purpose once more
        run = parent
    return run.run_id if run is not None else context.run_id


def _dagster_run(context: dg.OutputContext) -> Any:
    return getattr(context.step_context, "dagster_run", None) if _real(context) else None


def _real(context: dg.OutputContext) -> bool:
    """Whether a step stands behind a context; one that a test builds has none."""
    try:
        return context.step_context is not None
    except dg.DagsterInvariantViolationError:
        return False
