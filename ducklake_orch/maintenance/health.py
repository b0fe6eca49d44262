"""Measure a lake with a constant number of queries, and grade the figures by the policy (`lake.health`)."""

import os
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from ducklake_orch.catalog.commit import read_leases
from ducklake_orch.catalog.lifecycle import expirable
from ducklake_orch.catalog.metadata import maybe_int, scheduled_paths
from ducklake_orch.catalog.transactions import find_stages
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import HealthPolicy, MaintenancePolicy, MergePolicy, TablePattern
from ducklake_orch.config.units import in_words
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.stored_sizes import bytes_of
from ducklake_orch.maintenance.census import Census, FileState, TableState, census, moment, partitions_of
from ducklake_orch.maintenance.cluster_depth import TableClustering, clusterings
from ducklake_orch.maintenance.health_report import (
    Grade,
    HealthFinding,
    HealthReport,
    LakeHealth,
    TableHealth,
    worst,
)
from ducklake_orch.maintenance.lake_figures import counted
from ducklake_orch.maintenance.lake_plan import retention
from ducklake_orch.maintenance.run_log import known_orphans, last_run
from ducklake_orch.maintenance.selection import Selection
from ducklake_orch.maintenance.small_files import file_sizes, merge_bins
from ducklake_orch.maintenance.write_times import last_writes

_MIB = 1024 * 1024
_BANDS = {"under_1_mib": _MIB, "under_10_mib": 10 * _MIB, "under_64_mib": 64 * _MIB, "under_512_mib": 512 * _MIB}
# Up to this number, small files do not slow readers down.
_HARMLESS = 20
_MANY = 50
_UNREADABLE = "; other engines cannot read or count this table until a flush"
# The figures that are graded for the whole lake; the others are graded for each table.
_GRADED_OF_LAKE = ("snapshot_count", "snapshot_age", "pending_bytes")
# The operation that improves each figure.
HELPS = {
    "small_file_ratio": "merge",
    "files_per_partition": "merge",
    "delete_share": "rewrite",
    "depth": "layout",
    "inlined_rows": "flush",
    "snapshot_count": "expire",
    "snapshot_age": "expire",
    "pending_bytes": "cleanup",
}


def health(config: LakeConfig, policy: MaintenancePolicy, tables: Sequence[TablePattern] | None = None) -> HealthReport:
    """Measure and grade a lake; see `DuckLake.health`."""
    doing = f"Measuring the health of lake `{config.name}`"
    if tables is not None:
        with census(config, doing, Selection(tables=tables)) as state:
            graded_tables = _tables(state, policy)
        grade = worst([table.grade for table in graded_tables])
        return HealthReport(grade, LakeHealth(config.name, "ok", {}, []), graded_tables)
    with census(config, doing) as state:
        measured = measure(state, policy)
    return graded(config, policy, measured)


@dataclass(frozen=True)
class Measured:
    """The figures from the catalog; the storage is queried for sizes afterwards.

    Attributes:
        metrics: The figures of the whole lake.
        pending: The paths of the files that wait for clean-up, by id.
        snapshots: The snapshots that expiry removes, now or later.
        older_than: The age at which expiry removes them.
    """

    tables: list[TableHealth]
    metrics: dict[str, Any]
    pending: Mapping[int, str]
    snapshots: "Expirable"
    older_than: timedelta

    def remedy(self, metric: str) -> str:
        """Return the remedy for a figure of the lake."""
        if HELPS[metric] == "expire" and not self.snapshots.now:
            age = in_words(self.older_than)
            return f"shorten `expire.older_than`, which is {age}: none of them is old enough to expire"
        return _command(metric)


@dataclass(frozen=True)
class Expirable:
    """The snapshots that are neither among the latest nor kept by the policy.

    Attributes:
        count: Their number.
        age: The age of the oldest of them, in seconds.
        now: The number that an expiry removes now.
    """

    count: int
    age: float
    now: int


def measure(state: Census, policy: MaintenancePolicy) -> Measured:
    """Compute the figures of a lake that the catalog holds."""
    pending = scheduled_paths(state.metadata)
    return Measured(
        _tables(state, policy), _lake_metrics(state), pending, _expirable(state, policy), policy.expire.older_than
    )


def _expirable(state: Census, policy: MaintenancePolicy) -> Expirable:
    rule = retention(policy, state.at)
    unkept = expirable(state.metadata, replace(rule, before=state.at + timedelta(days=1)))
    oldest = state.metadata.snapshot_time(unkept[0] if unkept else -1)
    age = 0.0 if oldest is None else state.age(moment(oldest)).total_seconds()
    return Expirable(len(unkept), age, len(expirable(state.metadata, rule)))


