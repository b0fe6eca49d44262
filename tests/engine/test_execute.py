"""`execute` splits scripts like the engine, and returns one structured result per command."""

import datetime as dt
import json
import subprocess
import sys
import threading
from decimal import Decimal
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from ducklake_orch.engine.scripts import split
from ducklake_orch.engine.session import open_session


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"i": "int", "s": "varchar"})
    return lake


SCRIPT = """
-- a comment; with a semicolon
INSERT INTO t VALUES (1, 'a;b'), (2, 'it''s');  /* another; one */
INSERT INTO t SELECT 3, $$dollar ; quote$$;
INSERT INTO t SELECT 4, $tag$ ; $$ ; $tag$;
SELECT s AS "a;b" FROM t ORDER BY i
"""


def test_scripts_are_split_where_the_engine_splits_them(lake: DuckLake) -> None:
    result = lake.execute(SCRIPT).raise_for_error()
    assert [c.kind for c in result.commands] == ["dml", "dml", "dml", "query"]
    assert [row["a;b"] for row in result.rows] == ["a;b", "it's", "dollar ; quote", " ; $$ ; "]


def test_a_failed_result_is_false_and_its_rows_raise_the_error_of_the_command(lake: DuckLake) -> None:
    good = lake.execute("FROM t")
    assert good
    assert good.rows == []
    bad = lake.execute(["SELECT 1 AS one", "FROM no_such_table", "SELECT 2"])
    assert not bad
    with pytest.raises(errors.ObjectNotFoundError, match="no_such_table"):
        _ = bad.rows
    bad = lake.execute(["SELECT 1 AS one", "FROM no_such_table", "SELECT 2"], on_error="continue")
    assert not bad
    with pytest.raises(errors.ObjectNotFoundError, match="no_such_table"):
        _ = bad.rows


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT 1", "query"),
        ("WITH x AS (SELECT 1) SELECT * FROM x", "query"),
        ("FROM t", "query"),
        ("VALUES (1)", "query"),
        ("DESCRIBE t", "query"),
        ("EXPLAIN SELECT 1", "query"),
        ("COPY t TO 'x.parquet'", "query"),
        ("COPY (SELECT * FROM t) TO 'x.parquet'", "query"),
        ("COPY t FROM 'x.parquet'", "dml"),
        ("EXPLAIN ANALYZE INSERT INTO t VALUES (1)", "dml"),
        ("/* x */ EXPLAIN (ANALYZE) INSERT INTO t VALUES (1)", "dml"),
        ("FORCE CHECKPOINT", "maintenance"),
        ("INSERT INTO t VALUES (1)", "dml"),
        ("UPDATE t SET i = 1", "dml"),
        ("DELETE FROM t", "dml"),
        ("TRUNCATE t", "dml"),
        ("MERGE INTO t USING u ON t.i = u.i WHEN MATCHED THEN DELETE", "dml"),
        ("CALL ducklake_add_data_files('lake', 't', 'x')", "dml"),
        ("CREATE TABLE x (i INT)", "ddl"),
        ("CREATE OR REPLACE VIEW v AS SELECT 'expire_snapshots('", "ddl"),
        ("ALTER TABLE t ADD COLUMN j INT", "ddl"),
        ("COMMENT ON TABLE t IS 'x'", "ddl"),
        ("DROP TABLE t", "ddl"),
        ("CALL ducklake_expire_snapshots('lake')", "maintenance"),
        ("SELECT * FROM ducklake_flush_inlined_data('lake')", "maintenance"),
        ("CALL lake.merge_adjacent_files()", "maintenance"),
        ("CALL \"ducklake_cleanup_old_files\"('lake')", "maintenance"),
        ("CHECKPOINT lake", "maintenance"),
        ("-- expire\nCHECKPOINT", "maintenance"),
        ("CALL lake.set_option('a', 1)", "utility"),
        ("SET threads = 1", "utility"),
        ("ATTACH 'x' AS y", "utility"),
        ("BEGIN", "utility"),
    ],
)
def test_every_command_is_classified(lake: DuckLake, sql: str, kind: str) -> None:
    with lake.connect() as con:
        (command,) = split(con.unwrap(), sql)  # type: ignore[attr-defined]
    assert command.kind == kind


