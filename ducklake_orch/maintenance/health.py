"""`lake.health`: figures of a lake and its tables, in a constant number of queries, graded by the policy."""

import os
import shlex
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from ducklake_orch.catalog.cells import maybe_int
from ducklake_orch.catalog.known_paths import scheduled_paths
from ducklake_orch.config.catalogs import FileCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import HealthPolicy, MaintenancePolicy
from ducklake_orch.engine import server_sql
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.stored_sizes import bytes_of
from ducklake_orch.maintenance.census import Census, TableState, census, moment
from ducklake_orch.maintenance.figures import counted
from ducklake_orch.maintenance.health_report import (
    Grade,
    HealthFinding,
    HealthReport,
    LakeHealth,
    TableHealth,
    worst,
)
from ducklake_orch.maintenance.runs import last_run
from ducklake_orch.maintenance.table_plan import merge_bins, target_size

_MIB = 1024 * 1024
_BANDS = {"under_1_mib": _MIB, "under_10_mib": 10 * _MIB, "under_64_mib": 64 * _MIB, "under_512_mib": 512 * _MIB}
# So few files cost a reader nothing, however small they are.
_HARMLESS = 20
_UNREADABLE = "; other engines cannot read or count this table until a flush"
# The figures that are graded for the lake as a whole; the others are for each table.
_OF_LAKE = ("snapshot_count", "snapshot_age", "pending_bytes")
# The operation that helps with a figure.
HELPS = {
    "small_file_ratio": "merge",
    "files_per_partition": "merge",
    "delete_share": "rewrite",
    "inlined_rows": "flush",
    "snapshot_count": "expire",
    "snapshot_age": "expire",
    "pending_bytes": "cleanup",
}


def health(config: LakeConfig, policy: MaintenancePolicy) -> HealthReport:
    """Look at the health of a lake; see `DuckLake.health`."""
    with census(config, f"Looking at the health of lake `{config.name}`") as state:
        seen = look(state, policy)
    return graded(config, policy, seen)


@dataclass(frozen=True)
class Seen:
    """What the catalog says of the health of a lake; sizes in the storage are asked for afterwards.

    Attributes:
        metrics: Of the lake as a whole.
        pending: Where the files are that wait for cleanup, by id.
    """

    tables: list[TableHealth]
    metrics: dict[str, Any]
    pending: Mapping[int, str]


def look(state: Census, policy: MaintenancePolicy) -> Seen:
    """Work out the figures of a lake that the catalog tells."""
    tables = [_table(table, policy.of_table(*table.name)) for table in state.tables]
    return Seen(tables, _lake_metrics(state), scheduled_paths(state.metadata))


def graded(config: LakeConfig, policy: MaintenancePolicy, seen: Seen) -> HealthReport:
    """Ask the storage for the rest, and grade what was seen."""
    pending = {"pending_files": len(seen.pending), "pending_bytes": bytes_of(config, list(seen.pending.values()))}
    metrics = seen.metrics | pending
    findings = list(_findings({name: metrics[name] for name in _OF_LAKE}, policy.health, ""))
    lake = LakeHealth(config.name, worst([one.grade for one in findings]), metrics, findings)
    return HealthReport(worst([lake.grade, *(one.grade for one in seen.tables)]), lake, seen.tables)


# --- tables ----------------------------------------------------------------------------------------------------------


def _table(table: TableState, policy: MaintenancePolicy) -> TableHealth:
    metrics: dict[str, Any] = counted(table)
    target, rule = target_size(table, policy.merge), policy.merge.model_copy(update={"tiers": None})
    groups = table.groups.values()
    small = sum(len(some) for files in groups for some in merge_bins(files, target, rule, len(files)))
    partitions = Counter(file.group[1:] for file in table.files)
    bands = Counter(bisect_right([*_BANDS.values()], file.bytes) for file in table.files)
    rows = metrics["rows"] - metrics["inlined_rows"] + metrics["deleted_rows"]
    metrics |= {
        "small_files": small,
        "small_file_ratio": small / len(table.files) if small >= _HARMLESS else 0.0,
        "file_sizes": {name: bands[place] for place, name in enumerate([*_BANDS, "larger"])},
        "partitions": len(partitions),
        "files_per_partition": max(partitions.values(), default=0),
        "delete_share": metrics["deleted_rows"] / rows if rows else 0.0,
        "inlined_deletions": sum(file.tombstones for file in table.files),
    }
    metrics["readable_by_others"] = not metrics["inlined_rows"] + metrics["inlined_deletions"]
    metrics["inlined_rows_staying"] = sum(one.live_rows for one in table.inlined if one.inexact)
    metrics["staying_reason"] = table.staying
    # No flush helps those that stay: they are told, not graded.
    graded = metrics | {"inlined_rows": metrics["inlined_rows"] - metrics["inlined_rows_staying"]}
    findings = list(_findings(graded, policy.health, str(table.name)))
    return TableHealth(str(table.name), worst([one.grade for one in findings]), metrics, findings)


def _findings(metrics: Mapping[str, Any], policy: HealthPolicy, table: str) -> Iterator[HealthFinding]:
    """Compare figures with their thresholds."""
    for metric in HealthPolicy.model_fields:
        value, (warn, bad) = metrics.get(metric), map(_number, getattr(policy, metric))
        if value is None or value < warn or not value:
            continue
        grade: Grade = "bad" if value >= bad else "warn"
        command = f"ducklake-orch maintain --operation {HELPS[metric]}"
        command += f" --table {shlex.quote(table)}" if table else ""
        remedy = f"`{command}`{_UNREADABLE if metric == 'inlined_rows' else ''}"
        yield HealthFinding(metric, grade, float(value), bad if grade == "bad" else warn, remedy)


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
    known = (run.summary.get("orphans") or {}) if run else {}
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


def _debris(state: Census) -> int:
    """Count the statistics of files that the catalog does not have any more."""
    config = state.metadata.config
    stats, files = (server_sql.table(config, f"ducklake_{one}") for one in ("file_column_stats", "data_file"))
    sql = (
        f"select count(*) as n from {stats} s"
        f" where not exists (select 1 from {files} f where f.data_file_id = s.data_file_id)"
    )
    return int(state.metadata.rows(server_sql.query(config, sql))[0][0])


def catalog_bytes(state: Census) -> int | None:
    """Return how much room the catalog takes, where it can be told."""
    config, catalog = state.metadata.config, state.metadata.config.catalog
    if isinstance(catalog, FileCatalog):
        return os.path.getsize(catalog.path)
    pattern = literal("ducklake!_%")
    match catalog.type:
        case "postgres":
            sql = (
                "select cast(sum(pg_total_relation_size(c.oid)) as bigint) as n from pg_class c"
                " join pg_namespace s on s.oid = c.relnamespace where c.relkind = 'r'"
                f" and s.nspname = {literal(config.metadata_schema or 'public')}"
                f" and c.relname like {pattern} escape '!'"
            )
        case "mysql":
            sql = (
                "select cast(sum(data_length + index_length) as signed) as n from information_schema.tables"
                f" where table_schema = database() and table_name like {pattern} escape '!'"
            )
        case _:
            return None
    return maybe_int(state.metadata.rows(server_sql.query(config, sql))[0][0])
