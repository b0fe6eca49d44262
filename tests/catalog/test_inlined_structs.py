"""Inlined structs, of which the engine cannot read all on SQLite and PostgreSQL, have the values that were inserted."""

from collections.abc import Sequence
from contextlib import ExitStack, closing
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.airflow.dbapi import HookConnection
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import StatementError
from ducklake_orch.results import CommitInfo
from tests.support.backends import POSTGRES, SQLITE, catalogs, on_sqlite

# A type, and values of it.
STRUCTS = {
    "STRUCT(d DATE, t TIME, s TIMESTAMP, z TIMESTAMPTZ)": [
        "{'d': '2024-01-01', 't': '01:02:03.5', 's': '2024-01-01 01:02:03', 'z': '2024-01-01 00:00:00+05'}",
        "{'d': 'infinity', 't': NULL, 's': '-infinity', 'z': 'infinity'}",
        "{'d': NULL, 't': NULL, 's': NULL, 'z': NULL}",
        "NULL",
    ],
    "STRUCT(v VARCHAR, w VARCHAR)": [
        r"""{'v': 'it''s \ "q" \n, ', 'w': '\'}""",
        "{'v': '', 'w': 'NULL'}",
        "{'v': ' x ', 'w': ''', ''w'': ''y'}",
        "{'v': 'CAST(''nan'' AS VARCHAR)', 'w': 'CAST('''' AS DATE)'}",
        "{'v': '{[(', 'w': 'é\n'}",
    ],
    "STRUCT(f FLOAT, d DOUBLE, n DECIMAL(30,2), b BOOLEAN)": [
        "{'f': 'nan', 'd': '-inf', 'n': -12345678901234567890.5, 'b': true}",
        "{'f': '-0.0', 'd': 1e300, 'n': NULL, 'b': NULL}",
    ],
    "STRUCT(u UUID, b BLOB, j JSON)": [
        r"""{'u': '8a0e3b1c-3b1c-4b1c-8b1c-8a0e3b1c3b1c', 'b': '\xAA\x00\x5C\x27', 'j': '{"a": "it''s"}'}"""
    ],
    'STRUCT(s STRUCT(d DATE, "it\'s" VARCHAR), l VARCHAR[], m MAP(VARCHAR, DATE), r STRUCT(x DATE)[])': [
        r"""{'s': {'d': '2024-01-01', 'it''s': 'x'}, 'l': ['it''s', '\', '"', ', }', NULL],
             'm': MAP {'k''{': '2024-01-01'}, 'r': [{'x': '2024-01-01'}]}""",
        "{'s': NULL, 'l': [], 'm': NULL, 'r': [NULL]}",
    ],
}


each_catalog = catalogs(quick=[SQLITE, POSTGRES], sql_writes=True)
DAY = "{'d': '2024-01-01', 'v': 'it''s'}"
CREATE = "CREATE TABLE t (i INTEGER, s STRUCT(d DATE, v VARCHAR))"


def tables_of_structs() -> list[str]:
    """Return the statements that make a table with each kind of structs: `t0`, `t1` and so on."""
    statements = []
    for number, kind in enumerate(STRUCTS):
        statements += [f"CREATE TABLE t{number} (i INTEGER, s {kind})", f"INSERT INTO t{number} VALUES {values(kind)}"]
    return statements


def values(kind: str) -> str:
    return ", ".join(f"({i}, CAST({value} AS {kind}))" for i, value in enumerate(STRUCTS[kind]))


def as_another_program(lake: DuckLake, statements: Sequence[str]) -> None:
    """Run statements on a connection of the extension alone."""
    with open_session(lake.config) as session:
        for statement in statements:
            session.con.execute(statement)


def texts(con: Any, source: str) -> list[Any]:
    return [row[0] for row in con.execute(f"SELECT CAST(s AS VARCHAR) FROM {source} ORDER BY i").fetchall()]


def texts_of(rows: pa.Table) -> list[Any]:
    with duckdb.connect() as con:
        return texts(con.register("rows_read", rows), "rows_read")


def inserted() -> list[list[Any]]:
    with duckdb.connect() as plain:
        return [texts(plain, f"(VALUES {values(kind)}) t(i, s)") for kind in STRUCTS]


def read_by_engine(lake: DuckLake) -> list[list[Any]]:
    with lake.connect(read_only=True) as con:
        return [texts(con, f"t{number}") for number in range(len(STRUCTS))]


def days(lake: DuckLake) -> list[Any]:
    with lake.connect(read_only=True) as con:
        return con.execute("SELECT s.d::VARCHAR, s.v FROM t").fetchall()


@each_catalog
def test_structs_are_flushed_as_they_were_written(lake: DuckLake) -> None:
    as_another_program(lake, tables_of_structs())
    steps = lake.maintain(operations=["flush"]).raise_for_error().operations
    assert {step.table: step.rows for step in steps} == {
        f"main.t{number}": len(structs) for number, structs in enumerate(STRUCTS.values())
    }
    assert read_by_engine(lake) == inserted()
    assert lake.fsck(deep=True, storage=True).findings == []


@each_catalog
def test_reads_return_the_structs_of_another_program(lake: DuckLake) -> None:
    as_another_program(lake, tables_of_structs())
    assert [texts_of(lake.read(f"t{number}")) for number in range(len(STRUCTS))] == inserted()


@each_catalog
def test_the_feed_has_the_structs_of_another_program(lake: DuckLake) -> None:
    as_another_program(lake, tables_of_structs())
    assert [texts_of(lake.changes(f"t{number}", 0)) for number in range(len(STRUCTS))] == inserted()


