"""Idempotency keys and commit messages of writes by the code of a step, in this process or started by Pipes."""

from collections import Counter
from dataclasses import dataclass
from typing import Any, Self
from weakref import WeakKeyDictionary

import dagster as dg
from dagster import version as dagster_version

from ducklake_orch.dagster.output_run import code_location, first_run
from ducklake_orch.host_partitions.metadata_keys import bounded_key
from ducklake_orch.results import CommitInfo

# How many times an attempt has written to each table in this process.
_writes: "WeakKeyDictionary[dg.OpExecutionContext, Counter[str]]" = WeakKeyDictionary()


@dataclass(frozen=True)
class Step:
    """A step of a run.

    Attributes:
        context: The attempt at the step.
    """

    context: dg.OpExecutionContext

    @classmethod
    def running(cls) -> Self | None:
        """Return the running step; None outside steps and in threads that a step has started."""
        try:
            return cls(dg.OpExecutionContext.get())
        except dg.DagsterInvariantViolationError:
            return None

    @property
    def key(self) -> str:
        """The key of the step in its run."""
        name, mapping = str(self.context.op_handle), self.context.get_mapping_key()
        return name if mapping is None else f"{name}[{mapping}]"

    @property
    def began_in(self) -> str:
        """The run in which the work of the step began."""
        return first_run(self.context.run, self.context.instance, self.key)

    def idempotency_key(self, table: str) -> str:
        """Return the key of this attempt's next write to a table. Every attempt has the same keys in the same order."""
        counts = _writes.setdefault(self.context, Counter())
        counts[table] += 1
        identity = (self.key, table, self._partitions, counts[table])
        return bounded_key(f"dagster:{self.began_in}:{self.key[:100]}", *identity)

    def commit_info(self, what: str) -> CommitInfo:
        """Return the commit message and extra of a snapshot that the step writes."""
        context, partitions = self.context, self._partitions
        about: dict[str, Any] = {
            "run_id": context.run_id,
            "job": context.job_name,
            "step": self.key,
            "version": dagster_version.__version__,
        }
        if context.has_assets_def:
            about["asset"] = ", ".join(sorted(key.to_user_string() for key in context.selected_asset_keys))
        if partitions:
            about |= {"partitions": partitions[:100], "partition_count": len(partitions)}
        about |= code_location(context.run)
        return CommitInfo(author="dagster", message=f"{what}, run {context.run_id}", extra={"dagster": about})

    @property
    def _partitions(self) -> list[str]:
        if self.context.has_partition_key:
            return [str(self.context.partition_key)]
        return sorted(map(str, self.context.partition_keys)) if self.context.has_partition_key_range else []


def pipes_extras(context: dg.OpExecutionContext | dg.AssetExecutionContext) -> dict[str, Any]:
    """Return the Pipes `extras` that tell an external process which step it writes for.

    With them, attempts in other runs also write only once, and the steps of a run have different keys.

    Args:
        context: The context of the asset or op.
    """
    step = Step(context.op_execution_context)
    try:
        return {"ducklake": {"began_in": step.began_in, "step": step.key}}
    except dg.DagsterError:
        return {}  # a unit test calls the asset directly, without a run
