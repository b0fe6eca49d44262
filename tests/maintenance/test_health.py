"""Health says how a lake is, from when on that is bad, and which command would help."""

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import CommitInfo, DuckLake, MaintenancePolicy
from ducklake_orch.maintenance.health_report import HealthFinding
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
    found = report.lake if table is None else next(health for health in report.tables if health.table == table)
    return {finding.metric: finding for finding in found.findings}


def grades(found: dict[str, HealthFinding]) -> dict[str, str]:
    return {name: one.grade for name, one in found.items()}


@catalogs()
def test_every_figure_is_told_and_nothing_is_changed(backend: Backend, lake: DuckLake) -> None:
    worn(lake)
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    before = metadata(lake)
    report = lake.health()
    assert metadata(lake) == before
    told = report.lake.metrics
    assert (told["tables"], told["snapshot_count"]) == (3, len(lake.snapshots()))
    assert 0 <= told["latest_snapshot_age"] <= told["snapshot_age"] < 600
    assert told["catalog_bytes"] > 1000
    assert told["format_version"] == "1.0"
    assert told["statistics_debris"] == 0
    tables = {table.table: table.metrics for table in report.tables}
    assert tables["main.d"]["delete_share"] == 25 / 100
    assert (told["pending_files"], tables["main.t"]["files"]) == (5, 1)
    assert told["pending_bytes"] > 0
    assert told["last_maintenance"]["status"] == "ok"
    if backend.catalog is not MYSQL:  # where nothing is inlined
        assert (tables["main.i"]["inlined_rows"], tables["main.i"]["readable_by_others"]) == (3, False)
    assert tables["main.d"]["readable_by_others"]
    assert sum(tables["main.d"]["file_sizes"].values()) == tables["main.d"]["files"] == 1
    assert {table.table: table.grade for table in report.tables} == {"main.t": "ok", "main.d": "warn", "main.i": "ok"}


@on_sqlite
def test_what_is_not_well_is_graded_and_has_a_command_that_helps(lake: DuckLake) -> None:
    worn(lake)
    assert "small_file_ratio" not in findings(lake, "main.t")  # so few do no harm
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
    # The command does help.
    lake.maintain(ALL_OF_IT, operations=["flush", "rewrite", "merge", "expire"]).raise_for_error()
    assert {table.grade for table in lake.health(STRICT).tables} == {"ok"}
    assert findings(lake)["pending_bytes"].grade == "warn"
    lake.maintain(ALL_OF_IT, operations=["cleanup"]).raise_for_error()
    assert "pending_bytes" not in findings(lake)


@on_sqlite
def test_thresholds_can_differ_by_table(lake: DuckLake) -> None:
    worn(lake)
    policy = MaintenancePolicy(overrides={"t": {"health": {"files_per_partition": (1, 2)}}})  # of `d` much is deleted
    assert {table.table: table.grade for table in lake.health(policy).tables} == {
        "main.t": "bad",
        "main.d": "warn",
        "main.i": "ok",
    }


@on_sqlite
def test_orphans_are_known_from_the_last_run(lake: DuckLake) -> None:
    from pathlib import Path

    worn(lake)
    assert lake.health().lake.metrics["orphan_files"] is None
    Path(lake.table("t").files()[0].path).with_name("stray.parquet").write_bytes(b"?")
    lake.maintain(MaintenancePolicy(orphans={"older_than": 0}, force=True), operations=["orphans"])
    told = lake.health().lake.metrics
    assert (told["orphan_files"], told["orphan_bytes"]) == (1, 1)
    lake.maintain(ALL_OF_IT, operations=["orphans"])
    assert lake.health().lake.metrics["orphan_files"] == 0


@on_sqlite
def test_it_dumps_as_json_and_reads_well(lake: DuckLake) -> None:
    worn(lake)
    dumped = json.loads(json.dumps(lake.health(STRICT).to_dict()))
    assert set(dumped) == {"grade", "lake", "tables"}
    assert all({"table", "grade", "metrics", "findings"} <= set(one) for one in dumped["tables"])
    finding = dumped["tables"][-1]["findings"][0]
    assert {"metric", "value", "threshold", "remedy"} <= set(finding)
    assert "files_per_partition is 5" in str(lake.health(STRICT))


