"""`ducklake-orch demo` tells a story whose figures are those of the lake that it leaves."""

from pathlib import Path

from ducklake_orch import DuckLake
from tests.support.command_line import run

# The rows and files of the table after each step.
STATES = [(3000, 3), (3100, 3), (3150, 4), (3150, 4), (3160, 6), (3200, 14), (3200, 3), (3200, 3), (2394, 3), (3200, 3)]


def test_the_figures_of_the_story_are_those_of_the_lake(tmp_path: Path) -> None:
    story = run("demo", "--folder", str(tmp_path / "it's here"), "--json").json
    figures = [step["figures"] for step in story["steps"]]
    assert [(step["rows"], step["files"]) for step in figures] == STATES
    first, replaced, late, retry, merged, _, compacted, travel, deleted, _ = figures
    assert first["rows_in"] == travel["rows_then"] == 3000
    assert (replaced["rows_in"], replaced["rows_out"]) == (1100, 1000)
    assert (late["rows_in"], retry["rows_in"], retry["snapshot"]) == (50, 0, late["snapshot"])
    assert merged["rows"] - retry["rows"] == 10
    assert compacted["files_in"] > compacted["files_out"]
    assert deleted["rows_out"] == 250 + 275 + 250 + 15 + 16  # of each day, then late and corrected, then of the till
    lake = DuckLake.local(tmp_path / "it's here" / "demo")
    assert lake.table("shop.orders").count() == 3200
    for step in figures:
        assert lake.table("shop.orders").count(snapshot=step["snapshot"]) == step["rows"]
    assert not lake.fsck(deep=True).findings
    assert Path(story["places"]["report"]).stat().st_size > 10_000


def test_the_story_is_told_line_by_line_and_can_be_repeated(tmp_path: Path) -> None:
    for _ in range(2):
        answer = run("demo", "--folder", str(tmp_path))
        assert answer.code == 0
        *_, last = answer.out.splitlines()
        assert last.endswith(f" -m webbrowser file://{tmp_path}/report.html")
        for number, (rows, files) in enumerate(STATES, 1):
            assert f"\n{number:>2}  " in f"\n{answer.out}"
            assert f"rows {rows}, files {files}, snapshot " in answer.out
