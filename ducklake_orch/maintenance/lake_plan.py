"""Plan the steps for the lake as a whole: snapshots to expire, files to delete."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from ducklake_orch.catalog.lifecycle import (
    Retention,
    UnknownFile,
    plan_cleanup,
    plan_expire,
    plan_orphans,
    quarantined,
)
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions import past_stages
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.config.units import in_words
from ducklake_orch.engine.stored_sizes import bytes_of
from ducklake_orch.maintenance.census import Census
from ducklake_orch.maintenance.results import QUARANTINE, REPORT, PlannedStep

_MAX_REASONS = 5
# What each action does with orphans.
_ENGINES = {"report": REPORT, "delete": "duckdb", "quarantine": QUARANTINE}
_ONLY_REPORTED = "; the policy only reports them"
_FIRST_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def retention(policy: MaintenancePolicy, now: datetime) -> Retention:
    """Return the retention of snapshots that a policy sets."""
    part = policy.expire
    longer = [
        (pattern, before(now, override.expire.older_than))
        for pattern, override in policy.overrides.items()
        if override.expire is not None
    ]
    return Retention(before(now, part.older_than), part.retain_last, part.keep, tuple(longer))


def before(now: datetime, age: timedelta) -> datetime:
    """Return the time `age` before `now`, but not before 1970."""
    return now - age if now - _FIRST_TIME > age else _FIRST_TIME


def _age(age: timedelta, source: str) -> str:
    """Return the minimum age and its source, for messages."""
    return f"{in_words(age)} ({source})"


def _skipped(operation: str, reason: str) -> PlannedStep:
    return PlannedStep(operation, None, None, "skip", reason)


def plan_expiry(census: Census, policy: MaintenancePolicy, source: str) -> PlannedStep:
    """Plan which snapshots expire."""
    part = policy.expire
    if not part.enabled:
        return _skipped("expire", "the policy disables it")
    found = plan_expire(census.metadata, retention(policy, census.at))
    needed = f"; {found.needed_by_writes} more are needed by {found.needed_by}" if found.needed_by_writes else ""
    needed += f"; {found.tagged} more have a tag" if found.tagged else ""
    needed += f"; tables with a longer history need {found.needed_by_tables} more" if found.needed_by_tables else ""
    if not found.snapshots:
        reason = f"each of {found.kept} snapshots is retained or younger than {_age(part.older_than, source)}"
        return _skipped("expire", f"{reason}{needed}")
    count = len(found.snapshots)
    return PlannedStep(
        "expire",
        None,
        None,
        "run",
        f"{count} of {count + found.kept} snapshots are older than {_age(part.older_than, source)}{needed}",
        engine="duckdb",
        files_in=found.data_files + found.delete_files,
        bytes=found.bytes,
        rows=found.rows,
        snapshots=len(found.snapshots),
        paths=found.paths,
        snapshot_ids=found.snapshots,
    )


def plan_clean_up(census: Census, policy: MaintenancePolicy, source: str, warnings: list[str]) -> PlannedStep:
    """Plan which scheduled files are deleted; add to the plan's warnings."""
    part = policy.cleanup
    if not part.enabled:
        return _skipped("cleanup", "the policy disables it")
    found = plan_cleanup(census.metadata, before(census.at, part.older_than))
    needed = f"; {found.needed_by_writes} more may be read by running writes" if found.needed_by_writes else ""
    if found.in_use:
        needed += f"; {len(found.in_use)} more belong to tables, such as {found.in_use[0]}, and stay"
        warnings.append(
            f"{len(found.in_use)} files of tables are scheduled for deletion, such as {found.in_use[0]}."
            " Clean-up keeps them; `fsck(repair=True)` removes them from the schedule."
        )
    if not found.files:
        return _skipped(
            "cleanup", f"no file has been scheduled for deletion for {_age(part.older_than, source)}{needed}"
        )
    return PlannedStep(
        "cleanup",
        None,
        None,
        "run",
        f"{found.files} files have been scheduled for deletion for {_age(part.older_than, source)}{needed}",
        engine="duckdb",
        files_in=found.files,
        bytes=bytes_of(census.metadata.config, found.paths),
        paths=found.paths,
    )