@each_catalog
def test_an_update_of_another_column_keeps_the_structs(lake: DuckLake) -> None:
    as_another_program(lake, tables_of_structs())
    for number in range(len(STRUCTS)):
        lake.update(f"t{number}", {"i": "i + 1"})
    assert read_by_engine(lake) == inserted()


@each_catalog
def test_structs_can_be_read_after_they_were_inserted(lake: DuckLake) -> None:
    lake.execute(tables_of_structs()).raise_for_error()
    assert read_by_engine(lake) == inserted()
    lake.maintain(operations=["flush"]).raise_for_error()
    assert read_by_engine(lake) == inserted()


@each_catalog
@pytest.mark.parametrize(
    "statements",
    [
        [CREATE, f"INSERT INTO t VALUES (1, {DAY})", "UPDATE t SET i = i + 1"],
        [f"CREATE TABLE t AS SELECT 1 AS i, CAST({DAY} AS STRUCT(d DATE, v VARCHAR)) AS s"],
        ["BEGIN", CREATE, f"INSERT INTO t VALUES (1, {DAY})", "FROM t", "COMMIT"],
        [CREATE, "ALTER TABLE t ADD COLUMN more INTEGER", f"INSERT INTO t VALUES (1, {DAY}, 2)"],
        [
            CREATE,
            'ALTER TABLE t RENAME s TO "a \'b"',
            f"INSERT INTO t VALUES (1, {DAY})",
            'ALTER TABLE t RENAME "a \'b" TO s',
        ],
    ],
    ids=["update", "create as", "transaction", "added column", "renamed column"],
)
def test_statements_that_inline_structs_leave_them_readable(lake: DuckLake, statements: Sequence[str]) -> None:
    for result in lake.execute([*statements, "SELECT s FROM t"]).raise_for_error().commands[-1:]:
        assert [row["s"]["v"] for row in result.rows] == ["it's"]


@each_catalog
def test_an_atomic_call_leaves_structs_readable(lake: DuckLake) -> None:
    lake.execute([CREATE, f"INSERT INTO t VALUES (1, {DAY})"], atomic=True).raise_for_error()
    assert days(lake) == [("2024-01-01", "it's")]


@each_catalog
def test_a_connection_leaves_structs_readable(lake: DuckLake) -> None:
    with lake.connect() as con:
        con.execute(CREATE)
        con.execute(f"INSERT INTO t VALUES (1, {DAY})")
        con.execute("BEGIN")
        con.execute(f"INSERT INTO t VALUES (2, {DAY})")  # never committed
    assert days(lake) == [("2024-01-01", "it's")]


@each_catalog
@pytest.mark.parametrize("autocommit", [True, False])
def test_a_hook_leaves_structs_readable(lake: DuckLake, autocommit: bool) -> None:
    with closing(HookConnection(lake.config, CommitInfo())) as con:
        con.autocommit = autocommit
        cursor = con.cursor()
        cursor.execute(CREATE)
        cursor.execute(f"INSERT INTO t VALUES (1, {DAY})")
        con.commit()
    assert days(lake) == [("2024-01-01", "it's")]


@each_catalog
def test_maintenance_makes_structs_readable_that_cannot_be_flushed(lake: DuckLake) -> None:
    kind, value = "STRUCT(d DATE, n INTERVAL)", "{'d': '2024-01-01', 'n': '1 day'}"
    as_another_program(lake, [f"CREATE TABLE t (i INTEGER, s {kind})", f"INSERT INTO t VALUES (1, {value})"])
    (step,) = lake.maintain(operations=["flush"]).raise_for_error().operations
    assert "stay in the catalog" in step.reason
    assert lake.execute("SELECT s.n::VARCHAR AS n FROM t").rows == [{"n": "1 day"}]


@on_sqlite
def test_the_error_of_a_struct_that_cannot_be_read_says_to_flush_the_table(lake: DuckLake) -> None:
    as_another_program(lake, [CREATE, f"INSERT INTO t VALUES (1, {DAY})"])
    with pytest.raises(StatementError, match="Flush the table"):
        lake.execute("FROM t").raise_for_error()
    lake.maintain(operations=["flush"]).raise_for_error()
    assert days(lake) == [("2024-01-01", "it's")]
    assert lake.delete("t", "i = 1").rows_removed == 1


@on_sqlite
def test_a_past_version_of_a_row_keeps_its_struct(lake: DuckLake) -> None:
    as_another_program(lake, [CREATE, f"INSERT INTO t VALUES (1, {DAY})"])
    before = lake.snapshots()[0].snapshot_id
    as_another_program(lake, ["DELETE FROM t"])
    lake.execute(f"INSERT INTO t VALUES (2, {DAY})").raise_for_error()
    (row,) = lake.execute("SELECT s.v FROM t", snapshot=before).raise_for_error().rows
    assert row == {"v": "it's"}


@on_sqlite
def test_a_connection_that_cannot_rewrite_structs_logs_it(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    waiting = DuckLake(lake.config.model_copy(update={"lock_timeout": timedelta(seconds=1)}))
    with open_session(lake.config) as other, ExitStack() as held:
        with waiting.connect() as con:
            con.execute(CREATE)
            con.execute(f"INSERT INTO t VALUES (1, {DAY})")
            held.enter_context(other.queue("a long merge"))
    assert "stay unreadable until the next flush" in caplog.text