def test_set_option_is_classified_as_a_write(lake: DuckLake) -> None:
    with lake.connect() as con:
        (command,) = split(con.unwrap(), "CALL lake.set_option('auto_compact', true)")  # type: ignore[attr-defined]
    assert command.writes


def test_the_result_dict_has_a_stable_shape(lake: DuckLake) -> None:
    result = lake.execute(["INSERT INTO t VALUES (1, 'a'), (2, 'b')", "SELECT * FROM t", "SELEC", "SELECT 1"])
    document = result.to_dict()
    assert json.loads(json.dumps(document)) == document
    assert set(document) == {"status", "command_count", "executed", "duration_s", "commands", "lake"}
    assert (document["status"], document["command_count"], document["executed"]) == ("error", 4, 3)
    insert, select, wrong, after = document["commands"]
    assert set(insert) == {
        "index",
        "sql",
        "kind",
        "status",
        "columns",
        "rows",
        "row_count",
        "affected_rows",
        "truncated",
        "duration_s",
        "snapshot_before",
        "snapshot_after",
        "error",
    }
    assert (insert["affected_rows"], insert["snapshot_before"], insert["snapshot_after"]) == (2, 1, 2)
    assert select["columns"] == [{"name": "i", "type": "INTEGER"}, {"name": "s", "type": "VARCHAR"}]
    assert select["rows"] == [{"i": 1, "s": "a"}, {"i": 2, "s": "b"}]
    assert (select["snapshot_before"], select["snapshot_after"]) == (2, 2)
    assert set(wrong["error"]) == {"type", "code", "family", "message", "remedy", "retryable", "docs"}
    assert (after["status"], after["error"]) == ("skipped", None)
    latest = document["lake"].pop("latest")
    assert (latest["snapshot_id"], latest["changes"]) == (2, ["inlined_insert:1"])
    assert document["lake"] == {
        "name": "lake",
        "catalog": lake.config.catalog.to_url(),
        "snapshot_count": 3,
        "latest_snapshot": 2,
        "table_count": 1,
        "tables": ["main.t"],
    }
    with pytest.raises(errors.StatementError, match="SELEC"):
        result.raise_for_error()


def test_values_keep_their_types_in_python_and_are_valid_json(lake: DuckLake) -> None:
    sql = """
        SELECT 1.10::DECIMAL(10,2) AS d, DATE '2024-01-31' AS day, 'inf'::DOUBLE AS inf, 'ab'::BLOB AS b,
               '2024-01-01 12:00:00+02'::TIMESTAMPTZ AS tz, [1, NULL] AS l, {'a': 1} AS s, 2::HUGEINT ** 100 AS h,
               1 AS x, 2 AS x, NULL AS n, INTERVAL 1 DAY AS i, MAP {'k': 1} AS m, gen_random_uuid() AS u
    """
    result = lake.execute(sql).raise_for_error()
    row = result.rows[0]
    assert (row["d"], row["day"]) == (Decimal("1.10"), dt.date(2024, 1, 31))
    assert (row["x"], row["x_1"], row["n"]) == (1, 2, None)
    shown = result.to_dict()["commands"][0]["rows"][0]
    assert (shown["d"], shown["day"], shown["inf"], shown["b"]) == ("1.10", "2024-01-31", "inf", "6162")
    assert shown["tz"] == "2024-01-01T10:00:00+00:00"
    assert (shown["l"], shown["s"], shown["m"]) == ([1, None], {"a": 1}, {"k": 1})
    json.dumps(shown, allow_nan=False)


def test_rows_are_truncated_at_max_rows_and_the_result_says_so(lake: DuckLake) -> None:
    (command,) = lake.execute("FROM range(100)", max_rows=10).commands
    assert (command.row_count, command.truncated, len(command.rows)) == (10, True, 10)
    (command,) = lake.execute("FROM range(10)", max_rows=10).commands
    assert (command.row_count, command.truncated) == (10, False)


