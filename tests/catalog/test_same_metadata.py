"""Differential test of metadata: our writes leave in the catalog what the extension's SQL leaves there.

The same work is done to two lakes, by SQL in one transaction and by one write of ours, and after each step all their
metadata tables are compared, row by row. What always differs stands in `DIFFERENT` and `label`; where we differ on
purpose, the step names the difference, which is a function that says why and fails when it is not there any more.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import identifier, literal
from tests.backends import SQLITE, catalogs
from tests.catalog.adding import copy_out
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.values import SAMPLES, ListOf, Scalar, StructOf, Type, Value, sql_type, sql_value
from tests.conftest import MakeLake

Contents = dict[str, list[dict[str, Any]]]
Columns = Sequence[tuple[str, Type]]
Rows = Sequence[Sequence[Value]]
# Takes what differs on purpose out of (before, theirs, ours).
Difference = Callable[[Contents, Contents, Contents], None]

TABLES = (
    *(
        "ducklake_snapshot",
        "ducklake_snapshot_changes",
        "ducklake_schema_versions",
        "ducklake_schema",
        "ducklake_table",
    ),
    *("ducklake_column", "ducklake_column_tag", "ducklake_tag", "ducklake_inlined_data_tables"),
    *("ducklake_partition_info", "ducklake_partition_column", "ducklake_sort_info", "ducklake_sort_expression"),
    *("ducklake_data_file", "ducklake_delete_file", "ducklake_file_partition_value", "ducklake_file_column_stats"),
    *("ducklake_file_variant_stats", "ducklake_table_stats", "ducklake_table_column_stats"),
    *("ducklake_column_mapping", "ducklake_name_mapping", "ducklake_files_scheduled_for_deletion"),
)
DIFFERENT: Mapping[tuple[str, str], str] = {
    ("ducklake_snapshot", "snapshot_time"): "two commits are not made at one time",
    ("ducklake_snapshot_changes", "commit_extra_info"): "holds the id of the write",
    ("ducklake_schema", "schema_uuid"): "random",
    ("ducklake_table", "table_uuid"): "random",
    ("ducklake_delete_file", "path"): "random",
    ("ducklake_delete_file", "file_size_bytes"): "holds the random name of the data file",
    ("ducklake_delete_file", "footer_size"): "holds the random name of the data file",
}


# --- what is compared -------------------------------------------------------------------------------------------------


def contents(lake: DuckLake) -> Contents:
    """Return the rows of all metadata tables, without what may differ."""
    found: Contents = {}
    with lake.connect_metadata() as con:
        for table in TABLES:
            cursor = con.execute(f"SELECT * FROM {table}")
            names = [str(column[0]) for column in cursor.description or ()]
            found[table] = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    label(found)
    for table, rows in found.items():
        for row in rows:
            for name in row:
                row[name] = None if (table, name) in DIFFERENT else plain(name, row[name])
    return found


def label(found: Contents) -> None:
    """Call files by their folders: their names are random, and those of one commit are numbered in any order."""
    first_row: dict[int, int] = {}
    labels = {}
    for row in found["ducklake_data_file"]:
        commit, start = row["begin_snapshot"], row["row_id_start"]
        first_row[commit] = min(start, first_row.get(commit, start))
        row["path"] = text(row["path"]).rpartition("/")[0]
        labels[row["data_file_id"]] = f"{row['path']} of {commit}"
    for row in found["ducklake_data_file"]:
        row["row_id_start"] = first_row[row["begin_snapshot"]]
    for rows in found.values():
        for row in rows:
            if "data_file_id" in row:
                row["data_file_id"] = labels[row["data_file_id"]]


def plain(name: str, value: Any) -> Any:
    """Return a value so that the same means equal."""
    if value is not None and name == "changes_made":
        return sorted(text(value).split(","))
    if value is not None and name == "extra_stats":
        extra = json.loads(value)  # of a box the engine writes six digits, we write all
        return extra | {"types": sorted(extra["types"])} if isinstance(extra, dict) else extra
    return value


def text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def assert_same(theirs: Contents, ours: Contents) -> None:
    for table in TABLES:
        assert sorted(ours[table], key=repr) == sorted(theirs[table], key=repr), table


# --- where we differ on purpose ---------------------------------------------------------------------------------------


def table_without_bounds(before: Contents, theirs: Contents, ours: Contents) -> None:
    """A column without bounds had no values, or some that the engine knew no bounds of: who adds to it cannot tell."""
    name = "ducklake_table_column_stats"
    unbounded = {row["column_id"] for row in before[name] if row["min_value"] is None}
    gone = unbounded - {row["column_id"] for row in ours[name]}
    assert gone
    theirs[name] = [row for row in theirs[name] if row["column_id"] not in gone]


def variants_unknown(before: Contents, theirs: Contents, ours: Contents) -> None:
    """Of variants we write no statistics, which nobody needs to read them; the engine's count no NULLs."""
    variants = {row["column_id"] for row in theirs["ducklake_column"] if row["column_type"] == "variant"}
    assert not ours["ducklake_file_variant_stats"]
    theirs["ducklake_file_variant_stats"] = []
    for name in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        assert not [row for row in ours[name] if row["column_id"] in variants]
        theirs[name] = [row for row in theirs[name] if row["column_id"] not in variants]


