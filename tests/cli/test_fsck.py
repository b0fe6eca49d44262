"""`ducklake-orch fsck`: findings with effect and remedy, exit code 1 for errors only."""

from ducklake_orch import DuckLake
from tests.support.command_line import run


def damage(lake: DuckLake, *statements: str) -> None:
    with lake.connect_metadata(read_only=False) as con:
        for statement in statements:
            con.execute(statement)


def test_of_a_whole_lake_it_says_what_was_looked_at(lake: DuckLake) -> None:
    answer = run("fsck", "--deep", "--list-storage")
    assert answer.code == 0
    assert answer.out.startswith("Nothing found\n")
    assert "data files 1" in answer.out
    assert "files read 1" in answer.out


def test_errors_are_explained_and_make_it_fail(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_table_stats SET next_row_id = 3")
    answer = run("fsck")
    assert answer.code == 1
    for words in ("error next-row-id-behind (1)", "effect: The next rows", "remedy: ", "main.numbers", "1 found"):
        assert words in answer.out
    (finding,) = run("fsck", "--json").json["findings"]
    assert (finding["code"], finding["table"], finding["repairable"]) == ("next-row-id-behind", "main.numbers", True)


def test_warnings_do_not(lake: DuckLake) -> None:
    damage(lake, "DELETE FROM ducklake_snapshot_changes WHERE snapshot_id = 1")
    answer = run("fsck")
    assert answer.code == 0
    assert "warning snapshot-without-changes" in answer.out


def test_repair_says_what_was_mended(lake: DuckLake) -> None:
    damage(lake, "UPDATE ducklake_table_stats SET next_row_id = 3")
    answer = run("fsck", "--repair")
    assert answer.code == 0
    assert "repaired, with snapshot 4:" in answer.out
    assert "Nothing found" in answer.out
    assert run("fsck", "--json").json["findings"] == []