@on_sqlite
def test_prometheus_reads_it_whatever_tables_are_called(lake: DuckLake) -> None:
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
            assert metric not in seen  # one block each
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
def test_an_empty_lake_is_well(lake: DuckLake) -> None:
    lake.ensure_exists()
    report = lake.health()
    assert (report.grade, report.tables) == ("ok", [])
    assert "ducklake_tables{" in report.to_prometheus()


@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL), Backend(SQLITE, LOCAL)], indirect=True, ids=str)
def test_the_number_of_queries_does_not_grow_with_the_tables(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    from ducklake_orch.catalog.metadata import Metadata

    asked: list[str] = []
    real = Metadata.rows

    def counting(self: Metadata, sql: str) -> Any:
        asked.append(sql)
        return real(self, sql)

    monkeypatch.setattr(Metadata, "rows", counting)

    def queries() -> int:
        asked.clear()
        lake.health()
        return len(asked)

    small_files(lake, "t0", files=2)
    lake.write(rows(100, 2), "t0", mode="append", inline="auto")
    few = queries()
    for number in range(1, 6):
        small_files(lake, f"t{number}", files=2)
    assert queries() == few


def aged(lake: DuckLake, days: int) -> None:
    """Let all snapshots have been made so many days ago."""
    assert lake.config.catalog.type == "sqlite"
    with closing(sqlite3.connect(lake.config.catalog.path)) as catalog:
        time = f"strftime('%Y-%m-%d %H:%M:%S', 'now', '-{days} days') || '+00'"
        catalog.execute(f"UPDATE ducklake_snapshot SET snapshot_time = {time}")
        catalog.commit()


@on_sqlite
def test_what_expiry_never_takes_is_no_fault(lake: DuckLake) -> None:
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
def test_where_the_policy_keeps_snapshots_the_remedy_is_the_policy(lake: DuckLake) -> None:
    small_files(lake, "t", files=3)
    aged(lake, 100)
    (finding,) = lake.health(MaintenancePolicy(expire={"older_than": "365 days", "retain_last": 1})).lake.findings
    assert "shorten `expire.older_than`" in finding.remedy


@on_sqlite
def test_files_that_a_merge_leaves_alone_have_another_remedy(lake: DuckLake) -> None:
    for n in range(4):  # 60 small files, 4 in each partition
        data = rows(n * 15, 15).append_column("part", [list(range(15))])
        lake.write(data, "p", mode="append", partition_by=["part"])
    few = next(table for table in lake.health().tables if table.table == "main.p")
    assert (few.grade, few.metrics["small_files"]) == ("bad", 60)
    assert "lower `merge.min_files`, which is 5" in few.findings[0].remedy
    helped = MaintenancePolicy(merge={"min_files": 4})
    assert "--operation merge" in lake.health(helped).tables[0].findings[0].remedy
    lake.maintain(helped, operations=["merge"]).raise_for_error()
    assert lake.health(helped).tables[0].grade == "ok"


@on_sqlite
def test_a_merge_is_no_remedy_for_files_of_different_schemas(lake: DuckLake) -> None:
    lake.write(rows(0, 3), "t", mode="append")
    for n in range(6):
        lake.execute(f"ALTER TABLE t ADD COLUMN c{n} INTEGER").raise_for_error()
        lake.write(rows(3 * n, 3), "t", mode="append")
    found = findings(lake, "main.t")
    assert list(found) == ["files_per_partition"]
    assert "rewrite the table (mode `overwrite`)" in found["files_per_partition"].remedy
    assert lake.maintain(ALL_OF_IT, operations=["merge"]).totals["done"] == 0
    lake.write(lake.read("t"), "t", mode="overwrite")
    assert findings(lake, "main.t") == {}


@on_sqlite
def test_orphans_stay_known_after_a_run_that_did_not_look(lake: DuckLake) -> None:
    worn(lake)
    Path(lake.table("t").files()[0].path).with_name("stray.parquet").write_bytes(b"?")
    lake.maintain(MaintenancePolicy(orphans={"older_than": 0}, force=True), operations=["orphans"])
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    assert lake.health().lake.metrics["orphan_files"] == 1