def layout_in_the_creation(before: Contents, theirs: Contents, ours: Contents) -> None:
    """SQL gives a new table its layout by an ALTER, of which there is a token more."""
    (token,) = {one for one in _tokens(theirs) if one.startswith("altered_table:")}
    _tokens(theirs).remove(token)


def both_tokens_of_a_replacement(before: Contents, theirs: Contents, ours: Contents) -> None:
    """Also where nothing is added, or only inlined rows go, an INSERT or DELETE beside it has to look again."""
    kinds = [{one.partition(":")[0] for one in _tokens(each)} for each in (theirs, ours)]
    assert kinds[0] < kinds[1]
    assert kinds[1] >= {"inserted_into_table", "deleted_from_table"}
    _tokens(theirs)[:] = _tokens(ours)


def next_file_id_moves(before: Contents, theirs: Contents, ours: Contents) -> None:
    """Readers keep statistics for as long as the next file id is the same."""
    assert _last(theirs)["next_file_id"] == _last(before)["next_file_id"] == _last(ours)["next_file_id"] - 1
    _last(ours)["next_file_id"] -= 1


def folders_from_odd_names(before: Contents, theirs: Contents, ours: Contents) -> None:
    """First writers who do not know of each other put their files into one folder; the engine's name is random."""
    for table in ("ducklake_schema", "ducklake_table"):
        assert _take(theirs, table, "path")[-1] != _take(ours, table, "path")[-1]


