"""`ducklake-orch maintain` prints a plan or a report, `health` prints grades; the exit code is 1 on failures."""

import re
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.config.maintenance import OPERATIONS
from tests.support.command_line import run


@pytest.fixture
def worn(lake: DuckLake) -> DuckLake:
    for number in range(5):
        lake.execute(f"INSERT INTO numbers SELECT {number} + range, 'more' FROM range(20)").raise_for_error()
    lake.execute("INSERT INTO numbers VALUES (1000, 'inlined')").raise_for_error()
    return lake


def test_a_plan_lists_the_steps_and_changes_nothing(worn: DuckLake) -> None:
    files = worn.table("numbers").files()
    answer = run("maintain", "--plan")
    assert answer.code == 0
    for words in ("main.numbers", "1 inlined rows", "5 small files become 1", "retained or younger than 7 days"):
        assert words in answer.out
    assert worn.table("numbers").files() == files
    planned = run("maintain", "--plan", "--json").json
    assert {step["operation"] for step in planned["operations"]} == set(OPERATIONS)
    selection = ("--operation", "merge", "--operation", "expire", "--table", "num*")
    chosen = run("maintain", "--plan", "--json", *selection).json
    assert [step["operation"] for step in chosen["operations"]] == ["merge", "expire"]


def test_a_run_reports_its_steps(worn: DuckLake) -> None:
    rows = worn.table("numbers").count()
    answer = run("maintain")
    assert answer.code == 0
    assert "ok: " in answer.out
    assert worn.table("numbers").count() == rows
    assert len(worn.table("numbers").files()) < 6
    report = run("maintain", "--json").json
    assert (report["status"], report["totals"]["failed"]) == ("ok", 0)
    assert not worn.fsck().counts


def test_an_unknown_operation_is_a_usage_error(worn: DuckLake) -> None:
    answer = run("maintain", "--operation", "merg")
    assert answer.code == 2
    assert "merge" in answer.err
    Path("ducklake.toml").write_text(Path("ducklake.toml").read_text() + "\n[maintenance.cleanup]\nolder_than = '5m'\n")
    answer = run("maintain", "--plan")
    assert answer.code == 1
    assert "1 h" in answer.err


def test_an_override_that_matches_no_table_is_a_warning(worn: DuckLake) -> None:
    text = "\n[maintenance.overrides.numberz.merge]\nmin_files = 2\n"
    Path("ducklake.toml").write_text(Path("ducklake.toml").read_text() + text)
    answer = run("maintain", "--plan")
    assert answer.code == 0
    assert "numberz" in answer.err


def test_health_exits_with_1_on_a_bad_grade(worn: DuckLake) -> None:
    answer = run("health")
    assert answer.code == 0
    assert "main.numbers" in answer.out
    assert run("health", "--json").json["grade"] in ("ok", "warn")
    text = "\n[maintenance.health]\ninlined_rows = [1, 1]\n"
    Path("ducklake.toml").write_text(Path("ducklake.toml").read_text() + text)
    answer = run("health")
    assert answer.code == 1
    assert "ducklake-orch maintain --operation flush --table main.numbers" in answer.out
    assert run("maintain", "--operation", "flush", "--table", "main.numbers").code == 0
    assert run("health").code == 0


def test_health_of_a_new_lake_says_what_has_not_been_done_yet(worn: DuckLake) -> None:
    shown = dict(
        re.split(r" {2,}", line.strip(), maxsplit=1) for line in run("health").out.splitlines() if "  " in line
    )
    assert (shown["last maintenance"], shown["orphan files"]) == ("never", "not counted yet")


def test_health_prints_prometheus_metrics(worn: DuckLake) -> None:
    answer = run("health", "--format", "prometheus")
    assert answer.code == 0
    assert "# TYPE ducklake_grade gauge\n" in answer.out
    assert 'ducklake_table_files{lake="' in answer.out
    assert run("health", "--format", "promtheus").code == 2
