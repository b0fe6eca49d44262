"""Differential test of metadata: our writes leave the same rows in the catalog as the extension's SQL.

Each step changes two lakes, one by SQL in one transaction and one by one ducklake-orch write. It then compares all
their metadata tables row by row. `contents` leaves out values that always differ. A step names each intended
difference: a function that documents the reason and fails once the difference no longer exists.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import identifier, literal
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.values import SAMPLES, ListOf, Scalar, StructOf, Type, Value, sql_type, sql_value
from tests.support.added_files import copy_out
from tests.support.backends import POSTGRES, SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.metadata_contents import (
    Difference,
    assert_same,
    both_tokens_of_a_replacement,
    bounds_as_insert_has_them,
    bounds_stay_beside_nan,
    contents,
    delete_files_end_with_their_file,
    folders_from_odd_names,
    layout_in_the_creation,
    new_fields_take_nulls,
    next_file_id_moves,
    no_filters_beside_blobs,
    nothing_is_no_statistics,
    nulls_nobody_counted,
    promoted_bounds_stay,
    table_without_bounds,
)

pytestmark = pytest.mark.every_catalog

Columns = Sequence[tuple[str, Type]]
Rows = Sequence[Sequence[Value]]

# --- the two lakes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two lakes that must have the same metadata."""

    theirs: DuckLake
    ours: DuckLake
    oracle: Oracle

    def both(self, *statements: str) -> None:
        """Run statements by the engine in both lakes."""
        for lake in (self.theirs, self.ours):
            lake.execute(statements).raise_for_error()

    def step(self, statements: Sequence[str], ours: Callable[[DuckLake], Any], *differences: Difference) -> None:
        """Do the same work by SQL and by ducklake-orch, and compare."""
        before = contents(self.ours) if differences else {}
        self.theirs.execute(statements, atomic=True).raise_for_error()
        ours(self.ours)
        now = contents(self.theirs), contents(self.ours)
        for difference in differences:
            difference(before, *now)
        assert_same(*now)

    def write(
        self,
        columns: Columns,
        rows: Rows,
        *differences: Difference,
        table: str = "t",
        first: Sequence[str] = (),
        mode: str = "append",
        **arguments: Any,
    ) -> None:
        """Insert rows by SQL (after optional statements), and write the same rows by `lake.write`."""
        statements = [*first, insert(columns, rows, table)] if rows else first
        data = self.oracle.arrow(columns, rows)
        self.step(statements, lambda lake: lake.write(data, table, mode=mode, **arguments), *differences)


def insert(columns: Columns, rows: Rows, table: str = "t") -> str:
    names = ", ".join(identifier(name) for name, _ in columns)
    return f"INSERT INTO {table} ({names}) VALUES {values(columns, rows)}"


def values(columns: Columns, rows: Rows) -> str:
    texts = ([sql_value(value, kind) for value, (_, kind) in zip(row, columns, strict=True)] for row in rows)
    return ", ".join(f"({', '.join(row)})" for row in texts)


def create(columns: Columns, table: str = "t") -> str:
    return f"CREATE TABLE {table} ({', '.join(f'{identifier(name)} {sql_type(kind)}' for name, kind in columns)})"


@pytest.fixture(scope="module")
def oracle() -> Iterator[Oracle]:
    oracle = Oracle()
    yield oracle
    oracle.close()


@pytest.fixture
def pair(make_lake: MakeLake, oracle: Oracle) -> Pair:
    return files_only(make_lake, oracle)


def files_only(make_lake: MakeLake, oracle: Oracle, name: str = "lake") -> Pair:
    return open_pair(oracle, *(make_lake(f"{name} {who}", data_inlining_row_limit=0) for who in ("theirs", "ours")))


@pytest.fixture
def inlining_pair(make_lake: MakeLake, oracle: Oracle) -> Pair:
    return open_pair(oracle, make_lake("theirs"), make_lake("ours"))


def open_pair(oracle: Oracle, theirs: DuckLake, ours: DuckLake) -> Pair:
    pair = Pair(theirs, ours, oracle)
    pair.both("SELECT 1")  # creates the lakes
    return pair


# --- steps ------------------------------------------------------------------------------------------------------------

# Every type, including nested ones, with a row for each edge case: NaN, infinities, dates before Christ, long texts,
# the limits of all numbers.
TYPED = [(f"c{n}", kind) for n, kind in enumerate(SAMPLES) if kind != Scalar("VARIANT")]
TYPED_ROWS = [
    [SAMPLES[kind][n] if n < len(SAMPLES[kind]) else None for _, kind in TYPED]
    for n in range(max(map(len, SAMPLES.values())))
]
NULLS = [[None] * len(TYPED)]
FLAT: Columns = [(n, Scalar(k)) for n, k in [("i", "INTEGER"), ("s", "VARCHAR"), ("d", "DATE"), ("ts", "TIMESTAMP")]]
FLAT_ROWS = [
    ("0", "a", "2024-01-01", "2024-01-01 01:00:00"),
    ("1", "it's", "2023-01-01", "2024-02-01 01:00:00"),
    ("2", None, None, None),
    ("3", "a b/=é", "2023-05-01", "1969-12-31 23:59:59"),
    ("4", "", "1950-05-01", "2024-01-05 23:59:59"),
]


