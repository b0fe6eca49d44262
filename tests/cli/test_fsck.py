"""`ducklake-orch fsck` prints findings with effect and remedy, and exits with 1 only on errors."""

from ducklake_orch import DuckLake
from tests.support.command_line import run


def damage(lake: DuckLake, *statements: str) -> None:
    with lake.connect_metadata(read_only=False) as con:
        for statement in statements:
            con.execute(statement)


def test_fsck_of_an_intact_lake_lists_the_checked_objects(lake: DuckLake) -> None:
    answer = run("fsck", "--deep", "--list-storage")
    assert answer.code == 0
    assert answer.out.startswith("Nothing found\n")
    assert "data files 1" in answer.out
    assert "files read 1" in answer.out


def test_fsck_explains_errors_and_exits_with_1(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_table_stats SET next_row_id = 3")
    answer = run("fsck")
    assert answer.code == 1
    for words in ("error next-row-id-behind (1)", "effect: The next rows", "remedy: ", "main.numbers", "1 found"):
        assert words in answer.out
    (finding,) = run("fsck", "--json").json["findings"]
    assert (finding["code"], finding["table"], finding["repairable"]) == ("next-row-id-behind", "main.numbers", True)


def test_fsck_with_warnings_alone_exits_with_0(lake: DuckLake) -> None:
    damage(lake, "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 1")
    answer = run("fsck")
    assert answer.code == 0
    assert "warning snapshot-without-changes" in answer.out


def test_fsck_repair_lists_the_repairs(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_table_stats SET next_row_id = 3")
    answer = run("fsck", "--repair")
    assert answer.code == 0
    assert "repaired, with snapshot 4:" in answer.out
    assert "Nothing found" in answer.out
    assert run("fsck", "--json").json["findings"] == []
    assert run("fsck", "--table", "numbers", "--json").json["checked"]["tables"] == 1
