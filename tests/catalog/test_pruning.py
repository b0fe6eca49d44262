"""Pruning: the files that a condition excludes or matches completely, checked against their actual rows."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata, TableDef
from ducklake_orch.catalog.scan import classify, plan_scan
from ducklake_orch.engine.quoting import literal, table_name
from ducklake_orch.engine.session import open_session
from tests.support.plan_reader import file_sql

# A column of every kind with a small pool of values, so that conditions often use the bounds of files.
COLUMNS = {
    "b": ("BOOLEAN", ["true", "false"]),
    "i": ("INTEGER", ["-7", "0", "3", "4", "5", "11", "2147483647"]),
    "big": ("BIGINT", ["-9223372036854775808", "-1", "0", "16777217", "9007199254740993"]),
    "huge": ("HUGEINT", ["-1000000000000000000000", "5"]),
    "u": ("UINTEGER", ["0", "7", "4294967295"]),
    "dec": ("DECIMAL(10,2)", ["-12.30", "0.00", "1.50", "1.51", "99999999.99"]),
    "f": ("FLOAT", ["nan", "-inf", "inf", "0.1", "-0.0", "1.5", "3.3"]),
    "d": ("DOUBLE", ["nan", "inf", "0.1", "0.30000000000000004", "-2.5", "1e300"]),
    "dt": ("DATE", ["-infinity", "1969-12-31", "2024-02-29", "2024-03-01", "2025-01-01", "infinity"]),
    "ts": (
        "TIMESTAMP",
        ["2023-12-31 23:59:59.999999", "2024-01-01", "2024-02-29 12:30:00", "2024-03-01 13:00:00.5", "infinity"],
    ),
    "tz": ("TIMESTAMPTZ", ["2023-12-31 23:30:00+00", "2024-01-01 00:30:00+00", "2024-02-29 12:30:00+02", "-infinity"]),
    "ns": ("TIMESTAMP_NS", ["2023-12-31 23:59:59.999999999", "2024-01-01 00:00:00", "2024-02-29 12:30:00.000000001"]),
    "sec": ("TIMESTAMP_S", ["2023-12-31 23:59:59", "2024-01-01 00:00:00", "2024-02-29 12:30:00"]),
    "tm": ("TIME", ["00:00:00", "12:30:00.5", "23:59:59.999999"]),
    "ttz": ("TIMETZ", ["12:30:00+00", "12:30:00+02"]),
    "iv": ("INTERVAL", ["1 day", "24 hours", "1 month"]),
    "v": ("VARCHAR", ["", "a", "ab", "ab%c", "Z", "été", "zz😀", "it's"]),
    "long": ("VARCHAR", ["", "z" * 255, "z" * 300, "é" * 200, "z" * 256 + "a"]),
    "bl": ("BLOB", ["", "a", "zz"]),
    "id": ("UUID", ["00000000-0000-0000-0000-000000000001", "ffffffff-0000-0000-0000-000000000001"]),
    "j": ("JSON", ['{"a": 1}', "[]", "null"]),
}
# The successive layouts of the files.
LAYOUTS = [
    *("", "i", "v", "dt", "b", "d", "dec", "tz", "ts", "id", "u", "pf", "pd"),
    *("year(ts)", "year(ts), month(ts)", "year(dt), month(dt), day(dt)", "year(ts), month(ts), day(ts), hour(ts)"),
    *("month(ts)", "day(dt)", "year(tz), month(tz)", "year(ns)", "year(sec), month(sec)", "year(tz)"),
    *(
        "bucket(3, i)",
        "bucket(3, v)",
        "bucket(4, tz)",
        "bucket(3, dec)",
        "bucket(3, id)",
        "bucket(3, d)",
        "bucket(3, dt)",
    ),
    *("v, bucket(4, i), year(dt)",),
]


@dataclass(repr=False)
class Laid:
    """A table with files in every layout, and the rows of each file as DuckDB reads them."""

    metadata: Metadata
    table: TableDef
    at: int
    files: int
    con: duckdb.DuckDBPyConnection

    def check(self, where: str) -> tuple[int, int]:
        """Check that no file with a match is excluded, and that a file that matches completely has only matches.

        Returns:
            The number of files that stay, and of files that match completely.
        """
        judged = {file.data_file_id: whole for file, whole in classify(self.metadata, self.table, self.at, where)}
        sql = f"SELECT file, count(*) FILTER (({where})), count(*) FROM rows_of_files GROUP BY file"
        # DuckDB rewrites `date_trunc('year', x) <> DATE '2023-12-31'` to a condition that is true if x is NULL.
        self.con.execute("SET disabled_optimizers = 'expression_rewriter'")
        truth = self.con.execute(sql).fetchall()
        self.con.execute("RESET disabled_optimizers")
        for file, matching, rows in truth:
            assert matching == 0 or file in judged, f"{where} excludes file {file} with {matching} matching rows"
            whole = judged.get(file, False)
            assert not whole or matching == rows, (
                f"{where} matches file {file} completely, but only {matching} of {rows} rows match"
            )
        return len(judged), sum(judged.values())


@pytest.fixture(scope="module", params=[False, True], ids=["all-files", "indexes"])
def laid(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Laid]:
    lake = make_laid(tmp_path_factory.mktemp("laid"))
    if request.param:
        lake.create_indexes()
    # Use the indexes for every condition that rules out a partition, not only for those that rule out most.
    with (
        mock.patch("ducklake_orch.catalog.scan.indexed_files._LARGEST_SHARE", 1.0),
        open_session(lake.config) as session,
    ):
        con = session.instance.root.cursor()
        metadata = Metadata(con, lake.config)
        at = metadata.latest().snapshot_id
        table = metadata.table(table_name("t"), at)
        plan = plan_scan(metadata, table, at)
        parts = [f"SELECT {file.data_file_id} AS file, * FROM ({file_sql(con, plan, file)})" for file in plan.files]
        con.execute(f"CREATE TEMP TABLE rows_of_files AS {' UNION ALL '.join(parts)}")
        yield Laid(metadata, table, at, len(plan.files), con)
        con.execute("DROP TABLE rows_of_files")


def make_laid(folder: Path) -> DuckLake:
    lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)
    types = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
    with lake.connect() as con:
        con.execute(f"CREATE TABLE t ({types}, s STRUCT(a INTEGER, b VARCHAR), l INTEGER[], pf FLOAT, pd DATE)")
        for n, layout in enumerate(LAYOUTS):
            con.execute(
                f"ALTER TABLE t SET PARTITIONED BY ({layout})" if layout else "ALTER TABLE t RESET PARTITIONED BY"
            )
            if n == len(LAYOUTS) // 2:  # the statistics so far are texts of other types
                for change in ("ALTER pf TYPE DOUBLE", "ALTER pd TYPE TIMESTAMP", "ALTER u TYPE UBIGINT"):
                    con.execute(f"ALTER TABLE t {change}")
                con.execute("ALTER TABLE t ADD COLUMN late INTEGER DEFAULT 7")
            for k in range(3):
                rows = [row(n + 5 * k + m * (1 + k), missing=k == 2) for m in range(4)]
                late = ", late" if n >= len(LAYOUTS) // 2 else ""
                names = ", ".join([*COLUMNS, "s", "l", "pf", "pd"])
                values = ", ".join(f"({', '.join(values_of_row)}{', 3' if late else ''})" for values_of_row in rows)
                con.execute(f"INSERT INTO t ({names}{late}) VALUES {values}")
    with lake.connect_metadata(read_only=False) as con:
        # Partition values must prove without statistics, and files of other writers may have no NaN information.
        con.execute("DELETE FROM ducklake_file_column_stats WHERE data_file_id % 3 = 0")
        con.execute("UPDATE ducklake_file_column_stats SET contains_nan = NULL WHERE data_file_id % 3 = 1")
    return lake


def row(seed: int, *, missing: bool) -> list[str]:
    """Return the values of a row. Adjacent seeds have adjacent values."""
    values = []
    for n, (_, pool) in enumerate(COLUMNS.values()):
        at = (seed // 2 + n) % (len(pool) + missing)
        values.append("NULL" if at == len(pool) else literal(pool[at]))
    number = str(seed % 4) if seed % 5 else "NULL"
    values.append("NULL" if seed % 7 == 0 else f"{{a: {number}, b: 'x' || {seed % 3}}}")
    return [*values, f"[{seed % 3}]", literal(["0.1", "0.3", "nan"][seed % 3]), literal(f"2024-01-0{1 + seed % 3}")]


POOLS = {
    name: (kind, pool) for name, (kind, pool) in COLUMNS.items() if kind not in ("TIMETZ", "INTERVAL", "BLOB", "JSON")
}
POOLS |= {"s.a": ("INTEGER", ["0", "1", "3"]), "s.b": ("VARCHAR", ["x0", "x1", "y"]), "late": ("INTEGER", ["3", "7"])}
POOLS |= {
    "pf": ("DOUBLE", ["0.1", "0.3", "nan", "0.10000000149011612"]),
    "pd": ("TIMESTAMP", ["2024-01-02", "2024-01-02 01:00:00"]),
}
MOMENTS = [name for name, (kind, _) in POOLS.items() if kind.startswith(("DATE", "TIMESTAMP"))]
TEXTS = [name for name, (kind, _) in POOLS.items() if kind == "VARCHAR"]
NUMBERS = ["i", "big", "huge", "u", "dec", "f", "d", "s.a", "late", "pf"]
# Constants of other types than the column. DuckDB decides which of the two is cast.
BARE = [text for name in NUMBERS for text in POOLS[name][1] if text[-1].isdigit()] + ["0.1e0", "1.505", "5e0", "17"]
DAYS = [
    "DATE '2024-02-29'",
    "DATE '2024-01-01'",
    "TIMESTAMP '2024-02-29 12:30:00'",
    "TIMESTAMP '2024-01-01 00:00:00.1'",
]
ZONED = ["TIMESTAMPTZ '2024-01-01 01:00:00+01'", "TIMESTAMPTZ '2024-02-29 12:30:00+02'"]
SIGNS = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
YES_OR_NO = st.sampled_from(["", "NOT "])


@st.composite
def constants(draw: st.DrawFn, name: str) -> str:
    kind, pool = POOLS[name]
    text = draw(st.sampled_from(pool))
    others = [draw(st.sampled_from(BARE))] if name in NUMBERS and name != "huge" else []
    if name in MOMENTS:
        others = [draw(st.sampled_from(DAYS if name in ("ns", "sec") else [*DAYS, *ZONED]))]
    return draw(st.sampled_from([literal(text), f"{literal(text)}::{kind}", *others, *others, "NULL"]))


@st.composite
def comparisons(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(POOLS)))
    sides = [name, draw(constants(name))]
    return f" {draw(SIGNS)} ".join(draw(st.permutations(sides)))


@st.composite
def sets(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(list(POOLS)))
    if draw(st.booleans()):
        return f"{name} {draw(YES_OR_NO)}BETWEEN {draw(constants(name))} AND {draw(constants(name))}"
    items = draw(st.lists(constants(name), min_size=1, max_size=4))
    items *= draw(st.sampled_from([1, 1, 1, 30]))  # a long list takes another code path
    return f"{name} {draw(YES_OR_NO)}IN ({', '.join(items)})"


@st.composite
def nulls(draw: st.DrawFn) -> str:
    return f"{draw(st.sampled_from([*POOLS, *COLUMNS, 's', 'l']))} IS {draw(YES_OR_NO)}NULL"


@st.composite
def prefixes(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(TEXTS))
    start = draw(st.sampled_from(POOLS[name][1]))[: draw(st.integers(0, 3))]
    if draw(st.booleans()):
        return f"{draw(YES_OR_NO)}starts_with({name}, {literal(start)})"
    return f"{name} {draw(YES_OR_NO)}LIKE {literal(start + draw(st.sampled_from(['', '%', '_', '_%', '%c'])))}"


@st.composite
def parts(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(MOMENTS))
    unit = draw(st.sampled_from(["year", "month", "day", "hour"]))
    whole = draw(st.sampled_from([f"{name}::DATE", f"date_trunc({literal(unit)}, {name})"]))
    day = draw(st.sampled_from(["2023-12-31", "2024-01-01", "2024-02-01", "2024-02-29"]))
    number = draw(st.sampled_from([1969, 2023, 2024, 2025, 1, 2, 3, 12, 29, 31, 0, 13, 23]))
    units = [f"{unit}({name})", f"extract({unit} FROM {name})"] if POOLS[name][0] != "DATE" or unit != "hour" else []
    found = [f"{whole} {draw(SIGNS)} DATE {literal(day)}", *(f"{unit} {draw(SIGNS)} {number}" for unit in units)]
    return draw(st.sampled_from([*found, f"{whole} IS {draw(YES_OR_NO)}NULL"]))


@st.composite
def pairs(draw: st.DrawFn) -> str:
    same = draw(st.sampled_from([NUMBERS, TEXTS, ["dt", "ts", "pd", "tz"], ["dt", "ts", "pd", "ns", "sec"]]))
    return f"{draw(st.sampled_from(same))} {draw(SIGNS)} {draw(st.sampled_from(same))}"


@st.composite
def truths(draw: st.DrawFn) -> str:
    return draw(
        st.sampled_from(["b", "b IS TRUE", "b IS NOT FALSE", "b = false", "true", "NULL::BOOLEAN", "b IS NULL"])
    )


ATOMS = st.one_of(comparisons(), comparisons(), sets(), nulls(), prefixes(), parts(), pairs(), truths())
CONDITIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        inner.map(lambda condition: f"NOT ({condition})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda words: f"({' '.join(words)})"),
    ),
    max_leaves=5,
)


@settings(
    max_examples=int(os.environ.get("EXAMPLES", "80")),
    deadline=None,
    derandomize="EXAMPLES" not in os.environ,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(where=CONDITIONS)
def test_pruning_excludes_no_matching_row_and_overstates_no_file(laid: Laid, where: str) -> None:
    laid.check(where)


@pytest.mark.parametrize("seed", range(40))
def test_order_by_with_a_limit_keeps_the_files_of_the_first_rows(laid: Laid, seed: int) -> None:
    pick = random.Random(seed)
    key, limit = pick.choice([name for name in POOLS if "." not in name]), pick.choice([1, 5, 60])
    order = " ".join([key, pick.choice(["", "ASC", "DESC"]), pick.choice(["NULLS FIRST", "NULLS LAST"])])
    where = pick.choice([None, None, "i > 3", "v IS NOT NULL"])
    found = plan_scan(laid.metadata, laid.table, laid.at, where=where, order_by=[order], limit=limit)
    ids = ", ".join(str(file.data_file_id) for file in found.files)

    def first(condition: str) -> list[Any]:
        sql = f"SELECT {key}::VARCHAR FROM rows_of_files WHERE {condition} AND ({where or True}) ORDER BY {order}"
        return laid.con.execute(f"{sql} LIMIT {limit}").fetchall()

    assert first(f"file IN ({ids})") == first("true"), f"{order} LIMIT {limit}"
