"""Statistics of values inside lists, maps and structs agree with the files."""

import duckdb

from ducklake_orch import DuckLake
from tests.support.backends import SQLITE, catalogs, on_sqlite

VALUES = {
    "MAP(VARCHAR, INTEGER)": ["NULL", "MAP {}", "MAP {'a': NULL}", "MAP {'a': 1}"],
    "MAP(INTEGER, STRUCT(a INTEGER))": ["MAP {1: NULL}", "MAP {1: {'a': NULL}}", "MAP {1: NULL, 2: NULL, 3: {'a': 1}}"],
    "STRUCT(a INTEGER, b VARCHAR)[]": ["NULL", "[]", "[NULL]", "[NULL, NULL, {'a': 1, 'b': 'x'}]", "[{'a': NULL}]"],
    "STRUCT(s STRUCT(a INTEGER))[]": ["[{'s': NULL}]", "[NULL]", "[{'s': {'a': NULL}}]"],
    "VARCHAR[][]": ["[[NULL]]", "[NULL]", "[['a']]"],
    "STRUCT(a INTEGER, m MAP(INTEGER, DOUBLE))": ["{'a': 1, 'm': MAP {1: 'nan'}}", "{'a': 1, 'm': NULL}", "NULL"],
    "VARIANT": ["[NULL, NULL, {'a': 1}]", "[{'b': NULL}, {'b': {'a': 1}}]", "NULL", "{'a': [{'b': 1}]}"],
}


def values(kind: str) -> list[str]:
    return [f"({i}, CAST({value} AS {kind}))" for i, value in enumerate(VALUES[kind])]


@on_sqlite
def test_statistics_of_written_files_are_consistent(lake: DuckLake) -> None:
    with duckdb.connect() as con:
        for number, kind in enumerate(kind for kind in VALUES if kind != "VARIANT"):
            for rows in (*values(kind), ", ".join(values(kind))):
                written = con.execute(f"SELECT * FROM (VALUES {rows}) v(i, c)").to_arrow_table()
                lake.write(written, f"t{number}", mode="append")
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs(quick=[SQLITE], sql_writes=True)
def test_statistics_are_consistent_after_a_flush_and_a_merge(lake: DuckLake) -> None:
    for number, kind in enumerate(VALUES):
        inserts = [f"INSERT INTO t{number} VALUES {row}" for row in values(kind)]
        lake.execute([f"CREATE TABLE t{number} (i INTEGER, c {kind})", *inserts]).raise_for_error()
    for operations in (["flush"], ["flush", "merge"]):
        for number, kind in enumerate(VALUES):
            lake.execute(f"INSERT INTO t{number} VALUES {', '.join(values(kind))}").raise_for_error()
        lake.maintain(operations=operations).raise_for_error()
        assert lake.fsck(deep=True, storage=True).findings == []
