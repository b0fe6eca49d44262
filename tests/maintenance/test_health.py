"""The health report: metrics, grades by thresholds, and a remedy for every finding."""

import json
import re
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake, MaintenancePolicy
from ducklake_orch.errors import ObjectNotFoundError
from ducklake_orch.maintenance.health_report import HealthFinding, HealthReport
from tests.support.backends import LOCAL, MYSQL, POSTGRES, SQLITE, Backend, catalogs, on_sqlite
from tests.support.worn_lakes import ALL_OF_IT, metadata, rows, small_files, worn

STRICT = MaintenancePolicy(
    health={
        "small_file_ratio": (0.5, 0.9),
        "files_per_partition": (3, 100),
        "delete_share": (0.1, 0.5),
        "inlined_rows": (1, 2),
        "snapshot_count": (2, 1000),
        "snapshot_age": ("0s", "1 day"),
        "pending_bytes": (1, "1 GB"),
    }
)


def findings(lake: DuckLake, table: str | None = None) -> dict[str, HealthFinding]:
    report = lake.health(STRICT)
    health = report.lake if table is None else next(health for health in report.tables if health.table == table)
    return {finding.metric: finding for finding in health.findings}


def grades(findings: dict[str, HealthFinding]) -> dict[str, str]:
    return {metric: finding.grade for metric, finding in findings.items()}


@catalogs()
def test_health_reports_every_metric_and_changes_nothing(backend: Backend, lake: DuckLake) -> None:
    worn(lake)
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    before = metadata(lake)
    report = lake.health()
    assert metadata(lake) == before
    metrics = report.lake.metrics
    assert (metrics["tables"], metrics["snapshot_count"]) == (3, len(lake.snapshots()))
    assert 0 <= metrics["latest_snapshot_age"] <= metrics["snapshot_age"] < 600
    assert metrics["catalog_bytes"] > 1000
    assert metrics["format_version"] == "1.0"
    assert metrics["statistics_debris"] == 0
    tables = {table.table: table.metrics for table in report.tables}
    assert tables["main.d"]["delete_share"] == 25 / 100
    assert (metrics["pending_files"], tables["main.t"]["files"]) == (5, 1)
    assert metrics["pending_bytes"] > 0
    assert metrics["last_maintenance"]["status"] == "ok"
    if backend.catalog is not MYSQL:  # the engine inlines no rows on MySQL
        assert (tables["main.i"]["inlined_rows"], tables["main.i"]["readable_by_others"]) == (3, False)
    assert tables["main.d"]["readable_by_others"]
    assert sum(tables["main.d"]["file_sizes"].values()) == tables["main.d"]["files"] == 1
    assert {table.table: table.grade for table in report.tables} == {"main.t": "ok", "main.d": "warn", "main.i": "ok"}


@on_sqlite
def test_open_stages_are_counted_with_their_size_and_age(lake: DuckLake) -> None:
    lake.stage("published").write(pa.table({"id": [1]}), "t", mode="append")
    lake.stage("published").publish()
    assert lake.health().lake.metrics["stages"] == 0
    lake.stage("open").write(pa.table({"id": [2]}), "t", mode="append")
    metrics = lake.health().lake.metrics
    assert metrics["stages"] == 1
    assert metrics["staged_bytes"] == lake.stages()[-1].bytes > 0
    assert 0 <= metrics["stage_age"] < 600


@on_sqlite
def test_each_finding_has_a_grade_and_a_command_that_fixes_it(lake: DuckLake) -> None:
    worn(lake)
    assert "small_file_ratio" not in findings(lake, "main.t")  # too few files for a finding
    small_files(lake, "t", files=15)
    small = findings(lake, "main.t")
    assert grades(small) == {"small_file_ratio": "bad", "files_per_partition": "warn"}
    assert small["small_file_ratio"].remedy == "`ducklake-orch maintain --operation merge --table main.t`"
    assert grades(findings(lake, "main.d")) == {"delete_share": "warn"}
    inlined = findings(lake, "main.i")["inlined_rows"]
    assert (inlined.grade, inlined.value, inlined.threshold) == ("bad", 3, 2)
    assert "other engines cannot read or count" in inlined.remedy
    assert grades(findings(lake)) == {"snapshot_count": "warn", "snapshot_age": "warn"}
    assert lake.health(STRICT).grade == "bad"
    # The remedies improve the grade.
    lake.maintain(ALL_OF_IT, operations=["flush", "rewrite", "merge", "expire"]).raise_for_error()
    assert {table.grade for table in lake.health(STRICT).tables} == {"ok"}
    assert findings(lake)["pending_bytes"].grade == "warn"
    lake.maintain(ALL_OF_IT, operations=["cleanup"]).raise_for_error()
    assert "pending_bytes" not in findings(lake)


@on_sqlite
def test_thresholds_may_differ_by_table(lake: DuckLake) -> None:
    worn(lake)
    policy = MaintenancePolicy(
        overrides={"t": {"health": {"files_per_partition": (1, 2)}}}
    )  # `d` has many deleted rows
    assert {table.table: table.grade for table in lake.health(policy).tables} == {
        "main.t": "bad",
        "main.d": "warn",
        "main.i": "ok",
    }


