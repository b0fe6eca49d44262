"""Run a planned step: by the extension's own function, or by ducklake-orch's code on the catalog."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from ducklake_orch.catalog.lifecycle import (
    Bin,
    Compactor,
    Expiry,
    Way,
    clean_up,
    compact,
    delete_orphans,
    delete_quarantined,
    expire,
    flush_inlined,
    set_cluster_keys,
)
from ducklake_orch.catalog.metadata import QUARANTINE_FOLDER
from ducklake_orch.catalog.transactions import discard_past_stages
from ducklake_orch.errors import StorageBusyError
from ducklake_orch.maintenance import extension_steps
from ducklake_orch.maintenance.lake_plan import before, retention
from ducklake_orch.maintenance.results import QUARANTINE, REPORT
from ducklake_orch.maintenance.step_context import Done, Work

T = TypeVar("T")
# The most bytes in one commit, which is the most work that a killed process can lose.
_BYTES_IN_ONE_SNAPSHOT = {"duckdb": 1024**3, "spark": 256 * 1024**3}
# The most snapshots and files that one transaction removes, so that it is short and a run can stop after it.
_SNAPSHOTS_AT_ONCE, _FILES_AT_ONCE = 1_000, 5_000


def run_step(work: Work) -> Done:
    """Run a step as the plan says."""
    return _STEPS[work.step.operation, work.step.engine](work)


def _flush(work: Work) -> Done:
    done = flush_inlined(work.config, work.table, commit=work.info(), stopping=work.stopping)
    kept = f"; {done.kept} rows stay in the catalog, because Parquet cannot hold them exactly" if done.kept else ""
    step = replace(work.step, rows=done.rows, deletions=done.deletions, files_out=done.files)
    return Done(replace(step, reason=f"{step.reason}{kept}"), done.snapshot_id, done.stopped)


def _compact(work: Work) -> Done:
    """Compact files, a part of them in each snapshot, so that a failure loses only the current part."""
    way: Way = "merge" if work.step.operation == "merge" else "rewrite"
    totals: Counter[str] = Counter()
    snapshot = stopped = None
    engine = _compactor(work)
    for number, part in enumerate(_parts(work.step.bins, _BYTES_IN_ONE_SNAPSHOT[work.step.engine or ""])):
        if number and (stopped := work.stopping()) is not None:
            break
        done = compact(work.config, way, part, commit=work.info(**_bin_figures(part)), engine=engine)
        totals.update(
            files_in=done.files_in,
            files_out=done.files_out,
            bytes=done.bytes_in,
            rows=done.rows_in if way == "merge" else done.rows_out,
            changed=done.changed,
            unfit=done.unfit,
        )
        snapshot = done.snapshot_id if done.snapshot_id is not None else snapshot
    reason = work.step.reason
    if changed := totals.pop("changed", 0):
        reason += f"; {changed} of {len(work.step.bins)} were skipped, because concurrent writes changed their files"
    if unfit := totals.pop("unfit", 0):
        reason += f"; {unfit} were skipped, because their files cannot be compacted: the log has the reasons"
    figures = {name: totals[name] for name in ("files_in", "files_out", "bytes", "rows")}
    return Done(replace(work.step, reason=reason, **figures), snapshot, stopped)  # type: ignore[arg-type]


def _cluster(work: Work) -> Done:
    """Cluster files; keys that maintenance chose become those of the table, so that it does not choose others later."""
    clusterings = [bin_.clustering for bin_ in work.step.bins if bin_.clustering is not None]
    part = work.policy.layout
    if part.cluster == "auto" and part.cluster_by is None and clusterings and clusterings[0].keys:
        set_cluster_keys(work.config, work.table, clusterings[0].keys, first=True)
    return _compact(work)


def _compactor(work: Work) -> Compactor | None:
    if work.step.engine != "spark":
        return None
    from ducklake_orch.spark.compact_in_tasks import SparkCompactor

    return SparkCompactor(work.config, work.spark)


def _parts(bins: Sequence[Bin], limit: int) -> Iterator[list[Bin]]:
    """Divide bins into parts that are committed together."""
    part: list[Bin] = []
    for bin_ in bins:
        if part and sum(member.bytes for member in part) + bin_.bytes > limit:
            yield part
            part = []
        part.append(bin_)
    if part:
        yield part


def _bin_figures(bins: Sequence[Bin]) -> dict[str, int]:
    """Return the figures that a snapshot records about the compacted bins."""
    return {
        "files_processed": sum(len(bin_.files) for bin_ in bins),
        "files_created": sum(bin_.clustering.files if bin_.clustering else 1 for bin_ in bins),
        "bytes_processed": sum(bin_.bytes for bin_ in bins),
    }


def _expire(work: Work) -> Done:
    step, found, stopped = work.step, list[Expiry](), None
    for part in _sliced(sorted(step.snapshot_ids), _SNAPSHOTS_AT_ONCE):
        if found and (stopped := work.stopping()) is not None:
            break
        found.append(expire(work.config, retention(work.policy, work.planned_at), only=frozenset(part)))
    figures = replace(
        step,
        files_in=sum(done.data_files + done.delete_files for done in found),
        bytes=sum(done.bytes for done in found),
        rows=sum(done.rows for done in found),
        snapshots=sum(len(done.snapshots) for done in found),
        paths=[path for done in found for path in done.paths],
        snapshot_ids=[number for done in found for number in done.snapshots],
    )
    return Done(figures, stopped=stopped)


def _clean_up(work: Work) -> Done:
    limit, stopped = before(work.planned_at, work.policy.cleanup.older_than), None
    deleted, failed = list[str](), dict[str, str]()
    for number, part in enumerate(_sliced(work.step.paths, _FILES_AT_ONCE)):
        if number and (stopped := work.stopping()) is not None:
            break
        done = clean_up(work.config, limit, only=frozenset(part))
        deleted += done.paths
        failed |= done.failed
    return _deleted(work, deleted, failed, work.step.bytes, stopped)


def _delete_orphans(work: Work) -> Done:
    policy, paths = work.policy.orphans, frozenset(work.step.paths)
    if any(f"/{QUARANTINE_FOLDER}" in path for path in paths):
        deleted, failed = delete_quarantined(work.config, work.step.paths)
        if deleted or failed:
            return _deleted(work, deleted, failed, work.step.bytes)
    aside = work.step.engine == QUARANTINE
    limit, unknown = before(work.planned_at, policy.older_than), policy.unknown == "delete"
    discarded = discard_past_stages(work.config)
    done = delete_orphans(work.config, limit, unknown=unknown, only=paths, quarantine=aside, stopping=work.stopping)
    size = done.bytes + (work.step.bytes or 0) if discarded else done.bytes
    return _deleted(work, [*discarded, *done.paths], done.failed, size, done.stopped)


def _sliced(things: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(things), size):
        yield things[start : start + size]


def _deleted(
    work: Work, paths: Sequence[str], failed: Mapping[str, str], size: int | None, stopped: str | None = None
) -> Done:
    """Return the deleted files; raise if the storage refused some, which the next run tries again."""
    if failed:
        path, reason = next(iter(failed.items()))
        raise StorageBusyError(
            f"{work.purpose}: {len(paths)} files are deleted, {len(failed)} are not, such as {path}: {reason}.",
            remedy="Run again: the next run retries them.",
        )
    return Done(replace(work.step, files_in=len(paths), paths=paths, bytes=size), stopped=stopped)


_STEPS: dict[tuple[str, str | None], Callable[[Work], Done]] = {
    ("flush", "duckdb"): _flush,
    ("rewrite", "extension"): extension_steps.rewrite,
    ("merge", "extension"): extension_steps.merge,
    ("rewrite", "duckdb"): _compact,
    ("merge", "duckdb"): _compact,
    ("layout", "duckdb"): _cluster,
    ("rewrite", "spark"): _compact,
    ("layout", "spark"): _cluster,
    ("merge", "spark"): _compact,
    ("expire", "duckdb"): _expire,
    ("cleanup", "duckdb"): _clean_up,
    ("orphans", "duckdb"): _delete_orphans,
    ("orphans", QUARANTINE): _delete_orphans,
    ("orphans", REPORT): lambda work: Done(work.step),
}
