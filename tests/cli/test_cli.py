"""The command line: output, exit codes, one line per error, and no secrets."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ducklake_orch import DuckLake
from ducklake_orch.catalog.verbs import merge_request, write_request
from ducklake_orch.cli import completion
from ducklake_orch.cli.program import app
from ducklake_orch.config import maintenance
from tests.support.command_line import REPOSITORY, SECRET, run, run_process

COMMANDS = [
    "doctor",
    "init",
    "preview",
    "sql",
    "write",
    "add-files",
    "delete",
    "tables",
    "files",
    "changes",
    "rollback",
    "snapshots",
    "stages",
    "diff",
    "publish",
    "discard",
    "options",
    "fsck",
    "index",
    "config-schema",
    "explain",
    "demo",
]


# --- output of the commands --------------------------------------------------------------------------------------


def test_no_command_shows_the_help() -> None:
    answer = run()
    assert answer.code == 0
    assert all(command in answer.out for command in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_and_a_json_option(command: str) -> None:
    answer = run(command, "--help")
    assert answer.code == 0
    assert "--json" in answer.out


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("ducklake-orch sn", "snapshots"),
        ("ducklake-orch sql --at", "--atomic"),
        ("ducklake-orch write t --mode me", "merge"),
        ("ducklake-orch maintain --operation fl", "flush"),
        ("ducklake-orch explain lake-l", "lake-locked"),
    ],
)
def test_a_shell_completes_commands_options_and_their_values(words: str, completed: str) -> None:
    env = {"_DUCKLAKE_ORCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    assert CliRunner().invoke(app, [], env=env, prog_name="ducklake-orch").stdout.split() == [completed]


def test_completed_values_are_those_that_commands_take() -> None:
    assert completion.MODES == write_request.MODES
    assert completion.STRATEGIES == merge_request.STRATEGIES
    assert completion.OPERATIONS == maintenance.OPERATIONS


def test_help_loads_no_engine() -> None:
    code = (
        "import sys, ducklake_orch.cli.program;"
        "print([m for m in ('duckdb', 'pyarrow', 'pandas', 'pyspark', 'sqlglot') if m in sys.modules])"
    )
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=True)
    assert completed.stdout.strip() == "[]"


def test_tables_lists_all_tables(lake: DuckLake) -> None:
    answer = run("tables")
    assert answer.code == 0
    assert "main.numbers" in answer.out
    assert "some numbers" in answer.out
    (table,) = run("tables", "--json").json
    assert (table["schema"], table["table"], table["file_count"], table["rows"]) == ("main", "numbers", 1, 15)
    assert table["last_write"] == run("snapshots", "--json").json[0]["snapshot_time"]


def test_tables_lists_an_earlier_snapshot(lake: DuckLake) -> None:
    assert run("tables", "--snapshot", "0", "--json").json == []
    assert run("tables", "--snapshot", "1", "--json").json[0]["rows"] == 20
    assert run("tables", "--snapshot", "0").out == "There are no tables.\n"


def test_files_lists_the_files_of_a_table(lake: DuckLake) -> None:
    lake.execute(
        [
            "CREATE TABLE parts (n INTEGER, p VARCHAR)",
            "ALTER TABLE parts SET PARTITIONED BY (p)",
            "INSERT INTO parts SELECT range, ['a', '[red]', NULL][1 + range % 3] FROM range(60)",
        ]
    ).raise_for_error()
    answer = run("files", "parts")
    assert answer.code == 0
    assert "p=[red]" in answer.out
    assert "p=NULL" in answer.out
    (file,) = run("files", "main.parts", "--where", "p = 'a'", "--json").json
    assert (file["rows"], file["deletes"], file["partition"]) == (20, 0, {"p": "a"})
    assert run("files", "parts", "--where", "p = 'z'").out == "There are no files.\n"
    assert run("files", "numbers", "--snapshot", "1", "--json").json[0]["deletes"] == 0
    assert run("files", "numbers", "--json").json[0]["deletes"] == 5


def test_delete_counts_the_rows_first(lake: DuckLake) -> None:
    count = run("delete", "numbers", "--where", "n = 7", "--dry-run")
    assert (count.code, count.out) == (0, "1 rows of main.numbers would be deleted\n")
    assert run("delete", "numbers", "--where", "n = 7", "--json").json["rows_removed"] == 1
    assert run("delete", "numbers", "--where", "n = 7").out.startswith("delete to main.numbers: 0 rows in, 0 out")
    assert run("delete", "numbers", "--where", "j = 7").code == 1


def test_files_refuses_a_missing_table_or_column(lake: DuckLake) -> None:
    answer = run("files", "number")
    assert answer.code == 1
    assert "`main.numbers`" in answer.err
    answer = run("files", "numbers", "--where", "m = 1")
    assert answer.code == 1
    assert "there is no column `m`" in answer.err


def test_changes_lists_the_given_snapshots(lake: DuckLake) -> None:
    answer = run("changes", "numbers", "--from", "2", "--limit", "2", "--json").json
    assert (answer["total"], len(answer["changes"])) == (5, 2)
    assert answer["changes"][0]["change_type"] == "delete"
    assert answer["changes"][0]["words"] == "text [bold]"
    shown = run("changes", "numbers", "--to", "1", "--limit", "3").out
    assert "insert" in shown
    assert "17 more" in shown
    assert run("changes", "numbers", "--from", "4").out == "There are no changes.\n"  # the next snapshot
    refused = run("changes", "numbers", "--from", "99")
    assert refused.code == 1
    assert refused.err.startswith("error: There is no snapshot 99: the snapshots are 0 to 3.")
    assert run("changes", "numbers", "--from", "2", "--to", "1").code == 2


def test_rollback_shows_its_effect_first(lake: DuckLake) -> None:
    planned = run("rollback", "numbers", "--to", "1", "--dry-run", "--json").json
    assert (planned["rows_back"], planned["rows_gone"], planned["dry_run"]) == (5, 0, True)
    assert lake.table("numbers").count() == 15
    answer = run("rollback", "numbers", "--to", "1", "--message", "undo")
    assert "5 rows restored" in answer.out
    assert lake.table("numbers").count() == 20
    assert lake.snapshots(1)[0].message == "undo"
    refused = run("rollback", "numbers", "--to", "99")
    assert refused.code == 1
    assert "no snapshot 99" in refused.err


def test_snapshots_lists_the_newest_first_up_to_a_limit(lake: DuckLake) -> None:
    assert [snapshot["snapshot_id"] for snapshot in run("snapshots", "--json").json] == [3, 2, 1, 0]
    assert [snapshot["snapshot_id"] for snapshot in run("snapshots", "--json", "--limit", "2").json] == [3, 2]
    assert 'created_table:"main"."numbers"' in run("snapshots").out


def test_options_lists_all_options(lake: DuckLake) -> None:
    lake.set_option("parquet_compression", "zstd")
    listed = {option["name"]: option["value"] for option in run("options", "--json").json}
    assert listed["parquet_compression"] == "zstd"
    assert "parquet_compression" in run("options").out


def test_preview_shows_the_sql_without_connecting() -> None:
    arguments = ("--catalog", f"postgresql://u:{SECRET}@127.0.0.1:1/db", "--storage", "s3://bucket/prefix")
    answer = run("preview", *arguments)
    assert answer.code == 0
    assert 'USE "lake";' in answer.out
    as_json = run("preview", *arguments, "--json").json
    assert as_json["sql"] in answer.out
    assert as_json["required_extensions"] == ["ducklake", "postgres_scanner", "httpfs"]
    assert SECRET not in answer.out + as_json["sql"]


def test_config_schema_prints_a_json_schema() -> None:
    schema = run("config-schema").json
    assert schema["$schema"].endswith("2020-12/schema")
    assert schema == run("config-schema", "--json").json


def test_version_prints_the_version() -> None:
    assert run("--version").out.startswith("ducklake-orch ")


# --- selection of the lake ---------------------------------------------------------------------------------------


def test_a_lake_is_named_by_its_urls(lake: DuckLake, tmp_path: Path) -> None:
    urls = ("--catalog", f"sqlite:///{tmp_path}/lake.sqlite", "--storage", str(tmp_path / "lake.files"))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)
    assert len(run("tables", *urls, "--json").json) == 1
    assert run("sql", "SELECT current_database() AS name", *urls, "--lake", "mine", "--json").json["commands"][0][
        "rows"
    ] == [{"name": "mine"}]


def test_a_lake_is_named_by_a_file_and_a_profile(lake: DuckLake, tmp_path: Path) -> None:
    config_file = tmp_path / "other.toml"
    config_file.write_text(
        '[lakes.a]\ncatalog = "sqlite:///nowhere.sqlite"\n'
        '[profiles.dev.lakes.a]\ncatalog = "sqlite:///lake.sqlite"\nstorage = "./lake.files"\n'
    )
    assert run("tables", "--config", str(config_file)).code == 1
    assert len(run("tables", "--config", str(config_file), "--profile", "dev", "--json").json) == 1


def test_a_lake_is_named_by_the_environment(lake: DuckLake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DUCKLAKE_CATALOG", f"duckdb:///{tmp_path}/not-there.ducklake")
    assert "not-there.ducklake does not exist" in run("tables").err
    assert run("tables", "--config", "ducklake.toml", "--catalog", "sqlite:///lake.sqlite").code == 0


def test_the_error_without_a_lake_says_how_to_name_one() -> None:
    answer = run("tables")
    assert answer.code == 2
    assert "--catalog" in answer.err


# --- errors ------------------------------------------------------------------------------------------------------

MISTAKES = {
    "an unknown scheme": (["tables", "--catalog", f"oracle://u:{SECRET}@h/db"], 2, "oracle"),
    "a missing file": (["tables", "--config", "nowhere.toml"], 2, "nowhere.toml"),
    "an unknown key": (["tables", "--config", "unknown.toml"], 2, "`catalog`"),
    "a missing variable": (["tables", "--config", "variable.toml"], 2, "NOT_SET_ANYWHERE"),
    "an unknown lake": (["tables", "--config", "good.toml", "--lake", "nope"], 2, "nope"),
    "a lake that is not there": (["tables", "--config", "good.toml"], 1, "--create"),
    "a dead server": (["tables", "--catalog", f"postgresql://u:{SECRET}@127.0.0.1:1/db"], 1, "127.0.0.1:1"),
    "a time without zone": (["tables", "--config", "good.toml", "--as-of", "2025-01-01"], 2, "zone"),
    "no time": (["tables", "--config", "good.toml", "--as-of", "yesterday"], 2, "yesterday"),
    "an unknown option": (["tables", "--catalgo", f"postgresql://u:{SECRET}@h/db"], 2, "--catalog"),
    "an argument too many": (["tables", f"postgresql://u:{SECRET}@h/db"], 2, "unexpected"),
    "an unknown command": (["no-such-command"], 2, "no-such-command"),
    "no statement": (["sql", "--config", "good.toml"], 2, "-f FILE"),
    "a missing script": (["sql", "--config", "good.toml", "-f", "nowhere.sql"], 2, "nowhere.sql"),
    "an unusable folder for init": (["init", "unknown.toml/ducklake.toml"], 2, "cannot be written"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_error_is_one_line_with_a_remedy(mistake: str, tmp_path: Path) -> None:
    args, code, mentioned = MISTAKES[mistake]
    (tmp_path / "good.toml").write_text('[lakes.a]\ncatalog = "sqlite:///nowhere.sqlite"\n')
    (tmp_path / "unknown.toml").write_text(f'[lakes.a]\ncatalgo = "postgresql://u:{SECRET}@h/db"\n')
    (tmp_path / "variable.toml").write_text('[lakes.a]\ncatalog = "sqlite:///${NOT_SET_ANYWHERE}"\n')

    human = run(*args)
    assert human.code == code
    assert human.out == ""
    assert human.err.startswith("error: ")
    assert len(human.err.splitlines()) <= 3
    assert mentioned in human.err

    program = run(*args, "--json")
    assert program.code == code
    assert program.json["error"].keys() == {"type", "code", "family", "message", "remedy", "retryable", "docs"}
    assert human.err.splitlines()[-1].strip() == f"ducklake-orch explain {program.json['error']['code']}"
    assert SECRET not in human.err + program.out + program.err
    assert "Traceback" not in human.err + program.err
    assert not (tmp_path / "nowhere.sqlite").exists()


@pytest.mark.parametrize(
    "arguments", [("sql", "FROM nowhere"), ("tables", "--config", "nowhere.toml"), ("no-such-command",)]
)
def test_the_process_exits_with_the_code_and_no_traceback(arguments: tuple[str, ...], lake: DuckLake) -> None:
    answer = run_process(*arguments)
    assert answer.code == (1 if arguments[0] == "sql" else 2)
    assert any(line.startswith("error: ") for line in answer.err.splitlines())
    assert "Traceback" not in answer.err


def test_debug_shows_a_traceback_without_secrets() -> None:
    answer = run("tables", "--debug", "--catalog", f"postgresql://u:{SECRET}@127.0.0.1:1/db")
    assert answer.code == 1
    assert "Traceback" in answer.err
    assert SECRET not in answer.err


def test_an_unexpected_error_is_one_scrubbed_line(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(self: DuckLake, **_: Any) -> None:
        raise RuntimeError(f"connect to postgresql://u:{SECRET}@h/db")

    monkeypatch.setattr(DuckLake, "tables", explode)
    answer = run("tables")
    assert answer.code == 1
    assert answer.err.startswith("error: RuntimeError: connect to postgresql://u:***@h/db")
    assert "--debug" in answer.err


def test_a_warning_is_one_line(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_OPTIONS__PARQUET_COMPRESSION", "zstd")
    answer = run("tables", "--json")
    assert answer.code == 0
    assert len(answer.json) == 1
    assert answer.err.startswith("warning: Lake `lake` does not have its configured options: parquet_compression")
    assert len(answer.err.splitlines()) == 1


def test_ctrl_c_ends_a_running_statement_with_130(lake: DuckLake, tmp_path: Path) -> None:
    started = tmp_path / "started.csv"
    script = f"COPY (SELECT 1) TO '{started}'; SELECT count(*) FROM range(1_000_000_000_000) t(i) WHERE i % 7 = 3"
    command = [sys.executable, "-m", "ducklake_orch.cli", "sql", script]
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    process = subprocess.Popen(
        command,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background makes them ignore Ctrl-C, and child processes inherit this.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        while not started.exists():
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 130
    assert "Traceback" not in err
    assert run("sql", "DELETE FROM numbers").code == 0  # no lock was left behind