def new_fields_take_nulls(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine says of a field that ALTER adds to a struct that it takes no NULL, which is in all older rows."""
    for row in theirs["ducklake_column"]:
        if row["parent_column"] is not None and row["begin_snapshot"] == _last(theirs)["snapshot_id"]:
            assert not row["nulls_allowed"]
            row["nulls_allowed"] = type(row["nulls_allowed"])(True)


def bounds_stay_beside_nan(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine forgets the bounds of a table's column at a file of nothing but NaN; they are true as they were."""
    _forgotten(theirs, ours)


def bounds_as_insert_has_them(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The extension's INSERT and its ducklake_add_data_files write booleans and blobs in two ways; we in the first."""
    typed = {row["column_id"]: text(row["column_type"]) for row in theirs["ducklake_column"]}
    for name in ("ducklake_file_column_stats", "ducklake_table_column_stats"):
        for other, mine in zip(_by_column(theirs[name]), _by_column(ours[name]), strict=True):
            if typed[mine["column_id"]] in ("boolean", "blob"):
                assert mine["min_value"] is not None
                assert mine["max_value"] != other["max_value"]
                for one in (mine, other):
                    one["min_value"] = one["max_value"] = None


def nothing_is_no_statistics(before: Contents, theirs: Contents, ours: Contents) -> None:
    """Where a footer says nothing, we leave the table's column without bounds, and NULLs may be in it."""
    name = "ducklake_table_column_stats"
    known = {row["column_id"] for row in ours[name]}
    gone = [row for row in theirs[name] if row["column_id"] not in known]
    assert {(row["min_value"], row["max_value"]) for row in gone} == {(None, None)}
    theirs[name] = [row for row in theirs[name] if row["column_id"] in known]
    for other, mine in zip(_by_column(theirs[name]), _by_column(ours[name]), strict=True):
        if other["contains_null"] is None:
            assert mine["contains_null"]
            mine["contains_null"] = None


def promoted_bounds_stay(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine forgets the bounds of a table's column that has grown; they are true as they were."""
    _forgotten(theirs, ours)


def delete_files_end_with_their_file(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The engine leaves them without an end, and a flush or rewrite later finds two that live."""
    assert {row["end_snapshot"] for row in theirs["ducklake_delete_file"]} == {None}
    assert {row["end_snapshot"] for row in ours["ducklake_delete_file"]} == {_last(ours)["snapshot_id"]}
    for row in ours["ducklake_delete_file"]:
        row["end_snapshot"] = None


def place_for_inlined_rows_later(before: Contents, theirs: Contents, ours: Contents) -> None:
    """The first who inlines rows of a new table makes their place."""
    assert len(theirs["ducklake_inlined_data_tables"]) == 1 + len(ours["ducklake_inlined_data_tables"])
    theirs["ducklake_inlined_data_tables"] = list(ours["ducklake_inlined_data_tables"])


def _forgotten(theirs: Contents, ours: Contents) -> None:
    pairs = zip(*(_by_column(each["ducklake_table_column_stats"]) for each in (theirs, ours)), strict=True)
    found = [mine for other, mine in pairs if other["min_value"] is None and mine["min_value"] is not None]
    assert found
    for mine in found:
        mine["min_value"] = mine["max_value"] = None


def _tokens(found: Contents) -> list[str]:
    changes: list[str] = max(found["ducklake_snapshot_changes"], key=lambda row: row["snapshot_id"])["changes_made"]
    return changes


def _last(found: Contents) -> dict[str, Any]:
    return max(found["ducklake_snapshot"], key=lambda row: int(row["snapshot_id"]))


def _take(found: Contents, table: str, name: str) -> list[Any]:
    """Take a column out, and return what was in it."""
    return [row.pop(name) for row in found[table]]


def _by_column(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: (row["table_id"], row["column_id"]))


# --- the two lakes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two lakes that are to be the same."""

    theirs: DuckLake
    ours: DuckLake
    oracle: Oracle

    def both(self, *statements: str) -> None:
        """Have the engine do the same to both."""
        for lake in (self.theirs, self.ours):
            lake.execute(statements).raise_for_error()

    def step(self, statements: Sequence[str], ours: Callable[[DuckLake], Any], *differences: Difference) -> None:
        """Do the same work by SQL and by us, and compare."""
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
        """Insert by SQL, after other statements if need be, and write the same rows ourselves."""
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
    pair.both("SELECT 1")  # makes the lakes
    return pair


# --- the same ---------------------------------------------------------------------------------------------------------

# Every type, nested ones too, and a row for each of the values that something could trip over: NaN, infinities, dates
# before Christ, long texts, the ends of all numbers.
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


@catalogs()
def test_first_rows(pair: Pair) -> None:
    pair.write(TYPED, TYPED_ROWS, table="a.typed", first=["CREATE SCHEMA a", create(TYPED, "a.typed")])
    pair.write(TYPED, NULLS, table="a.nulls", first=[create(TYPED, "a.nulls")])
    layout = ["ALTER TABLE t SET PARTITIONED BY (s, bucket(3, i))", 'ALTER TABLE t SET SORTED BY (d DESC, "i" % 2, ts)']
    pair.write(
        FLAT,
        FLAT_ROWS,
        layout_in_the_creation,
        first=[create(FLAT), *layout],
        partition_by=["s", "bucket(3, i)"],
        sort_by=["D desc", "i%2", "ts"],
    )


@catalogs(quick=[SQLITE])
def test_first_rows_of_tables_with_odd_names(pair: Pair) -> None:
    table = '"a b"."it\'s"'
    make = ['CREATE SCHEMA "a b"', create(FLAT, table)]
    pair.write(FLAT, FLAT_ROWS, folders_from_odd_names, table=table, first=make)


@catalogs(sql_writes=True)
def test_more_rows(pair: Pair) -> None:
    pair.both(create(TYPED), insert(TYPED, TYPED_ROWS[:3]))
    for rows in (NULLS, TYPED_ROWS[2:4], TYPED_ROWS):
        pair.write(TYPED, rows)


@catalogs(sql_writes=True)
def test_more_rows_where_there_were_no_bounds(pair: Pair) -> None:
    pair.both(create(TYPED), insert(TYPED, NULLS))
    pair.write(TYPED, TYPED_ROWS, table_without_bounds)


@catalogs(sql_writes=True, quick=[SQLITE])
def test_nan_and_numbers(make_lake: MakeLake, oracle: Oracle) -> None:
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
def test_variants(pair: Pair, kind: str) -> None:
    columns = [("va", Scalar("VARIANT")), ("i", Scalar("INTEGER"))]
    samples = SAMPLES[Scalar("VARIANT")]
    inside = {"one type": samples[:2], "struct": samples[4:5], "list": samples[5:6]}[kind]
    rows: Rows = [(value, "1") for value in inside] + [(None, "2")]
    pair.both(create(columns))
    for _ in range(2):
        pair.write(columns, rows, variants_unknown)


@catalogs(sql_writes=True)
def test_layouts(pair: Pair) -> None:
    for n, spec in enumerate(["s", "year(d), month(ts)", "bucket(3, s)", "i, hour(ts)"]):
        pair.both(create(FLAT, f"t{n}"), f"ALTER TABLE t{n} SET PARTITIONED BY ({spec})")
        pair.write(FLAT, FLAT_ROWS, table=f"t{n}")
    pair.write(FLAT, FLAT_ROWS[1:3], table="t0")
    pair.both(create(FLAT), "ALTER TABLE t SET SORTED BY (lower(s) DESC, i)")
    pair.write(FLAT, FLAT_ROWS)


@catalogs(sql_writes=True)
def test_new_columns(pair: Pair) -> None:
    pair.both(create(FLAT), insert(FLAT, FLAT_ROWS))
    wider = [*FLAT, ("n", Scalar("VARCHAR")), ("m", ListOf(Scalar("INTEGER")))]
    rows = [(*row, "x", ("1", None)) for row in FLAT_ROWS]
    alter = ["ALTER TABLE t ADD COLUMN n VARCHAR", "ALTER TABLE t ADD COLUMN m INTEGER[]"]
    pair.write(wider, rows, first=alter, schema_evolution="add")
    grown = [("i", Scalar("BIGINT")), *wider[1:]]
    alter = ["ALTER TABLE t ALTER i SET DATA TYPE BIGINT"]
    pair.write(grown, rows, promoted_bounds_stay, first=alter, schema_evolution="promote")


@catalogs(sql_writes=True, quick=[SQLITE])
def test_new_fields_of_structs(pair: Pair) -> None:
    narrow = [("s", StructOf((("a", Scalar("INTEGER")),)))]
    wide = [("s", StructOf((("a", Scalar("INTEGER")), ("b", Scalar("VARCHAR")))))]
    pair.both(create(narrow), insert(narrow, [(("1",),)]))
    alter = ["ALTER TABLE t ADD COLUMN s.b VARCHAR"]
    pair.write(wide, [(("2", "x"),)], new_fields_take_nulls, first=alter, schema_evolution="add")


@catalogs(sql_writes=True)
def test_replacements(pair: Pair) -> None:
    pair.both(create(FLAT), "ALTER TABLE t SET PARTITIONED BY (s)", insert(FLAT, FLAT_ROWS))
    some, one, everything = "DELETE FROM t WHERE s IN ('a', 'it''s')", "DELETE FROM t WHERE s = 'a'", "DELETE FROM t"
    pair.write(FLAT, FLAT_ROWS[:2], first=[some], mode="overwrite_partitions")
    pair.write(FLAT, FLAT_ROWS[:1], first=[one], mode="replace_where", where="s = 'a'")
    pair.write(FLAT, FLAT_ROWS[2:], first=[everything], mode="overwrite")
    differences = (both_tokens_of_a_replacement, next_file_id_moves)
    pair.write(FLAT, [], *differences, first=[everything], mode="overwrite")


@catalogs(sql_writes=True, quick=[SQLITE])
def test_replacements_of_rows_with_deletes(pair: Pair) -> None:
    pair.both(create(FLAT), insert(FLAT, FLAT_ROWS), "DELETE FROM t WHERE i < 2")
    pair.write(FLAT, FLAT_ROWS, delete_files_end_with_their_file, first=["DELETE FROM t"], mode="overwrite")


@catalogs(sql_writes=True)
def test_beside_inlined_rows(inlining_pair: Pair) -> None:
    pair, many = inlining_pair, FLAT_ROWS * 3
    pair.both(create(FLAT), insert(FLAT, FLAT_ROWS))
    wider, rows = [*FLAT, ("n", Scalar("VARCHAR"))], [(*row, "x") for row in many]
    pair.write(wider, rows, first=["ALTER TABLE t ADD COLUMN n VARCHAR"], schema_evolution="add")
    pair.both(insert(FLAT, FLAT_ROWS))
    pair.write(wider, rows, first=["DELETE FROM t"], mode="overwrite")
    pair.write(FLAT, many, place_for_inlined_rows_later, table="new", first=[create(FLAT, "new")])


@catalogs(sql_writes=True)
def test_files_of_others(pair: Pair, tmp_path: Path) -> None:
    # In Parquet these become other types, and the extension takes no such file for them.
    others = [Scalar(name) for name in ("HUGEINT", "UHUGEINT", "TIME WITH TIME ZONE")]
    columns = [(name, kind) for name, kind in TYPED if kind not in others]
    rows = [[cell for cell, one in zip(row, TYPED, strict=True) if one in columns] for row in TYPED_ROWS]
    pair.both(create(columns))
    names = ", ".join(identifier(name) for name, _ in columns)
    select = f"FROM (VALUES {values(columns, rows)}) AS v({names})"
    # As the extension writes geometries itself; it refuses those of GeoParquet.
    file = copy_out(pair.ours, select, tmp_path / "of others.parquet", ", GEOPARQUET_VERSION 'NONE'")
    call = f"CALL ducklake_add_data_files({literal(pair.theirs.config.alias)}, 't', {literal(file)})"
    differences = (nothing_is_no_statistics, bounds_as_insert_has_them)
    pair.step([call], lambda lake: lake.add_files("t", file), *differences)