@catalogs()
def test_the_age_of_the_last_write_ignores_maintenance(backend: Backend, lake: DuckLake) -> None:
    worn(lake)
    ages = write_ages(lake)
    assert ages["main.t"] >= ages["main.d"] >= ages["main.i"] >= 0  # MySQL stores times in whole seconds
    lake.maintain(ALL_OF_IT, operations=["flush", "merge"]).raise_for_error()
    later = write_ages(lake)
    assert all(later[name] > age for name, age in ages.items())
    time.sleep(2)
    lake.delete("t", "k = 1")
    assert write_ages(lake)["main.t"] < later["main.t"] + 2  # of which up to one because of MySQL


@on_sqlite
def test_the_age_of_a_table_that_was_never_written_counts_from_its_creation(lake: DuckLake) -> None:
    small_files(lake, "t", files=1)
    lake.execute('CREATE TABLE ",inserted_into_table:1" (v INTEGER)').raise_for_error()
    ages = write_ages(lake)
    assert ages["main.,inserted_into_table:1"] < ages["main.t"]


@on_sqlite
def test_a_write_whose_snapshot_has_expired_counts_as_the_oldest_retained_one(lake: DuckLake) -> None:
    small_files(lake, "t", files=1)
    small_files(lake, "u", files=3)
    lake.maintain(ALL_OF_IT, operations=["expire"]).raise_for_error()
    report = lake.health()
    assert {table.metrics["write_age"] for table in report.tables} == {report.lake.metrics["snapshot_age"]}


@on_sqlite
def test_the_age_of_the_last_write_is_graded_where_the_policy_expects_it(lake: DuckLake) -> None:
    worn(lake)
    policy = MaintenancePolicy(overrides={"t": {"health": {"write_age": ("0s", "1 day")}}})
    graded = {table.table: [finding.metric for finding in table.findings] for table in lake.health(policy).tables}
    assert graded == {"main.t": ["write_age"], "main.d": ["delete_share"], "main.i": []}
    assert "ducklake_table_write_age_seconds" in lake.health().to_prometheus()


def write_ages(lake: DuckLake) -> dict[str, float]:
    return {table.table: table.metrics["write_age"] for table in lake.health().tables}


@on_sqlite
def test_orphan_metrics_come_from_the_last_run(lake: DuckLake) -> None:
    from pathlib import Path

    worn(lake)
    assert lake.health().lake.metrics["orphan_files"] is None
    Path(lake.table("t").files()[0].path).with_name("stray.parquet").write_bytes(b"?")
    lake.maintain(MaintenancePolicy(orphans={"older_than": 0}, force=True), operations=["orphans"])
    metrics = lake.health().lake.metrics
    assert (metrics["orphan_files"], metrics["orphan_bytes"]) == (1, 1)
    lake.maintain(ALL_OF_IT, operations=["orphans"])
    assert lake.health().lake.metrics["orphan_files"] == 0


@on_sqlite
def test_a_health_report_converts_to_json_and_text(lake: DuckLake) -> None:
    worn(lake)
    dumped = json.loads(json.dumps(lake.health(STRICT).to_dict()))
    assert set(dumped) == {"grade", "lake", "tables"}
    assert all({"table", "grade", "metrics", "findings"} <= set(table) for table in dumped["tables"])
    finding = dumped["tables"][-1]["findings"][0]
    assert {"metric", "value", "threshold", "remedy"} <= set(finding)
    assert "files_per_partition is 5" in str(lake.health(STRICT))


@on_sqlite
def test_prometheus_output_escapes_table_names(lake: DuckLake) -> None:
    name = 'odd "name" \\ with\nlines'
    quoted = name.replace('"', '""')
    lake.write(rows(0, 3), f'"{quoted}"', mode="append")
    small_files(lake, "t", files=5)
    text = lake.health().to_prometheus()
    assert text.endswith("\n")
    seen: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# HELP "):
            metric = line.split()[2]
            assert metric not in seen  # one block per metric
            seen.add(metric)
            continue
        if line.startswith("# TYPE "):
            assert line.split()[2:] == [metric, "gauge"]
            continue
        sample = re.fullmatch(r'(\w+)\{(\w+="(?:[^"\\\n]|\\["\\n])*"(?:,\w+="(?:[^"\\\n]|\\["\\n])*")*)\} (\S+)', line)
        assert sample is not None, line
        assert sample[1] == metric
        float(sample[3])
    assert 'ducklake_table_small_files{lake="lake",schema="main",table="t"} 5' in text
    assert 'table="odd \\"name\\" \\\\ with\\nlines"' in text


