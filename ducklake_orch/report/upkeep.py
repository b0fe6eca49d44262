"""Compare the maintenance of a lake with its policy: what is due, and what the recorded runs did."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ducklake_orch.config.maintenance import OPERATIONS, MaintenancePolicy
from ducklake_orch.config.units import in_words
from ducklake_orch.maintenance.census import Census
from ducklake_orch.maintenance.lake_options import with_lake_options
from ducklake_orch.maintenance.make_plan import catalog_steps
from ducklake_orch.maintenance.results import add_up
from ducklake_orch.maintenance.run_log import MaintenanceRun
from ducklake_orch.maintenance.selection import Selection
from ducklake_orch.results import Result


@dataclass(frozen=True)
class Upkeep(Result):
    """One operation of maintenance.

    Attributes:
        rule: What the policy says, in words; None if it disables the operation.
        due: The summed figures of what a run would do now; None for a search in the storage, which no plan knows.
        done: The summed figures of what the recorded runs did.
    """

    operation: str
    rule: str | None
    due: Mapping[str, int] | None = field(repr=False)
    done: Mapping[str, int] = field(repr=False)


def upkeep(state: Census, policy: MaintenancePolicy, runs: Sequence[MaintenanceRun]) -> list[Upkeep]:
    """Plan maintenance without running it, and add up what the recorded runs did."""
    policy, sources = with_lake_options(state.metadata, policy, [])
    steps = catalog_steps(state, policy, sources, Selection(), [])
    rules = dict(_rules(policy))
    done: dict[str, Counter[str]] = {operation: Counter() for operation in OPERATIONS}
    for run in runs:
        for operation, totals in (run.summary.get("operations") or {}).items():
            done[operation].update(totals)
    return [
        Upkeep(
            operation,
            rules[operation],
            None if operation == "orphans" else add_up(step for step in steps if step.operation == operation),
            dict(done[operation]),
        )
        for operation in OPERATIONS
    ]


def _rules(policy: MaintenancePolicy) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each operation with its rule in words; overrides for tables are left out."""
    flush, rewrite, merge, expire = policy.flush, policy.rewrite, policy.merge, policy.expire
    inlined = "every inlined row" if flush.min_rows == 1 else f"tables with {flush.min_rows:,} inlined rows"
    yield "flush", inlined if flush.enabled else None
    yield "rewrite", f"files that lost {rewrite.delete_threshold:.0%} of their rows" if rewrite.enabled else None
    yield "merge", f"{merge.min_files} or more small files of a partition" if merge.enabled else None
    layout = policy.layout
    is_on = layout.enabled and layout.cluster != "off"
    many = f"partitions where more than {layout.max_depth:g} files hold a value of a key"
    yield "layout", many if is_on else None
    kept = f", except the latest {expire.retain_last}"
    yield "expire", f"snapshots older than {in_words(expire.older_than)}{kept}" if expire.enabled else None
    age = in_words(policy.cleanup.older_than)
    yield "cleanup", f"files retired {age} ago or earlier" if policy.cleanup.enabled else None
    orphans = policy.orphans
    found = f"unknown files older than {in_words(orphans.older_than)}: {orphans.action}"
    yield "orphans", None if orphans.action == "off" else found
