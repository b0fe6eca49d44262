"""`ducklake-orch add-files` registers existing files in a table, all or none; a dry run only checks them."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from tests.support.command_line import run


@pytest.fixture
def exports(lake: DuckLake, tmp_path: Path) -> Path:
    """Two files with three rows for the empty table `events`."""
    lake.create_table("events", {"id": "BIGINT", "day": "DATE", "kind": "VARCHAR"}, partition_by=["day"])
    for number, day in enumerate(("2026-01-01", "2026-01-02")):
        folder = tmp_path / "exports" / f"day={day}"
        folder.mkdir(parents=True)
        rows = [{"id": 10 * number + offset, "kind": "[red]"} for offset in range(number + 1)]
        pq.write_table(pa.Table.from_pylist(rows), folder / "part-0.parquet")
    return tmp_path / "exports"


def test_files_of_a_pattern_are_registered_in_place(lake: DuckLake, exports: Path) -> None:
    answer = run("add-files", "events", "exports/**/*.parquet", "--author", "me", "--message", "moved in")
    assert answer.code == 0
    assert answer.out.startswith("add_files to main.events: 3 rows in, 0 out, snapshot ")
    assert sorted(file.path for file in lake.table("events").files()) == sorted(map(str, exports.rglob("*.parquet")))
    assert lake.execute("SELECT count(*) AS n FROM events WHERE day = '2026-01-02'").rows == [{"n": 2}]
    assert (lake.snapshots(1)[0].author, lake.snapshots(1)[0].message) == ("me", "moved in")


def test_as_json_the_result_is_one_document(lake: DuckLake, exports: Path) -> None:
    first, second = sorted(map(str, exports.rglob("*.parquet")))
    result = run("add-files", "events", first, second, "--json").json
    assert (result["mode"], result["files_added"], result["rows_written"]) == ("add_files", 2, 3)
    assert {partition["values"]["day"] for partition in result["partitions"]} == {"2026-01-01", "2026-01-02"}


def test_a_dry_run_checks_the_files_and_adds_none(lake: DuckLake, exports: Path) -> None:
    before = lake.snapshots(1)
    answer = run("add-files", "events", "exports/**/*.parquet", "--dry-run")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith("2 files with 3 rows, ")
    assert answer.out.endswith(" fit main.events; none was added\n")
    planned = run("add-files", "events", "exports/**/*.parquet", "--dry-run", "--json").json
    assert (planned["files_added"], planned["rows_written"]) == (2, 3)
    assert planned["snapshot_id"] == planned["previous_snapshot_id"] == before[0].snapshot_id
    assert lake.snapshots(1) == before
    assert not lake.table("events").files()


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
def test_a_dry_run_refuses_a_file_that_is_already_registered(
    lake: DuckLake, exports: Path, flags: tuple[str, ...]
) -> None:
    assert run("add-files", "events", "exports/**/*.parquet").code == 0
    answer = run("add-files", "events", "exports/**/*.parquet", *flags)
    assert answer.code == 1
    assert "2 files are already in the lake" in answer.err
    assert "\n       ducklake-orch explain duplicate-file\n" in answer.err
    assert lake.table("events").count() == 3


def test_one_mismatched_file_rejects_all_files(lake: DuckLake, exports: Path) -> None:
    pq.write_table(pa.table({"id": [1], "kind": ["x"], "more": [1]}), exports / "day=2026-01-01" / "odd.parquet")
    answer = run("add-files", "events", "exports/**/*.parquet")
    assert answer.code == 1
    assert "odd.parquet" in answer.err
    assert "more" in answer.err
    assert not lake.table("events").files()
    assert run("add-files", "events", "exports/**/*.parquet", "--ignore-extra").code == 0
    assert lake.table("events").count() == 4


def test_copied_files_stay_and_missing_columns_read_as_null(lake: DuckLake, tmp_path: Path) -> None:
    lake.create_table("events", {"id": "BIGINT", "kind": "VARCHAR"})
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"id": [1]}), path)
    assert run("add-files", "events", str(path)).code == 1
    assert run("add-files", "events", str(path), "--allow-missing", "--copy").code == 0
    (file,) = lake.table("events").files()
    assert file.path != str(path)
    assert lake.read("events").to_pylist() == [{"id": 1, "kind": None}]


def test_a_repeated_idempotency_key_adds_files_once(lake: DuckLake, exports: Path) -> None:
    given = ("add-files", "events", "exports/**/*.parquet", "--idempotency-key", "move")
    assert run(*given).code == 0
    assert "already committed" in run(*given).out
    assert lake.table("events").count() == 3


def test_missing_files_and_tables_have_the_right_exit_code(lake: DuckLake, exports: Path) -> None:
    for args, code, words in (
        (["event", "exports/**/*.parquet"], 1, "main.events"),
        (["events", "nowhere/*.parquet"], 1, "No file matches"),
        (["events", "exports"], 2, "is a folder"),
        (["events"], 2, "PATTERN"),
    ):
        answer = run("add-files", *args)
        assert (answer.code, words in answer.err) == (code, True), answer