def graded(config: LakeConfig, policy: MaintenancePolicy, measured: Measured) -> HealthReport:
    """Query the storage for the remaining figures, and grade all of them."""
    pending = {
        "pending_files": len(measured.pending),
        "pending_bytes": bytes_of(config, list(measured.pending.values())),
    }
    metrics = measured.metrics | pending
    # Snapshots that expiry never removes are not graded.
    judged = metrics | {"snapshot_count": measured.snapshots.count, "snapshot_age": measured.snapshots.age}
    findings = list(_findings({name: judged[name] for name in _GRADED_OF_LAKE}, policy.health, measured.remedy))
    lake = LakeHealth(config.name, worst([finding.grade for finding in findings]), metrics, findings)
    return HealthReport(worst([lake.grade, *(table.grade for table in measured.tables)]), lake, measured.tables)


# --- tables ----------------------------------------------------------------------------------------------------------


def _tables(state: Census, policy: MaintenancePolicy) -> list[TableHealth]:
    written, clustered = last_writes(state.metadata), clusterings(state, policy)
    ages = {table.table_id: max(0.0, state.age(written[table.table_id]).total_seconds()) for table in state.tables}
    return [
        _table(table, policy.of_table(*table.name), ages[table.table_id], clustered.get(table.table_id))
        for table in state.tables
    ]


def _table(
    table: TableState, policy: MaintenancePolicy, write_age: float, clustering: TableClustering | None
) -> TableHealth:
    metrics: dict[str, Any] = counted(table)
    sizes, rule = file_sizes(table, policy.merge), policy.merge.model_copy(update={"tiers": None})

    def could_merge(rule: MergePolicy) -> int:
        return sum(len(part) for files in table.groups.values() for part in merge_bins(files, sizes, rule, len(files)))

    def could_cluster(files: Sequence[FileState]) -> bool:
        return bool(clustering and clustering.files_to_cluster(files, sizes.target, policy.layout.max_bytes))

    # Files that only a lower `min_files` would merge count only if they are many: a small file that is alone in its
    # partition is normal.
    small, smallest = could_merge(rule), could_merge(rule.model_copy(update={"min_files": 2}))
    small = smallest if smallest >= _MANY else small
    partitions = Counter(file.group[1:] for file in table.files)
    after_merge = partitions.copy()
    for group, files in table.groups.items():
        after_merge[group[1:]] -= sum(len(part) - 1 for part in merge_bins(files, sizes, rule, len(files)))
    bands = Counter(bisect_right([*_BANDS.values()], file.bytes) for file in table.files)
    depths = (
        [(clustering.depth(files), files) for files in partitions_of(table.files)]
        if clustering and not clustering.missing
        else []
    )
    rows = metrics["rows"] - metrics["inlined_rows"] + metrics["deleted_rows"]
    metrics |= {
        "small_files": small,
        "small_file_ratio": small / len(table.files) if small >= _HARMLESS else 0.0,
        "file_sizes": {name: bands[index] for index, name in enumerate([*_BANDS, "larger"])},
        "partitions": len(partitions),
        "files_per_partition": max(partitions.values(), default=0),
        "delete_share": metrics["deleted_rows"] / rows if rows else 0.0,
        "depth": max((depth for depth, _ in depths), default=None),
        "inlined_deletions": sum(file.tombstones for file in table.files),
        "write_age": write_age,
    }
    metrics["readable_by_others"] = not metrics["inlined_rows"] + metrics["inlined_deletions"]
    metrics["inlined_rows_staying"] = sum(state.live_rows for state in table.inlined if state.inexact)
    metrics["staying_reason"] = table.staying
    # A flush cannot move the rows that stay, so they are reported but not graded.
    graded = metrics | {"inlined_rows": metrics["inlined_rows"] - metrics["inlined_rows_staying"]}
    # Only partitions that `layout` would improve are graded.
    graded["depth"] = max((depth for depth, files in depths if could_cluster(files)), default=None)

    def remedy(metric: str) -> str:
        if metric == "write_age":
            return "run the job that writes the table"
        fewer = max(after_merge.values(), default=0) < max(partitions.values(), default=0)
        helps = fewer if metric == "files_per_partition" else after_merge != partitions
        if HELPS[metric] != "merge" or helps:
            return _command(metric, str(table.name))
        return _no_merge(table, policy.merge.min_files, small)

    findings = list(_findings(graded, policy.health, remedy))
    return TableHealth(str(table.name), worst([finding.grade for finding in findings]), metrics, findings)


def _no_merge(table: TableState, min_files: int, small: int) -> str:
    """Return the remedy for many files if a merge by this policy takes none of them."""
    versions = len({version for version, *_ in table.groups})
    if small:
        return f"lower `merge.min_files`, which is {min_files}: no partition has that many small files"
    if versions > 1 and len(table.groups) > len({group[1:] for group in table.groups}):
        rewrite = f"ducklake-orch maintain --operation rewrite --table {shlex.quote(str(table.name))}"
        return f"`{rewrite}`: its files have {versions} schema versions, and a merge combines only files of one version"
    return "partition the table by fewer values: a merge finds no two small files in a partition"


