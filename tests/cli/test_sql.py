"""`ducklake-orch sql` runs commands from an argument, a file or stdin, and prints their results."""

import getpass
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from tests.support.command_line import run


def test_sql_shows_each_command_and_its_rows(lake: DuckLake) -> None:
    answer = run("sql", "INSERT INTO numbers VALUES (100, 'x'); SELECT max(n) AS top, NULL AS nothing FROM numbers")
    assert answer.code == 0
    assert "1 row" in answer.err
    assert "snapshot 3 → 4" in answer.err
    assert "100" in answer.out
    assert "NULL" in answer.out


def test_sql_prints_only_rows_on_stdout(lake: DuckLake) -> None:
    answer = run("sql", "DELETE FROM numbers WHERE n = 5; SELECT n FROM numbers ORDER BY n", "--max-rows", "1")
    assert answer.out.split() == ["n", "─", "6"]
    assert "The first 1 row; --max-rows shows more." in answer.err


def test_sql_names_its_user_as_the_author(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    run("sql", "DELETE FROM numbers WHERE n = 5", "--atomic")
    run("sql", "BEGIN; DELETE FROM numbers WHERE n = 6; COMMIT")
    run("delete", "numbers", "--where", "n = 7")
    assert [snapshot.author for snapshot in lake.snapshots(limit=3)] == [getpass.getuser()] * 3
    run("sql", "DELETE FROM numbers WHERE n = 8", "--author", "Ada", "--message", "cleaned")
    latest = lake.snapshots(limit=1)[0]
    assert (latest.author, latest.message) == ("Ada", "cleaned")

    def unknown() -> str:
        raise OSError("no such user")

    monkeypatch.setattr(getpass, "getuser", unknown)
    run("sql", "DELETE FROM numbers WHERE n = 9")
    assert lake.snapshots(limit=1)[0].author == "ducklake-orch"


def test_sql_has_no_message_where_the_lake_requires_one(lake: DuckLake) -> None:
    lake.set_option("require_commit_message", True)
    refused = run("sql", "DELETE FROM numbers WHERE n = 5")
    assert refused.code == 1
    assert "requires a commit message" in refused.err
    assert run("sql", "DELETE FROM numbers WHERE n = 5", "--message", "cleaned").code == 0


def test_sql_prints_data_without_markup(lake: DuckLake) -> None:
    answer = run("sql", "SELECT words, chr(27) || '[31m' AS escape FROM numbers LIMIT 1")
    assert "text [bold]" in answer.out
    assert "\x1b" not in answer.out


def test_sql_comes_from_an_argument_a_file_or_stdin(lake: DuckLake, tmp_path: Path) -> None:
    statement = "SELECT 'é; ;' AS text"
    (tmp_path / "query.sql").write_text(f"-- a comment; with a semicolon\n{statement};\n", encoding="utf-8")
    answers = [run("sql", statement, "--json"), run("sql", "-f", "query.sql", "--json")]
    answers.append(run("sql", "-", "--json", stdin=statement))
    assert [answer.json["commands"][0]["rows"] for answer in answers] == [[{"text": "é; ;"}]] * 3


def test_sql_as_json_is_the_whole_result(lake: DuckLake) -> None:
    result = run("sql", "SELECT n FROM numbers ORDER BY n", "--json", "--max-rows", "2").json
    assert result["commands"][0]["rows"] == [{"n": 5}, {"n": 6}]
    assert result["commands"][0]["truncated"] is True
    assert result["lake"]["latest_snapshot"] == 3


def test_sql_reads_earlier_snapshots(lake: DuckLake) -> None:
    count = "SELECT count(*) AS n FROM numbers"
    assert run("sql", count, "--json", "--snapshot", "1").json["commands"][0]["rows"] == [{"n": 20}]
    assert run("sql", count, "--json", "--as-of", "2999-01-01T00:00:00Z").json["commands"][0]["rows"] == [{"n": 15}]


def test_failed_sql_exits_with_1_and_the_reason(lake: DuckLake) -> None:
    answer = run("sql", "SELECT 1; FROM nowhere; SELECT 2")
    assert answer.code == 1
    assert "skipped" in answer.err
    assert "\nerror: Command 1 failed: Catalog Error: Table with name nowhere does not exist!" in answer.err
    assert "LINE 1" not in answer.err
    as_json = run("sql", "SELECT 1; FROM nowhere; SELECT 2", "--json")
    assert as_json.code == 1
    assert [command["status"] for command in as_json.json["commands"]] == ["ok", "error", "skipped"]


def test_sql_can_continue_after_an_error(lake: DuckLake) -> None:
    answer = run("sql", "FROM nowhere; SELECT 2", "--on-error", "continue", "--json")
    assert answer.code == 1
    assert [command["status"] for command in answer.json["commands"]] == ["error", "ok"]


def test_sql_is_atomic_when_asked(lake: DuckLake) -> None:
    assert run("sql", "--atomic", "DELETE FROM numbers; FROM nowhere").code == 1
    assert run("sql", "SELECT count(*) AS n FROM numbers", "--json").json["commands"][0]["rows"] == [{"n": 15}]


def test_sql_refuses_writes_when_read_only(lake: DuckLake) -> None:
    answer = run("sql", "DELETE FROM numbers", "--read-only")
    assert answer.code == 1
    assert "read-only" in answer.err


def test_sql_respects_its_time_limit(lake: DuckLake) -> None:
    answer = run("sql", "SELECT count(*) FROM range(1_000_000_000_000) t(i) WHERE i % 7 = 3", "--timeout", "200ms")
    assert answer.code == 1
    assert "time limit of 0.2 s" in answer.err


def test_sql_keeps_the_retention_floors_unless_forced(lake: DuckLake) -> None:
    expire = "CALL ducklake_expire_snapshots('lake', older_than => now())"
    assert "must keep everything younger" in run("sql", expire).err
    assert run("sql", expire, "--force").code == 0


def test_sql_refuses_a_primary_key_with_a_remedy(lake: DuckLake) -> None:
    answer = run("sql", "CREATE TABLE t (id INTEGER PRIMARY KEY)")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 4  # the command, the error, the remedy and what explains it
    assert "merge" in answer.err