def test_parameters_are_bound_by_position_and_by_name(lake: DuckLake) -> None:
    lake.execute("INSERT INTO t VALUES (?, ?)", params=[1, "it's; --"]).raise_for_error()
    named: dict[str, Any] = {"i": 2, "s": "b"}
    result = lake.execute(["INSERT INTO t VALUES ($i, $s)", "SELECT s FROM t WHERE i < $i"], params=named)
    assert result.raise_for_error().rows == [{"s": "it's; --"}]


def test_the_first_error_stops_unless_told_to_continue(lake: DuckLake) -> None:
    commands = ["SELECT 1", "SELECT * FROM nope", "SELECT 2"]
    assert [c.status for c in lake.execute(commands).commands] == ["ok", "error", "skipped"]
    assert [c.status for c in lake.execute(commands, on_error="continue").commands] == ["ok", "error", "ok"]


def test_an_atomic_script_is_one_snapshot_or_none(lake: DuckLake) -> None:
    before = lake.snapshots(1)[0].snapshot_id
    failing = ["DELETE FROM t", "INSERT INTO t VALUES (1, 'a')", "INSERT INTO nope VALUES (1)"]
    failed = lake.execute(failing, atomic=True)
    assert [c.status for c in failed.commands] == ["skipped", "skipped", "error"]
    assert lake.snapshots(1)[0].snapshot_id == before
    working = ["CREATE TABLE u (i INT)", "INSERT INTO u VALUES (1)", "INSERT INTO t VALUES (9, '')"]
    atomic_result = lake.execute(working, atomic=True)
    assert {c.snapshot_after for c in atomic_result.raise_for_error().commands} == {before + 1}
    with pytest.raises(errors.ConfigError, match="opens the transaction itself"):
        lake.execute(["BEGIN", "COMMIT"], atomic=True)


def test_a_script_may_open_its_own_transactions(lake: DuckLake) -> None:
    before = lake.snapshots(1)[0].snapshot_id
    script = "BEGIN; INSERT INTO t VALUES (1, ''); INSERT INTO t VALUES (2, ''); COMMIT; SELECT count(*) AS n FROM t"
    assert lake.execute(script).raise_for_error().rows == [{"n": 2}]
    assert lake.snapshots(1)[0].snapshot_id == before + 1
    assert lake.execute("BEGIN; DELETE FROM t; ROLLBACK").status == "ok"
    left_open = lake.execute("BEGIN; DELETE FROM t")
    assert "left their transaction open" in str(left_open.commands[-1].error)
    failing = lake.execute("BEGIN; DELETE FROM t; SELECT * FROM nope; COMMIT")
    assert [c.status for c in failing.commands] == [
        "skipped",
        "skipped",
        "error",
        "skipped",
    ]  # the transaction was rolled back
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 2}]


def test_an_error_rolls_back_its_transaction_and_later_commands_run(lake: DuckLake) -> None:
    script = """BEGIN; INSERT INTO t VALUES (1, ''); SELECT * FROM nope; INSERT INTO t VALUES (2, ''); COMMIT;
        INSERT INTO t VALUES (3, '')"""
    result = lake.execute(script, on_error="continue")
    statuses = ["skipped", "skipped", "error", "skipped", "skipped", "ok"]
    assert [c.status for c in result.commands] == statuses
    assert lake.execute("SELECT i FROM t").rows == [{"i": 3}]


def test_retention_floors_apply_inside_transactions(lake: DuckLake) -> None:
    result = lake.execute("BEGIN; CALL ducklake_expire_snapshots('lake', older_than => now()); COMMIT")
    assert isinstance(result.commands[1].error, errors.MaintenanceFloorError)


def test_a_value_that_python_cannot_represent_fails_only_its_command(lake: DuckLake) -> None:
    result = lake.execute(["SELECT INTERVAL 100000000 YEARS", "SELECT 1"])
    assert isinstance(result.commands[0].error, errors.StatementError)


def test_the_time_limit_includes_the_wait_for_the_lock(lake: DuckLake) -> None:
    with open_session(lake.config) as session, session.queue("a long merge"):
        results: list[Any] = []
        thread = threading.Thread(target=lambda: results.append(lake.execute("DELETE FROM t", timeout=0.3)))
        thread.start()
        thread.join(timeout=30)
    assert isinstance(results[0].commands[0].error, errors.LakeLockedError)
    assert results[0].duration_s < 10