def _findings(
    metrics: Mapping[str, Any], policy: HealthPolicy, remedy: Callable[[str], str]
) -> Iterator[HealthFinding]:
    """Compare figures with their thresholds."""
    for metric in HealthPolicy.model_fields:
        value, thresholds = metrics.get(metric), getattr(policy, metric)
        if not value or thresholds is None:
            continue
        warn, bad = map(_number, thresholds)
        if value < warn:
            continue
        grade: Grade = "bad" if value >= bad else "warn"
        yield HealthFinding(metric, grade, float(value), bad if grade == "bad" else warn, remedy(metric))


def _command(metric: str, table: str = "") -> str:
    command = f"ducklake-orch maintain --operation {HELPS[metric]}"
    command += f" --table {shlex.quote(table)}" if table else ""
    return f"`{command}`{_UNREADABLE if metric == 'inlined_rows' else ''}"


def _number(threshold: float | timedelta) -> float:
    return threshold.total_seconds() if isinstance(threshold, timedelta) else float(threshold)


# --- the lake --------------------------------------------------------------------------------------------------------


def _lake_metrics(state: Census) -> dict[str, Any]:
    metadata, config = state.metadata, state.metadata.config
    count, oldest, latest = metadata.rows(
        "SELECT count(*), epoch_us(min(snapshot_time)::TIMESTAMPTZ), epoch_us(max(snapshot_time)::TIMESTAMPTZ)"
        f" FROM {metadata.table_sql('ducklake_snapshot')}"
    )[0]
    run = last_run(metadata)
    known = known_orphans(metadata)
    totals = Counter[str]()
    for table in state.tables:
        totals.update(counted(table))
    return {
        "tables": len(state.tables),
        **{name: totals[name] for name in ("files", "bytes", "rows", "inlined_rows", "deleted_rows")},
        "snapshot_count": int(count),
        "snapshot_age": state.age(moment(oldest)).total_seconds(),
        "latest_snapshot": state.latest.snapshot_id,
        "latest_snapshot_age": state.age(moment(latest)).total_seconds(),
        "orphan_files": known.get("files"),
        "orphan_bytes": known.get("bytes"),
        **_stages(state),
        **_streams(state),
        "statistics_debris": _debris(state),
        "catalog_bytes": catalog_bytes(state),
        "format_version": metadata.options().get("version"),
        "last_maintenance": None
        if run is None
        else {
            "run_id": run.run_id,
            "status": run.status,
            "owner": run.owner,
            "started_at": run.started_at.isoformat(),
            "ended_at": run.ended_at and run.ended_at.isoformat(),
            "age": state.age(run.ended_at or run.started_at).total_seconds(),
        },
        "catalog": config.catalog.type,
    }


def _stages(state: Census) -> dict[str, Any]:
    """Return the number of open stages, the size of their files, and the age of the oldest in seconds."""
    stages = [stage for stage in find_stages(state.metadata) if stage.head.snapshot_id is None and not stage.is_past]
    ages = [state.age(stage.head.created).total_seconds() for stage in stages]
    sizes = [table.change.bytes for stage in stages for table in stage.tables.values()]
    return {"stages": len(stages), "staged_bytes": sum(sizes), "stage_age": max(ages, default=0.0)}


def _streams(state: Census) -> dict[str, Any]:
    """Return the number of named streams, and how many snapshots the slowest still has to deliver."""
    latest = state.latest.snapshot_id
    lags = [latest - lease.snapshot_id for lease in read_leases(state.metadata).writes if lease.is_stream]
    return {"streams": len(lags), "stream_lag": max(lags, default=0)}


def _debris(state: Census) -> int:
    """Count statistics of files that no longer exist in the catalog."""
    config = state.metadata.config
    stats, files = (dialect_of(config).table(f"ducklake_{name}") for name in ("file_column_stats", "data_file"))
    sql = (
        f"select count(*) as n from {stats} s"
        f" where not exists (select 1 from {files} f where f.data_file_id = s.data_file_id)"
    )
    return int(state.metadata.rows(dialect_of(config).query(sql))[0][0])


def catalog_bytes(state: Census) -> int | None:
    """Return the size of the catalog in bytes, None if it is unknown."""
    config, dialect = state.metadata.config, state.metadata.dialect
    if config.catalog_file is not None:
        return os.path.getsize(config.catalog_file)
    sql = dialect.size_sql()
    return None if sql is None else maybe_int(state.metadata.rows(dialect.query(sql))[0][0])
