"""Inlined structs, which the engine cannot read on SQLite and PostgreSQL, are flushed as they were inserted."""

from collections.abc import Callable
from typing import Any

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import StatementError
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


@catalogs(quick=[SQLITE, POSTGRES], sql_writes=True)
@pytest.mark.parametrize("kind", STRUCTS, ids=range(len(STRUCTS)))
def test_structs_are_flushed_as_they_were_written(lake: DuckLake, kind: str) -> None:
    values = [f"CAST({value} AS {kind})" for value in STRUCTS[kind]]
    with lake.connect() as con:
        con.execute(f"CREATE TABLE t (i INTEGER, s {kind})")
        con.execute(f"INSERT INTO t VALUES {', '.join(f'({i}, {value})' for i, value in enumerate(values))}")
    (step,) = lake.maintain(operations=["flush"]).raise_for_error().operations
    assert step.rows == len(values)

    def texts(con: Any, source: str) -> list[Any]:
        return [row[0] for row in con.execute(f"SELECT CAST(s AS VARCHAR) FROM {source} ORDER BY i").fetchall()]

    with duckdb.connect() as plain, lake.connect() as con:
        wanted = texts(plain, f"(VALUES {', '.join(f'({i}, {value})' for i, value in enumerate(values))}) t(i, s)")
        assert texts(con, "t") == wanted
    assert lake.fsck(deep=True, storage=True).findings == []


@on_sqlite
def test_the_error_of_a_struct_that_cannot_be_read_says_to_flush_the_table(lake: DuckLake) -> None:
    lake.execute(
        ["CREATE TABLE t (i INTEGER, s STRUCT(d DATE))", "INSERT INTO t VALUES (1, {'d': '2024-01-01'})"]
    ).raise_for_error()
    attempts: list[Callable[[], Any]] = [lambda: lake.read("t"), lambda: lake.delete("t", "i = 1")]
    for attempt in attempts:
        with pytest.raises(StatementError, match="Flush the table"):
            attempt()
    lake.maintain(operations=["flush"]).raise_for_error()
    assert lake.delete("t", "i = 1").rows_removed == 1