def test_writes_run_on_all_threads_though_waits_and_commits_use_one(lake: DuckLake) -> None:
    three = DuckLake(lake.config.model_copy(update={"threads": 3}))
    threads = "current_setting('threads')"
    insert = f"INSERT INTO t (i) SELECT {threads}"
    three.execute([insert, "INSERT INTO missing VALUES (1)", f"SELECT {threads}"], on_error="continue")
    three.execute([insert, insert], atomic=True).raise_for_error()
    assert three.execute(["BEGIN", insert, "COMMIT", f"SELECT {threads} AS n"]).rows == [{"n": 3}]
    assert three.execute(f"SELECT {threads} AS n").rows == [{"n": 3}]
    assert three.execute("SELECT DISTINCT i FROM t").rows == [{"i": 3}]


def test_a_statement_that_changes_no_row_creates_no_snapshot(lake: DuckLake) -> None:
    (command,) = lake.execute("DELETE FROM t WHERE i = 12345").raise_for_error().commands
    assert command.snapshot_after == command.snapshot_before == lake.snapshots(1)[0].snapshot_id


def test_a_snapshot_records_author_message_and_extra(lake: DuckLake) -> None:
    info = CommitInfo(author="etl", message="daily load", extra={"run": "abc"})
    lake.execute("INSERT INTO t VALUES (1, '')", commit=info).raise_for_error()
    newest = lake.snapshots(1)[0]
    assert (newest.author, newest.message, newest.extra["run"]) == ("etl", "daily load", "abc")
    assert len(newest.extra["ducklake_orch"]["write_id"]) == 32
    script = "BEGIN; CALL lake.set_commit_message('me', 'mine'); INSERT INTO t VALUES (2, ''); COMMIT"
    lake.execute(script).raise_for_error()
    assert (lake.snapshots(1)[0].author, lake.snapshots(1)[0].message) == ("me", "mine")


def test_a_time_limit_interrupts_the_statement(lake: DuckLake) -> None:
    slow = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(100000) b"
    result = lake.execute(["SELECT 1", slow, "SELECT 2"], timeout=0.5, on_error="continue")
    assert [c.status for c in result.commands] == ["ok", "error", "skipped"]
    assert isinstance(result.commands[1].error, errors.StatementTimeoutError)
    assert result.duration_s < 20


@pytest.mark.parametrize(
    "wrong",
    [{"as_of": "yesterday"}, {"snapshot": "1"}, {"timeout": "soon"}, {"max_rows": -1}, {"on_error": "panic"}],
)
def test_an_invalid_argument_is_a_config_error(lake: DuckLake, wrong: dict[str, Any]) -> None:
    with pytest.raises(errors.ConfigError, match=next(iter(wrong))):
        lake.execute("SELECT 1", **wrong)


def test_times_and_durations_may_be_text_and_max_rows_may_be_none(lake: DuckLake) -> None:
    result = lake.execute("FROM range(1500)", as_of="2999-01-01T00:00:00Z", timeout="1m", max_rows=None)
    assert (result.commands[0].row_count, result.commands[0].truncated) == (1500, False)


def test_an_atomic_failure_names_its_command(lake: DuckLake) -> None:
    result = lake.execute(["INSERT INTO t VALUES (1, '')", "SELECT * FROM nope"], atomic=True)
    assert str(result.commands[1].error).startswith("Command 1 failed")


def test_a_script_without_commands_is_an_error(lake: DuckLake) -> None:
    with pytest.raises(errors.ConfigError, match="no command"):
        lake.execute("  -- nothing here")


FLOORED = [
    "CALL ducklake_expire_snapshots('lake', older_than => now())",
    "CALL ducklake_expire_snapshots('lake', older_than => now() - INTERVAL 59 MINUTE)",
    "SELECT * FROM ducklake_expire_snapshots('lake', versions => [0])",
    "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)",
    "CALL ducklake_cleanup_old_files('lake', older_than => now() - INTERVAL 1 MINUTE)",
    "CALL ducklake_delete_orphaned_files('lake', older_than => now() - INTERVAL 23 HOUR)",
    "CALL DUCKLAKE_DELETE_ORPHANED_FILES('lake', cleanup_all := true)",
]


