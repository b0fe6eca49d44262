"""Idempotency keys and commit messages of outputs. All attempts at an output share its key."""

from typing import Any

import dagster as dg
from dagster import version as dagster_version

from ducklake_orch.host_partitions import Slice
from ducklake_orch.host_partitions.metadata_keys import bounded_key
from ducklake_orch.results import CommitInfo

# The prefix of idempotency keys of assets. With it, the catalog records which asset wrote a table last.
ASSET_KEY = "dagster:asset:"
_LONGEST = 100


def idempotency_key(context: dg.OutputContext, part: Slice | None) -> str | None:
    """Return the idempotency key of an output. All attempts and re-executions of a failed step share it.

    The context of a unit test is not an attempt at a step, so it has no key.
    """
    if not has_step(context):
        return None
    run = first_run(_dagster_run(context), context.step_context.instance, context.step_key)
    what = context.asset_key.to_user_string() if context.has_asset_key else context.step_key
    partitions = part.texts if part else []
    prefix = f"{ASSET_KEY}{run}" if context.has_asset_key else f"dagster:{run}"
    return bounded_key(f"{prefix}:{what[:_LONGEST]}", what, context.name, context.mapping_key, partitions)


def cut(asset: dg.AssetKey) -> str:
    """Return an asset as idempotency keys name it."""
    return asset.to_user_string()[:_LONGEST]


def asset_of(key: str) -> str:
    """Return the asset in an idempotency key, as `cut` does."""
    return key.removeprefix(ASSET_KEY).partition(":")[2].rpartition(":")[0]


def run_of(key: str) -> str:
    """Return the run in the idempotency key of an asset."""
    return key.removeprefix(ASSET_KEY).partition(":")[0]


def commit_info(context: dg.OutputContext, what: str, part: Slice | None) -> CommitInfo:
    """Return the commit message and extra that name the run."""
    about: dict[str, Any] = {
        "run_id": known(context, "run_id"),
        "job": known(context, "job_name"),
        "step": known(context, "step_key"),
        "output": known(context, "name"),
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
    """Return the code location of a run, if it is known."""
    origin = getattr(run, "remote_job_origin", None)
    return {} if origin is None else {"code_location": origin.repository_origin.code_location_origin.location_name}


def first_run(run: Any, instance: Any, step: str) -> str:
    """Return the run in which the work of a step began. Re-executions continue that work until the step has succeeded.

    Args:
        run: The run.
        instance: The Dagster instance, which knows the parent runs; None without one.
        step: The key of the step.
    """
    while instance is not None and run.parent_run_id is not None:
        parent = instance.get_run_by_id(run.parent_run_id)
        stats = instance.get_run_step_stats(run.parent_run_id, [step]) if parent else []
        if parent is None or any(stat.status is not None and stat.status.value == "SUCCESS" for stat in stats):
            break  # the parent is unknown, or its step succeeded and is repeated on purpose
        run = parent
    return str(run.run_id)


def has_step(context: dg.OutputContext) -> bool:
    """Return whether a context belongs to a step. The context of a unit test does not."""
    return known(context, "step_context") is not None


def _dagster_run(context: dg.OutputContext) -> Any:
    return context.step_context.dagster_run if has_step(context) else None


def known(context: dg.OutputContext | dg.InputContext, name: str) -> Any:
    """Return an attribute of a context; None if the context of a unit test does not have it."""
    try:
        return getattr(context, name)
    except dg.DagsterInvariantViolationError:
        return None
