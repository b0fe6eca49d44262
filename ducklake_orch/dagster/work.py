"""What piece of work a write is: the same for every attempt at it, and named in the snapshot."""

from typing import Any

import dagster as dg
from dagster import version as dagster_version

from ducklake_orch.results import CommitInfo
from ducklake_orch.slices import Slice
from ducklake_orch.slices.vocabulary import bounded_key

# What the keys of writes of assets begin with: by them the catalog knows which asset wrote a table last.
ASSET_KEY = "dagster:asset:"


def idempotency_key(context: dg.OutputContext, part: Slice | None) -> str | None:
    """Return the key of the write of an output: attempts and re-executions of a step that failed share it.

    A context that a test builds is no attempt at a step, and has none.
    """
    if not has_step(context):
        return None
    run = beginning(_dagster_run(context), context.step_context.instance, context.step_key)
    what = context.asset_key.to_user_string() if context.has_asset_key else context.step_key
    partitions = part.texts if part else []
    begin = f"{ASSET_KEY}{run}" if context.has_asset_key else f"dagster:{run}"
    return bounded_key(f"{begin}:{what[:100]}", what, context.name, context.mapping_key, partitions)


def asset_of(key: str) -> str:
    """Return the asset in the key of a write, up to its first 100 characters."""
    return key.removeprefix(ASSET_KEY).partition(":")[2].rpartition(":")[0]


def commit_info(context: dg.OutputContext, what: str, part: Slice | None) -> CommitInfo:
    """Return what the snapshot says about the run that wrote it."""
    about: dict[str, Any] = {
        "run_id": _known(context, "run_id"),
        "job": _known(context, "job_name"),
        "step": _known(context, "step_key"),
        "output": _known(context, "name"),
        "version": dagster_version.__version__,
    }
    if context.has_asset_key:
        about["asset"] = context.asset_key.to_user_string()
    if part is not None:
        about["partitions"] = part.texts[:100]
        about["partition_count"] = len(part.cells)
    about |= code_location(_dagster_run(context))
    return CommitInfo(author="dagster", message=f"{what}, run {about['run_id']}", extra={"dagster": about})


def code_location(run: Any) -> dict[str, str]:
    """Return where the code of a run is from, if that is known."""
    origin = getattr(run, "remote_job_origin", None)
    return {} if origin is None else {"code_location": origin.repository_origin.code_location_origin.location_name}


def beginning(run: Any, instance: Any, step: str) -> str:
    """Return the run in which the work of a step began: while it did not succeed, re-executions go on with it.

    Args:
        run: The run.
        instance: Knows the runs before it; None where there are none.
        step: The key of the step.
    """
    while instance is not None and run.parent_run_id is not None:
        parent = instance.get_run_by_id(run.parent_run_id)
        stats = instance.get_run_step_stats(run.parent_run_id, [step]) if parent else []
        if parent is None or any(one.status is not None and one.status.value == "SUCCESS" for one in stats):
            break  # unknown, or done on purpose once more
        run = parent
    return str(run.run_id)


def has_step(context: dg.OutputContext) -> bool:
    """Whether a step stands behind a context; one that a test builds has none."""
    return _known(context, "step_context") is not None


def _dagster_run(context: dg.OutputContext) -> Any:
    return context.step_context.dagster_run if has_step(context) else None


def _known(context: dg.OutputContext, name: str) -> Any:
    """Return what a context knows; one that a test builds knows what the test says."""
    try:
        return getattr(context, name)
    except dg.DagsterInvariantViolationError:
        return None