@on_sqlite
def test_an_empty_lake_is_graded_ok(lake: DuckLake) -> None:
    lake.ensure_exists()
    report = lake.health()
    assert (report.grade, report.tables) == ("ok", [])
    assert "ducklake_tables{" in report.to_prometheus()


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL), Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_the_number_of_queries_is_independent_of_the_number_of_tables(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ducklake_orch.catalog.metadata import Metadata

    queries_run: list[str] = []
    real = Metadata.rows

    def counting(self: Metadata, sql: str) -> Any:
        queries_run.append(sql)
        return real(self, sql)

    monkeypatch.setattr(Metadata, "rows", counting)

    def queries() -> int:
        queries_run.clear()
        lake.health()
        return len(queries_run)

    small_files(lake, "t0", files=2)
    lake.write(rows(100, 2), "t0", mode="append", inline="auto")
    count_before = queries()
    for number in range(1, 6):
        small_files(lake, f"t{number}", files=2)
    assert queries() == count_before


def aged(lake: DuckLake, days: int) -> None:
    """Set the time of all snapshots to a number of days ago."""
    assert lake.config.catalog.type == "sqlite"
    with closing(sqlite3.connect(lake.config.catalog.path)) as catalog:
        time = f"strftime('%Y-%m-%d %H:%M:%S', 'now', '-{days} days') || '+00'"
        catalog.execute(f"UPDATE ducklake_snapshot SET snapshot_time = {time}")
        catalog.commit()


@on_sqlite
def test_snapshots_that_expiry_keeps_do_not_lower_the_grade(lake: DuckLake) -> None:
    lake.write(rows(0, 3), "t", mode="append", commit=CommitInfo(message="release 1"))
    lake.write(rows(3, 3), "t", mode="append")
    lake.write(rows(6, 3), "t", mode="append")
    aged(lake, 100)
    policy = MaintenancePolicy(expire={"keep": ["release *"], "retain_last": 1})
    (finding,) = lake.health(policy).lake.findings
    assert (finding.metric, finding.grade) == ("snapshot_age", "bad")
    assert finding.remedy == "`ducklake-orch maintain --operation expire`"
    lake.maintain(policy, operations=["expire"]).raise_for_error()
    assert [snapshot.message for snapshot in lake.snapshots()][1:] == ["release 1"]
    report = lake.health(policy)
    assert (report.grade, report.lake.metrics["snapshot_age"] > 99 * 86400) == ("ok", True)


@on_sqlite
def test_the_remedy_for_snapshots_kept_by_the_policy_names_the_policy(lake: DuckLake) -> None:
    small_files(lake, "t", files=3)
    aged(lake, 100)
    (finding,) = lake.health(MaintenancePolicy(expire={"older_than": "365 days", "retain_last": 1})).lake.findings
    assert "shorten `expire.older_than`" in finding.remedy


@on_sqlite
def test_the_remedy_for_files_below_min_files_names_min_files(lake: DuckLake) -> None:
    for n in range(4):  # 60 small files, 4 in each partition
        data = rows(n * 15, 15).append_column("part", [list(range(15))])
        lake.write(data, "p", mode="append", partition_by=["part"])
    partitioned = next(table for table in lake.health().tables if table.table == "main.p")
    assert (partitioned.grade, partitioned.metrics["small_files"]) == ("bad", 60)
    assert "lower `merge.min_files`, which is 5" in partitioned.findings[0].remedy
    helped = MaintenancePolicy(merge={"min_files": 4})
    assert "--operation merge" in lake.health(helped).tables[0].findings[0].remedy
    lake.maintain(helped, operations=["merge"]).raise_for_error()
    assert lake.health(helped).tables[0].grade == "ok"


@on_sqlite
def test_the_remedy_for_files_of_different_schemas_is_a_rewrite(lake: DuckLake) -> None:
    lake.write(rows(0, 3), "t", mode="append")
    for n in range(6):
        lake.execute(f"ALTER TABLE t ADD COLUMN c{n} INTEGER").raise_for_error()
        lake.write(rows(3 * n, 3), "t", mode="append")
    by_metric = findings(lake, "main.t")
    assert list(by_metric) == ["files_per_partition"]
    assert "maintain --operation rewrite --table main.t`" in by_metric["files_per_partition"].remedy
    assert lake.maintain(ALL_OF_IT, operations=["merge"]).totals["done"] == 0
    lake.maintain(ALL_OF_IT, operations=["rewrite"]).raise_for_error()
    assert findings(lake, "main.t") == {}


@on_sqlite
def test_orphan_metrics_stay_after_a_run_without_orphans(lake: DuckLake) -> None:
    worn(lake)
    Path(lake.table("t").files()[0].path).with_name("stray.parquet").write_bytes(b"?")
    lake.maintain(MaintenancePolicy(orphans={"older_than": 0}, force=True), operations=["orphans"])
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    assert lake.health().lake.metrics["orphan_files"] == 1


@on_sqlite
def test_chosen_tables_are_measured_without_the_others(lake: DuckLake) -> None:
    worn(lake)

    def measured(report: HealthReport) -> dict[str, dict[str, Any]]:
        return {table.table: {**table.metrics, "write_age": None} for table in report.tables}

    whole = measured(lake.health())
    report = lake.health(tables=["t", "i"])
    assert measured(report) == {name: whole[name] for name in ("main.i", "main.t")}
    assert report.lake.metrics == {}
    assert 'ducklake_table_files{lake="lake",schema="main",table="t"}' in report.to_prometheus()
    with pytest.raises(ObjectNotFoundError, match="no table `nowhere`"):
        lake.health(tables=["nowhere"])
