"""Write the health of a lake in Prometheus's text format."""

from collections.abc import Iterator, Mapping, Sequence

from ducklake_orch.engine.quoting import table_name
from ducklake_orch.maintenance.health_report import GRADES, HealthReport

_LAKE = {
    "tables": "Tables.",
    "snapshot_count": "Snapshots.",
    "snapshot_age": "Age of the oldest snapshot, in seconds.",
    "latest_snapshot": "Id of the latest snapshot.",
    "stages": "Open stages.",
    "staged_bytes": "Size of the files of open stages.",
    "stage_age": "Age of the oldest open stage, in seconds.",
    "streams": "Streams with a name that have not been silent for long.",
    "stream_lag": "Snapshots that the slowest of these streams has not passed yet.",
    "latest_snapshot_age": "Age of the latest snapshot, in seconds.",
    "pending_files": "Files that wait for clean-up.",
    "pending_bytes": "Bytes of files that wait for clean-up.",
    "orphan_files": "Orphaned files, as of the last search.",
    "orphan_bytes": "Bytes of orphaned files, as of the last search.",
    "statistics_debris": "Statistics of files that no longer exist in the catalog.",
    "catalog_bytes": "Size of the catalog.",
}
_TABLE = {
    "files": "Live data files.",
    "bytes": "Bytes of live data files.",
    "rows": "Live rows, inlined ones included.",
    "deleted_rows": "Deleted rows in live data files.",
    "inlined_rows": "Rows that only the catalog has.",
    "inlined_deletions": "Deletions that only the catalog has.",
    "small_files": "Files that a merge would combine.",
    "small_file_ratio": "Share of files that a merge would combine.",
    "partitions": "Partitions that have files.",
    "files_per_partition": "Files in the fullest partition.",
    "delete_share": "Share of deleted rows.",
    "depth": "Files of a partition that hold a value of a cluster key or sort key, in the worst partition.",
    "write_age": "Seconds since rows last changed.",
}
_GRADE = "0 is ok, 1 a warning, 2 bad."
Sample = tuple[Mapping[str, str], float | None]


def to_prometheus(report: HealthReport) -> str:
    """Return the figures of a report in Prometheus's text format."""
    return "".join(f"{line}\n" for line in _lines(report))


def _lines(report: HealthReport) -> Iterator[str]:
    lake = {"lake": report.lake.name}
    yield from _metric("ducklake_grade", _GRADE, [(lake, GRADES.index(report.grade))])
    for name, text in _LAKE.items():
        yield from _metric(f"ducklake_{_unit(name)}", text, [(lake, report.lake.metrics.get(name))])
    last = report.lake.metrics.get("last_maintenance") or {}
    yield from _metric(
        "ducklake_last_maintenance_age_seconds", "Seconds since the last maintenance ended.", [(lake, last.get("age"))]
    )
    tables = []
    for table in report.tables:
        full_name = table_name(table.table)
        tables.append((lake | {"schema": full_name.schema, "table": full_name.table}, table))
    graded = [(labels, GRADES.index(table.grade)) for labels, table in tables]
    yield from _metric("ducklake_table_grade", _GRADE, graded)
    for name, text in _TABLE.items():
        figures = [(labels, table.metrics[name]) for labels, table in tables]
        yield from _metric(f"ducklake_table_{_unit(name)}", text, figures)
    sizes: list[Sample] = []
    for labels, table in tables:
        sizes += [(labels | {"size": band}, count) for band, count in table.metrics["file_sizes"].items()]
    yield from _metric("ducklake_table_files_by_size", "Live data files by size.", sizes)


def _unit(name: str) -> str:
    return f"{name}_seconds" if name.endswith("_age") else name


def _metric(name: str, text: str, samples: Sequence[Sample]) -> Iterator[str]:
    """Yield the lines of a metric; unknown values have no sample."""
    known = [(labels, value) for labels, value in samples if value is not None]
    if not known:
        return
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} gauge"
    for labels, value in known:
        pairs = ",".join(f'{key}="{_escaped(item)}"' for key, item in labels.items())
        yield f"{name}{{{pairs}}} {value:.17g}"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