def plan_orphan_search(config: LakeConfig, policy: MaintenancePolicy, source: str, now: datetime) -> list[PlannedStep]:
    """Plan which orphaned files are deleted; lists the storage."""
    part = policy.orphans
    if part.action == "off":
        return [_skipped("orphans", "the policy disables it")]
    with planning(config, "Looking for stages whose time is over", reads=True) as metadata:
        past = past_stages(metadata)
    found = plan_orphans(config, before(now, part.older_than))
    young = f"; {found.young} younger ones stay" if found.young else ""
    young += f"; {found.running} belong to running writes and stages" if found.running else ""
    steps = []
    if part.action in ("delete", "quarantine"):
        steps += _plan_quarantine(config, policy, now)
    if past:
        names = ", ".join(f"`{stage.head.name}`" for stage in past[:_MAX_REASONS])
        files = [path for stage in past for path in stage.own_files]
        reason = f"the time of {len(past)} stages is over: {names}"
        steps.append(_orphans(reason, "duckdb", files, bytes_of(config, files)))  # no guess, unlike the files below
        found = replace(found, paths=tuple(path for path in found.paths if path not in files))
    if not found.paths and not found.unknown and not steps:
        reason = f"no orphaned file is older than {_age(part.older_than, source)}"
        return [_skipped("orphans", f"{reason}{young}")]
    if found.paths:
        age = _age(part.older_than, source)
        reason = f"{len(found.paths)} orphaned files of the lake's own writers are older than {age}"
        steps.append(_orphans(f"{reason}{_aside(policy)}", _ENGINES[part.action], found.paths, found.bytes))
    if found.unknown:
        reason = f"{len(found.unknown)} files may belong to another lake or program: {_summarized(found.unknown)}"
        engine = _ENGINES[part.action] if part.unknown == "delete" else REPORT
        if engine != REPORT and found.others:
            reason += f"; they will not be deleted: {found.others[0]}"
        elif engine != REPORT:
            reason += _aside(policy)
        paths = tuple(file.path for file in found.unknown)
        steps.append(_orphans(reason, engine, paths, sum(file.size for file in found.unknown)))
    return [replace(steps[0], reason=f"{steps[0].reason}{young}"), *steps[1:]]


def _aside(policy: MaintenancePolicy) -> str:
    part = policy.orphans
    return f"; they stay in quarantine for {in_words(part.quarantine)}" if part.action == "quarantine" else ""


def _plan_quarantine(config: LakeConfig, policy: MaintenancePolicy, now: datetime) -> list[PlannedStep]:
    """Plan which files in quarantine are deleted."""
    age = policy.orphans.quarantine
    files = quarantined(config, before(now, age).date())
    if not files:
        return []
    reason = f"{len(files)} files have been in quarantine for {in_words(age)}"
    return [_orphans(reason, "duckdb", [file.place for file in files], sum(file.size for file in files))]


def _orphans(reason: str, engine: str, paths: Sequence[str], size: int | None) -> PlannedStep:
    return PlannedStep(
        "orphans",
        None,
        None,
        "run",
        f"{reason}{_ONLY_REPORTED * (engine == REPORT)}",
        engine=engine,
        files_in=len(paths),
        bytes=size,
        paths=tuple(paths),
    )


def _summarized(files: Sequence[UnknownFile]) -> str:
    """Return why files are unknown: each reason with the number and size of its files and one example."""
    by_reason = dict[str, list[UnknownFile]]()
    for file in files:
        by_reason.setdefault(file.reason, []).append(file)
    reasons = [
        f"{len(group)} of {sum(file.size for file in group)} bytes, such as {group[0].path}: {reason}"
        for reason, group in list(by_reason.items())[:_MAX_REASONS]
    ]
    more = [f"{len(by_reason) - len(reasons)} more reasons"] if len(by_reason) > len(reasons) else []
    return "; ".join(reasons + more)
