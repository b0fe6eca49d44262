"""Which way each operation is done: by the extension's own function, or by this package's step on the catalog."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ducklake_orch.catalog.cleanup import clean_up
from ducklake_orch.catalog.expire import expire
from ducklake_orch.catalog.orphans import delete_orphans
from ducklake_orch.errors import StorageBusyError
from ducklake_orch.maintenance import extension_steps
from ducklake_orch.maintenance.lake_plan import before, retention
from ducklake_orch.maintenance.results import REPORT
from ducklake_orch.maintenance.work import Done, Work


def do(work: Work) -> Done:
    """Do a step, by what the plan says."""
    return _STEPS[work.step.operation, work.step.engine](work)


def _expire(work: Work) -> Done:
    step = work.step
    done = expire(work.config, retention(work.policy, work.planned_at), only=frozenset(step.snapshot_ids))
    figures = replace(
        step,
        files_in=done.data_files + done.delete_files,
        bytes=done.bytes,
        rows=done.rows,
        snapshots=len(done.snapshots),
        paths=done.paths,
        snapshot_ids=done.snapshots,
    )
    return Done(figures)


def _clean_up(work: Work) -> Done:
    policy, paths = work.policy.cleanup, frozenset(work.step.paths)
    done = clean_up(work.config, before(work.planned_at, policy.older_than), only=paths)
    return _deleted(work, done.paths, done.failed, work.step.bytes)


def _delete_orphans(work: Work) -> Done:
    policy, paths = work.policy.orphans, frozenset(work.step.paths)
    done = delete_orphans(work.config, before(work.planned_at, policy.older_than), only=paths)
    return _deleted(work, done.paths, done.failed, done.bytes)


def _deleted(work: Work, paths: Sequence[str], failed: Mapping[str, str], size: int | None) -> Done:
    """Return what was deleted; what the storage refused stays for the next run, and is said."""
    if failed:
        path, reason = next(iter(failed.items()))
        raise StorageBusyError(
            f"{work.purpose}: {len(paths)} files are deleted, {len(failed)} are not, such as {path}: {reason}.",
            remedy="The next run tries them again.",
        )
    return Done(replace(work.step, files_in=len(paths), paths=paths, bytes=size))


_STEPS: dict[tuple[str, str | None], Callable[[Work], Done]] = {
    ("flush", "extension"): extension_steps.flush,
    ("rewrite", "extension"): extension_steps.rewrite,
    ("merge", "extension"): extension_steps.merge,
    ("expire", "duckdb"): _expire,
    ("cleanup", "duckdb"): _clean_up,
    ("orphans", "duckdb"): _delete_orphans,
    ("orphans", REPORT): lambda work: Done(work.step),
}