@pytest.mark.parametrize("sql", FLOORED)
def test_maintenance_in_sql_below_the_retention_floors_needs_force(lake: DuckLake, sql: str) -> None:
    refused = lake.execute(sql)
    assert isinstance(refused.commands[0].error, errors.MaintenanceFloorError)
    assert lake.execute(sql, force=True).status == "ok"


@pytest.mark.parametrize(
    "sql",
    [
        "CALL ducklake_expire_snapshots('lake', older_than => now() - INTERVAL 2 HOUR)",
        "CALL ducklake_expire_snapshots('lake', older_than => now(), dry_run => true)",
        "CALL ducklake_cleanup_old_files('lake')",
        "CALL ducklake_delete_orphaned_files('lake', older_than => now() - INTERVAL 2 DAY)",
        "CALL ducklake_merge_adjacent_files('lake')",
        "CHECKPOINT",
    ],
)
def test_maintenance_in_sql_above_the_retention_floors_runs(lake: DuckLake, sql: str) -> None:
    lake.execute(sql).raise_for_error()


def test_a_persisted_option_below_the_floor_is_refused(lake: DuckLake) -> None:
    lake.set_option("delete_older_than", "1 minute")
    refused = lake.execute("CHECKPOINT")
    assert isinstance(refused.commands[0].error, errors.MaintenanceFloorError)


def test_use_selects_another_lake_in_the_same_catalog_file(tmp_path: Path) -> None:
    file = tmp_path / "ducklake.toml"
    file.write_text(
        f"""
        [lakes.a]
        catalog = "sqlite:///{tmp_path}/a.sqlite"
        storage = "{tmp_path}/a"
        create_if_missing = true
        [lakes.b]
        catalog = "sqlite:///{tmp_path}/b.sqlite"
        storage = "{tmp_path}/b"
        create_if_missing = true
        """
    )
    lake = DuckLake.from_toml(file, lake="a")
    lake.execute("CREATE TABLE only_in_b (i INT)", use="b").raise_for_error()
    assert not lake.exists("only_in_b")
    assert DuckLake.from_toml(file, lake="b").exists("only_in_b")
    with pytest.raises(errors.ConfigError, match="was not read from a configuration file"):
        DuckLake.local(tmp_path / "x").execute("SELECT 1", use="b")