@catalogs(sql_writes=True)  # on MySQL, SQL refuses values that the files of the extension do not hold exactly
def test_creating_tables_leaves_the_same_metadata(pair: Pair) -> None:
    statements = ["CREATE SCHEMA a", create(TYPED, "a.typed")]
    differences = (nulls_nobody_counted, no_filters_beside_blobs)
    pair.write(TYPED, TYPED_ROWS, *differences, table="a.typed", first=statements)
    pair.write(TYPED, NULLS, *differences, table="a.nulls", first=[create(TYPED, "a.nulls")])
    layout = ["ALTER TABLE t SET PARTITIONED BY (s, bucket(3, i))", 'ALTER TABLE t SET SORTED BY (d DESC, "i" % 2, ts)']
    pair.write(
        FLAT,
        FLAT_ROWS,
        layout_in_the_creation,
        *differences,  # those of the earlier tables
        first=[create(FLAT), *layout],
        partition_by=["s", "bucket(3, i)"],
        sort_by=["D desc", "i%2", "ts"],
    )


@catalogs(quick=[SQLITE])
def test_creating_tables_with_unusual_names_leaves_the_same_metadata(pair: Pair) -> None:
    table = '"a b"."it\'s"'
    make = ['CREATE SCHEMA "a b"', create(FLAT, table)]
    pair.write(FLAT, FLAT_ROWS, folders_from_odd_names, table=table, first=make)


@catalogs(sql_writes=True)
def test_appends_leave_the_same_metadata(pair: Pair) -> None:
    pair.both(create(TYPED), insert(TYPED, TYPED_ROWS[:3]))
    for rows in (NULLS, TYPED_ROWS[2:4], TYPED_ROWS):
        pair.write(TYPED, rows, nulls_nobody_counted, *([no_filters_beside_blobs] if rows is TYPED_ROWS else []))


@catalogs(sql_writes=True, quick=[SQLITE])
def test_appends_to_columns_without_bounds_leave_the_same_metadata(pair: Pair) -> None:
    pair.both(create(TYPED), insert(TYPED, NULLS))
    pair.write(TYPED, TYPED_ROWS, table_without_bounds, nulls_nobody_counted, no_filters_beside_blobs)


@catalogs(sql_writes=True, quick=[SQLITE])
def test_appends_with_nan_leave_the_same_metadata(make_lake: MakeLake, oracle: Oracle) -> None:
    columns = [("f", Scalar("FLOAT")), ("d", Scalar("DOUBLE"))]
    pair = files_only(make_lake, oracle, "nan first")
    pair.write(columns, [("nan", "nan")], first=[create(columns)])
    pair.write(columns, [("nan", None)])
    pair.write(columns, [("1.5", "inf")], table_without_bounds)
    pair = files_only(make_lake, oracle, "numbers first")
    pair.write(columns, [("1.5", "inf"), ("-1", None)], first=[create(columns)])
    pair.write(columns, [("nan", "nan")], bounds_stay_beside_nan)


@catalogs(sql_writes=True, quick=[SQLITE])
@pytest.mark.parametrize("kind", ["one type", "struct", "list"])
def test_appends_of_variants_leave_the_same_metadata(pair: Pair, kind: str) -> None:
    columns = [("va", Scalar("VARIANT")), ("i", Scalar("INTEGER"))]
    samples = SAMPLES[Scalar("VARIANT")]
    inside = {"one type": samples[:2], "struct": samples[4:5], "list": samples[5:6]}[kind]
    rows: Rows = [(value, "1") for value in inside] + [(None, "2")]
    pair.both(create(columns))
    for _ in range(2):
        pair.write(columns, rows, nulls_nobody_counted)


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
def test_partitioned_tables_have_the_same_metadata(pair: Pair) -> None:
    for n, spec in enumerate(["s", "year(d), month(ts)", "bucket(3, s)", "i, hour(ts)"]):
        pair.both(create(FLAT, f"t{n}"), f"ALTER TABLE t{n} SET PARTITIONED BY ({spec})")
        pair.write(FLAT, FLAT_ROWS, table=f"t{n}")
    pair.write(FLAT, FLAT_ROWS[1:3], table="t0")
    pair.both(create(FLAT), "ALTER TABLE t SET SORTED BY (lower(s) DESC, i)")
    pair.write(FLAT, FLAT_ROWS)


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
def test_added_columns_leave_the_same_metadata(pair: Pair) -> None:
    pair.both(create(FLAT), insert(FLAT, FLAT_ROWS))
    wider = [*FLAT, ("n", Scalar("VARCHAR")), ("m", ListOf(Scalar("INTEGER")))]
    rows = [(*row, "x", ("1", None)) for row in FLAT_ROWS]
    alter = ["ALTER TABLE t ADD COLUMN n VARCHAR", "ALTER TABLE t ADD COLUMN m INTEGER[]"]
    pair.write(wider, rows, first=alter, schema_evolution="add")
    grown = [("i", Scalar("BIGINT")), *wider[1:]]
    alter = ["ALTER TABLE t ALTER i SET DATA TYPE BIGINT"]
    pair.write(grown, rows, promoted_bounds_stay, first=alter, schema_evolution="promote")


