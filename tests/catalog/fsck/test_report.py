"""The report is bounded, readable and JSON-serializable. Every code is documented and tested."""

import json
import re
from pathlib import Path

from ducklake_orch import DuckLake
from ducklake_orch.catalog.fsck.check import Check
from ducklake_orch.catalog.fsck.repair_list import REPAIRS
from ducklake_orch.catalog.fsck.run import ALL, CATALOG, DEEP, EXAMPLES, FORMAT, PRESENCE
from tests.catalog.fsck.damage import damage

HERE = Path(__file__).parent
PAGE = HERE.parents[2] / "docs" / "fsck.md"


def test_a_report_lists_twenty_findings_per_code_and_counts_the_others(own: DuckLake) -> None:
    own.execute(["CREATE TABLE t (i INTEGER)", *["INSERT INTO t SELECT range FROM range(20)"] * 25]).raise_for_error()
    damage(own, "DELETE FROM ducklake_file_column_stats", "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id < 3")
    report = own.fsck()
    assert report.counts == {"snapshot-without-changes": 3, "file-without-statistics": 25}
    assert len(report.findings) == 3 + EXAMPLES
    assert "… and 5 more" in str(report)
    assert str(report).count("effect:") == 2


def test_the_json_report_has_the_documented_fields(lake: DuckLake) -> None:
    whole = lake.fsck().to_dict()
    assert whole["findings"] == []
    assert whole["checked"]["tables"] == 3
    damage(lake, "DELETE FROM ducklake_table_stats WHERE table_id = 6")
    (finding,) = json.loads(json.dumps(lake.fsck().to_dict()))["findings"]
    assert {"code", "severity", "table", "file", "effect", "remedy", "repairable"} <= set(finding)
    assert (finding["table"], finding["file"], finding["repairable"]) == ("other.u", None, True)


def test_only_errors_make_a_lake_not_ok(lake: DuckLake) -> None:
    assert str(lake.fsck()).startswith("nothing found")
    damage(lake, "DELETE FROM ducklake_file_column_stats WHERE data_file_id = 1")
    assert lake.fsck().ok
    damage(lake, "DELETE FROM ducklake_table_stats WHERE table_id = 6")
    assert not lake.fsck().ok


def test_the_number_of_catalog_queries_does_not_depend_on_the_number_of_files(own: DuckLake) -> None:
    from ducklake_orch.catalog.fsck.run import inspect, open_copy

    own.execute(["CREATE TABLE t (i INTEGER)", *["INSERT INTO t SELECT range FROM range(20)"] * 5]).raise_for_error()
    with open_copy(own.config) as copy:
        copy.con.execute("DETACH __ducklake_metadata_lake")
        assert inspect(copy).listed == []


def test_codes_are_unique_and_in_kebab_case() -> None:
    codes = [check.code for check in ALL]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", code) for code in codes)


def test_exactly_the_repairable_codes_have_a_repair() -> None:
    assert {check.code for check in ALL if check.repairable} == {code for repair in REPAIRS for code in repair.codes}


def test_every_code_is_tested() -> None:
    tests = "".join(path.read_text() for path in HERE.glob("test_*.py"))
    assert [check.code for check in ALL if f'"{check.code}"' not in tests] == []


def test_the_documented_table_of_codes_matches_the_checks() -> None:
    modes = {**dict.fromkeys(map(_code, PRESENCE), "deep, storage"), **dict.fromkeys(map(_code, DEEP), "deep")}
    modes |= dict.fromkeys(map(_code, [*FORMAT, *CATALOG]), "")
    expected = [
        f"| `{check.code}` | {check.severity} | {modes.get(check.code, 'storage')} | {check.effect} | {check.remedy} |"
        for check in ALL
    ]
    table = PAGE.read_text().partition("## All codes")[2]
    lines = [line for line in table.splitlines() if line.startswith("| `")]
    assert lines == expected


def _code(check: Check) -> str:
    return check.code
