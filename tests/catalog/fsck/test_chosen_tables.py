"""`fsck(tables=…)` checks the chosen tables and reads nothing of the others."""

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError, ObjectNotFoundError
from tests.catalog.fsck.damage import damage

ALL = ["t", "p", "other.u"]
# The next row id is already in use in `t` and of `other.u`.
DAMAGE = """
    UPDATE ducklake_table_stats SET next_row_id = 1
    WHERE table_id IN (SELECT table_id FROM ducklake_table WHERE table_name IN ('t', 'u'))"""


def codes(lake: DuckLake, **options: object) -> set[tuple[str, str | None]]:
    return {(finding.code, finding.table) for finding in lake.fsck(**options).findings}  # type: ignore[arg-type]


@pytest.fixture
def damaged(lake: DuckLake) -> DuckLake:
    damage(lake, DAMAGE)
    return lake


def test_only_findings_of_the_chosen_tables_are_reported(damaged: DuckLake) -> None:
    everything = codes(damaged)
    assert {table for _, table in everything} == {"main.t", "other.u"}
    assert codes(damaged, tables=["t"]) == {found for found in everything if found[1] == "main.t"}
    assert codes(damaged, tables=["other.*"]) == {found for found in everything if found[1] == "other.u"}
    assert codes(damaged, tables=["p"]) == set()
    assert codes(damaged, tables=ALL) == everything
    assert codes(damaged, tables=["t"], deep=True) == codes(damaged, tables=["t"])


@pytest.mark.parametrize("table", ALL)
def test_a_whole_table_has_no_finding_when_it_is_checked_alone(lake: DuckLake, table: str) -> None:
    assert lake.fsck(tables=[table], deep=True).findings == []


def test_the_report_counts_what_belongs_to_the_chosen_tables(lake: DuckLake) -> None:
    checked = lake.fsck(tables=["t"], deep=True).checked
    files = lake.table("t").files()
    assert (checked["tables"], checked["data_files"], checked["inlined_rows"]) == (1, len(files), 1)
    assert lake.fsck(tables=["p"]).checked["inlined_rows"] == 0


def test_a_pair_of_schema_and_table_is_an_exact_name(lake: DuckLake) -> None:
    lake.execute(['CREATE TABLE "[tp]" (i INTEGER)', 'CREATE TABLE "a.b" (i INTEGER)']).raise_for_error()
    assert lake.fsck(tables=["[tp]"]).checked["tables"] == 2
    assert lake.fsck(tables=[("main", "[tp]"), ("main", "a.b")]).checked["tables"] == 2
    assert [table.table for table in lake.health(tables=[("main", "[tp]")]).tables] == ["main.[tp]"]


def test_an_unknown_table_and_a_repair_of_some_tables_are_refused(lake: DuckLake) -> None:
    with pytest.raises(ObjectNotFoundError, match=r"no table `tt`"):
        lake.fsck(tables=["tt"])
    with pytest.raises(ConfigError, match="A repair covers the whole lake"):
        lake.fsck(tables=["t"], repair=True)
    for check in (lake.fsck, lake.health):
        with pytest.raises(ConfigError, match="`tables` is empty"):
            check(tables=[])