@catalogs(sql_writes=True, quick=[SQLITE])
def test_added_struct_fields_leave_the_same_metadata(pair: Pair) -> None:
    narrow = [("s", StructOf((("a", Scalar("INTEGER")),)))]
    wide = [("s", StructOf((("a", Scalar("INTEGER")), ("b", Scalar("VARCHAR")))))]
    pair.both(create(narrow), insert(narrow, [(("1",),)]))
    alter = ["ALTER TABLE t ADD COLUMN s.b VARCHAR"]
    pair.write(wide, [(("2", "x"),)], new_fields_take_nulls, first=alter, schema_evolution="add")


@catalogs(sql_writes=True)
def test_replacements_leave_the_same_metadata(pair: Pair) -> None:
    pair.both(create(FLAT), "ALTER TABLE t SET PARTITIONED BY (s)", insert(FLAT, FLAT_ROWS))
    two_partitions, one_partition, everything = (
        "DELETE FROM t WHERE s IN ('a', 'it''s')",
        "DELETE FROM t WHERE s = 'a'",
        "DELETE FROM t",
    )
    pair.write(FLAT, FLAT_ROWS[:2], first=[two_partitions], mode="overwrite_partitions")
    pair.write(FLAT, FLAT_ROWS[:1], first=[one_partition], mode="replace_where", where="s = 'a'")
    pair.write(FLAT, FLAT_ROWS[2:], first=[everything], mode="overwrite")
    differences = (both_tokens_of_a_replacement, next_file_id_moves)
    pair.write(FLAT, [], *differences, first=[everything], mode="overwrite")


@catalogs(sql_writes=True, quick=[SQLITE])
def test_replacements_of_files_with_deletions_leave_the_same_metadata(pair: Pair) -> None:
    pair.both(create(FLAT), insert(FLAT, FLAT_ROWS), "DELETE FROM t WHERE i < 2")
    pair.write(FLAT, FLAT_ROWS, delete_files_end_with_their_file, first=["DELETE FROM t"], mode="overwrite")


@catalogs(sql_writes=True, quick=[SQLITE, POSTGRES])
def test_writes_to_tables_with_inlined_rows_leave_the_same_metadata(inlining_pair: Pair) -> None:
    pair, large = inlining_pair, FLAT_ROWS * 3
    pair.both(create(FLAT), insert(FLAT, FLAT_ROWS))
    wider, rows = [*FLAT, ("n", Scalar("VARCHAR"))], [(*row, "x") for row in large]
    pair.write(wider, rows, first=["ALTER TABLE t ADD COLUMN n VARCHAR"], schema_evolution="add")
    pair.both(insert(FLAT, FLAT_ROWS))
    pair.write(wider, rows, first=["DELETE FROM t"], mode="overwrite")
    pair.write(FLAT, large, table="new", first=[create(FLAT, "new")])


@catalogs(sql_writes=True, quick=[SQLITE])
def test_added_files_leave_the_same_metadata(pair: Pair, tmp_path: Path) -> None:
    # Parquet stores these as other types, and the extension refuses such files for them.
    unsupported = [Scalar(name) for name in ("HUGEINT", "UHUGEINT", "TIME WITH TIME ZONE")]
    columns = [(name, kind) for name, kind in TYPED if kind not in unsupported]
    rows = [[cell for cell, column in zip(row, TYPED, strict=True) if column in columns] for row in TYPED_ROWS]
    pair.both(create(columns))
    names = ", ".join(identifier(name) for name, _ in columns)
    select = f"FROM (VALUES {values(columns, rows)}) AS v({names})"
    # The form in which the extension writes geometries. It refuses GeoParquet.
    file = copy_out(pair.ours, select, tmp_path / "of others.parquet", ", GEOPARQUET_VERSION 'NONE'")
    call = f"CALL ducklake_add_data_files({literal(pair.theirs.config.alias)}, 't', {literal(file)})"
    differences = (nothing_is_no_statistics, bounds_as_insert_has_them)
    pair.step([call], lambda lake: lake.add_files("t", file), *differences)