def test_a_statement_that_the_parser_expands_stays_one_command(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute("CREATE TABLE t (i INT, v INT); INSERT INTO t VALUES (1, 2)").raise_for_error()
    result = lake.execute("SELECT 'é;'; PIVOT t ON i USING sum(v); FROM t").raise_for_error()
    assert [command.sql for command in result.commands] == ["SELECT 'é;'", "PIVOT t ON i USING sum(v)", "FROM t"]
    assert result.commands[1].rows == [{"1": 2}]
    # The engine cannot run this statement, so its status must be an error.
    failed = lake.execute(["ALTER TABLE t ADD COLUMN b BOOLEAN DEFAULT (1 = 1)", "FROM t"])
    assert [command.status for command in failed.commands] == ["error", "skipped"]
    assert "non-literal default" in str(failed.commands[0].error)
    assert [column.name for column in lake.table("t").schema()] == ["i", "v"]


def test_functions_of_the_extension_describe_snapshots_tables_and_changes(lake: DuckLake) -> None:
    lake.execute(["INSERT INTO t VALUES (1, 'a'), (2, 'b')", "DELETE FROM t WHERE i = 1"]).raise_for_error()
    result = lake.execute(
        [
            "SELECT snapshot_id FROM ducklake_snapshots('lake') ORDER BY snapshot_id DESC LIMIT 2",
            "SELECT table_name, file_count FROM ducklake_table_info('lake')",
            "SELECT change_type, i FROM ducklake_table_changes('lake', 'main', 't', 0, 3) ORDER BY snapshot_id, i",
        ]
    ).raise_for_error()
    snapshots, tables, changes = (command.rows for command in result.commands)
    assert snapshots == [{"snapshot_id": 3}, {"snapshot_id": 2}]
    assert tables == [{"table_name": "t", "file_count": 0}]
    assert [(row["change_type"], row["i"]) for row in changes] == [("insert", 1), ("insert", 2), ("delete", 1)]


def test_a_table_is_read_at_a_version_and_at_a_time(lake: DuckLake) -> None:
    lake.execute(["INSERT INTO t VALUES (1, 'a')", "INSERT INTO t VALUES (2, 'b')"]).raise_for_error()
    first = next(snapshot for snapshot in lake.snapshots() if snapshot.snapshot_id == 2)
    result = lake.execute(
        [
            "SELECT count(*) AS n FROM t",
            "SELECT count(*) AS n FROM t AT (VERSION => 2)",
            f"SELECT i FROM t AT (TIMESTAMP => '{first.snapshot_time.isoformat()}')",
        ]
    ).raise_for_error()
    assert [command.rows for command in result.commands] == [[{"n": 2}], [{"n": 1}], [{"i": 1}]]


def test_a_script_that_creates_its_table_if_it_is_missing_can_run_again(lake: DuckLake) -> None:
    script = """
        CREATE TABLE IF NOT EXISTS sales (id INTEGER, product VARCHAR, amount DECIMAL(10,2), sold TIMESTAMP);
        INSERT INTO sales VALUES (1, 'Widget', 99.99, NOW()), (2, 'Gadget', 149.99, NOW());
        SELECT product, amount FROM sales ORDER BY id;
    """
    assert lake.execute(script).rows == [
        {"product": "Widget", "amount": Decimal("99.99")},
        {"product": "Gadget", "amount": Decimal("149.99")},
    ]
    again = lake.execute(script).raise_for_error()
    assert [(command.row_count, command.affected_rows) for command in again.commands[1:]] == [(0, 2), (4, None)]


def test_macros_are_stored_in_the_lake(lake: DuckLake) -> None:
    lake.execute(
        [
            "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
            "CREATE MACRO twice(x) AS 2 * x",
            "CREATE MACRO up_to(n) AS TABLE SELECT i FROM t WHERE i <= n",
        ]
    ).raise_for_error()
    code = (
        "import sys; from ducklake_orch import DuckLake; print(DuckLake.local(sys.argv[1]).execute(sys.argv[2]).rows)"
    )
    for sql, rows in (("SELECT twice(21) AS n", [{"n": 42}]), ("FROM up_to(1)", [{"i": 1}])):
        file = str(lake.config.catalog.path)  # type: ignore[union-attr]
        other = subprocess.run([sys.executable, "-c", code, file, sql], capture_output=True, text=True, check=True)
        assert other.stdout.strip() == str(rows)


def test_a_table_is_created_from_a_parquet_file_on_a_web_server(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", extensions=["httpfs"], settings={"force_download": True})
    with lake.connect() as con:
        rows = "SELECT 2020 + range % 3 AS year, range::DOUBLE AS pm25 FROM range(30)"
        con.execute(f"COPY ({rows}) TO '{tmp_path}/air.parquet' (FORMAT parquet)")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/air.parquet"
        lake.execute(f"CREATE TABLE air AS SELECT * FROM '{url}'").raise_for_error()
        server.shutdown()
    average = "SELECT year, avg(pm25) AS pm25 FROM air GROUP BY year ORDER BY year DESC LIMIT 1"
    assert lake.execute(average).rows == [{"year": 2022, "pm25": 15.5}]


def test_geometries_may_be_inside_structs_lists_and_maps(lake: DuckLake) -> None:
    point = "'POINT (1 2)'::GEOMETRY"
    result = lake.execute(
        [
            "CREATE TABLE g (s STRUCT(p GEOMETRY), l GEOMETRY[], m MAP(VARCHAR, GEOMETRY))",
            f"INSERT INTO g SELECT {{'p': {point}}}, [{point}], MAP {{'a': {point}}} FROM range(20)",
            "SELECT s.p::VARCHAR AS s, l[1]::VARCHAR AS l, m['a']::VARCHAR AS m FROM g LIMIT 1",
        ]
    )
    assert result.rows == [dict.fromkeys("slm", "POINT (1 2)")]
