"""Columns of added files are matched by name or by field id, as the engine matches them."""

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.engine.quoting import literal
from tests.support.added_files import (
    NESTED,
    NESTED_TYPES,
    catalog,
    copy_out,
    local_lake,
    make,
    mapped,
    partitions,
    rows,
    stats,
    table_id,
    write,
)
from tests.support.refusals import refused


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return local_lake(tmp_path)


FLAT = pa.table(
    {
        "b": [True, False, None],
        "t": pa.array([1, -2, None], pa.int8()),
        "u": pa.array([1, 200, None], pa.uint8()),
        "i": pa.array([1, -2, None], pa.int32()),
        "f": pa.array([0.1, 2.5, None], pa.float32()),
        "d": pa.array([0.1, 2.5, None], pa.float64()),
        "dec": pa.array([Decimal("1.5"), Decimal("-2.5"), None], pa.decimal128(5, 1)),
        "day": [dt.date(2024, 1, 1), dt.date(1969, 1, 1), None],
        "us": pa.array([1_700_000_000_123_456, -1, None], pa.timestamp("us")),
        "ms": pa.array([1_700_000_000_123, -1, None], pa.timestamp("ms")),
        "ns": pa.array([1_700_000_000_123_456_789, 5_000, None], pa.timestamp("ns")),
        "tz": pa.array([1_700_000_000_123_456, -1, None], pa.timestamp("us", "Europe/Berlin")),
        "time": pa.array([1, 2, None], pa.time64("us")),
        "s": ["é", "a", None],
        "raw": [b"\xff", b"a", None],
    }
)
FLAT_TYPES = (
    "b BOOLEAN, t TINYINT, u UTINYINT, i INTEGER, f FLOAT, d DOUBLE, dec DECIMAL(5,1), day DATE, us TIMESTAMP,"
    " ms TIMESTAMP_MS, ns TIMESTAMP_NS, tz TIMESTAMPTZ, time TIME, s VARCHAR, raw BLOB"
)
WIDER_TYPES = (
    "b BOOLEAN, t BIGINT, u INTEGER, i BIGINT, f DOUBLE, d DOUBLE, dec DECIMAL(9,2), day DATE, us TIMESTAMP,"
    " ms TIMESTAMP, ns TIMESTAMP, tz TIMESTAMPTZ, time TIME, s VARCHAR, raw BLOB"
)


def by_polars(path: Path) -> None:
    pl.DataFrame(
        {"i": [1, 2], "l": [[1], [2, None]], "s": [{"x": 1, "y": [{"z": 1}]}, None], "ll": [[["a"], None], []]}
    ).write_parquet(path)


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "pyarrow": (NESTED_TYPES, lambda path: pq.write_table(NESTED, path)),
    "pyarrow, lists of items": (
        NESTED_TYPES,
        lambda path: pq.write_table(NESTED, path, use_compliant_nested_type=False),
    ),
    "pyarrow, flat": (FLAT_TYPES, lambda path: pq.write_table(FLAT, path)),
    "pyarrow, narrower than the table": (WIDER_TYPES, lambda path: pq.write_table(FLAT, path)),
    "pyarrow, INT96": (
        "us TIMESTAMP",
        lambda path: pq.write_table(FLAT.select(["us"]), path, use_deprecated_int96_timestamps=True),
    ),
    "pyarrow, format 1.0": (
        "u UTINYINT, us TIMESTAMP, dec DECIMAL(5,1)",
        lambda path: pq.write_table(FLAT.select(["u", "us", "dec"]), path, version="1.0"),
    ),
    "pyarrow, other case and order": (
        "a BIGINT, b VARCHAR, c STRUCT(d BIGINT, e BIGINT)",
        lambda path: pq.write_table(pa.table({"B": ["x"], "C": [{"E": 1, "D": 2}], "a": [1]}), path),
    ),
    "polars": (
        "i BIGINT, l BIGINT[], s STRUCT(x BIGINT, y STRUCT(z BIGINT)[]), ll VARCHAR[][]",
        by_polars,
    ),
}


class TestAgainstTheEngine:
    """`lake.add_files` adds a file to one table, and the engine adds the same file to a twin table."""

    @pytest.mark.parametrize("writer", WRITERS)
    def test_rows_name_mapping_and_statistics_are_the_same(self, lake: DuckLake, tmp_path: Path, writer: str) -> None:
        columns, write_file = WRITERS[writer]
        for name in ("t", "twin"):
            make(lake, columns, name=name)
            write_file(tmp_path / f"{name}.parquet")
        result = lake.add_files("t", tmp_path / "t.parquet")
        path = literal(str(tmp_path / "twin.parquet"))
        lake.execute(f"CALL ducklake_add_data_files('lake', 'twin', {path})").raise_for_error()
        assert (result.files_added, result.rows_written) == (1, len(rows(lake, "FROM t")))
        assert rows(lake, "FROM t") == rows(lake, "FROM twin")
        typed = ", ".join(f"CAST({column.name} AS {column.type})" for column in lake.table("t").schema())
        assert rows(lake, "FROM t") == rows(lake, f"SELECT {typed} FROM read_parquet({path})")
        assert mapped(lake) == mapped(lake, "twin")
        for ours, theirs in zip(stats(lake), stats(lake, "twin"), strict=True):
            assert ours[:4] == theirs[:4]
            self.compare_bounds(lake, ours, theirs)

    def compare_bounds(self, lake: DuckLake, ours: tuple[Any, ...], theirs: tuple[Any, ...]) -> None:
        """Our bounds are of the table's type. The engine keeps booleans, bytes and narrower types as in the file."""
        (kind,) = catalog(
            lake, f"SELECT column_type FROM ducklake_column WHERE table_id = {table_id(lake)} AND column_id = {ours[0]}"
        )[0]
        to = {"boolean": lambda text: str(int(text == "true")), "blob": lambda text: text.encode().hex().upper()}
        if kind in to and theirs[4] is not None and "\\x" not in str(theirs[5]):
            assert ours[4:] == tuple(map(to[kind], theirs[4:]))
        elif kind == "float64" and ours[4:] != theirs[4:]:
            assert [float(text) for text in ours[4:]] == pytest.approx([float(text) for text in theirs[4:]])
        elif kind.startswith("decimal"):
            assert [Decimal(text) for text in ours[4:]] == [Decimal(text) for text in theirs[4:]]
        elif kind == "timestamp" and ours[4:] != theirs[4:]:
            assert all(text[:26].startswith(bound) for bound, text in zip(ours[4:], theirs[4:], strict=True))
        elif kind != "blob":
            assert ours[4:] == theirs[4:]

    def test_columns_that_only_the_path_holds_are_the_same(self, lake: DuckLake, tmp_path: Path) -> None:
        folder = "day=2024-01-02/s=a%20b%2Fc/n=__HIVE_DEFAULT_PARTITION__/other=1/flag=true"
        for name in ("t", "twin"):
            make(lake, "i BIGINT, s VARCHAR, n INTEGER, day DATE, flag BOOLEAN", name=name)
            write(tmp_path / name / folder / "f.parquet", {"i": [1, 2]})
        lake.add_files("t", f"{tmp_path}/t/**/*.parquet")
        path = literal(f"{tmp_path}/twin/{folder}/f.parquet")
        lake.execute(f"CALL ducklake_add_data_files('lake', 'twin', {path})").raise_for_error()
        expected = [(1, "a b/c", None, dt.date(2024, 1, 2), True), (2, "a b/c", None, dt.date(2024, 1, 2), True)]
        assert rows(lake, "FROM t") == rows(lake, "FROM twin") == expected
        assert mapped(lake) == mapped(lake, "twin")
        ours, theirs = stats(lake), stats(lake, "twin")
        assert ours[:4] == theirs[:4]
        assert ours[4] == (5, 0, 2, 0, "1", "1")  # the bounds of the flag as the engine's INSERT writes them

    def test_partition_values_are_the_same_as_after_an_insert(self, lake: DuckLake, tmp_path: Path) -> None:
        values = {
            "b BOOLEAN": "true",
            "i INTEGER": "-5",
            "d DOUBLE": "1.0::DOUBLE",
            "dec DECIMAL(9,2)": "1.5::DECIMAL(9,2)",
            "day DATE": "DATE '2024-01-02'",
            "ts TIMESTAMP": "TIMESTAMP '2024-01-02 03:04:05.5'",
            "tz TIMESTAMPTZ": "TIMESTAMPTZ '2024-01-02 03:04:05.5+05'",
            "s VARCHAR": "'é b/c=d'",
            "u UUID": "'00000000-0000-0000-0000-000000000001'::UUID",
            "n VARCHAR": "NULL::VARCHAR",
        }
        columns, sql = ", ".join(values), ", ".join(f"{v} AS {k.split()[0]}" for k, v in values.items())
        keys = ", ".join(k.split()[0] for k in values)
        keys += ", year(ts), month(ts), day(tz), hour(tz), bucket(7, s), bucket(7, i), bucket(7, dec), bucket(7, n)"
        for name in ("t", "twin"):
            make(lake, columns, partition_by=keys, name=name)
        lake.execute(f"INSERT INTO twin SELECT {sql}").raise_for_error()
        lake.add_files("t", copy_out(lake, f"SELECT {sql} FROM range(3)", tmp_path / "f.parquet"))
        assert partitions(lake) == partitions(lake, "twin")
        assert rows(lake, "FROM t") == 3 * rows(lake, "FROM twin")


def edited(path: Path, *changes: tuple[bytes, bytes]) -> str:
    """Write a file with an edited footer, as only old writers produce it."""
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    data, footer = content[: -size - 8], content[-size - 8 : -8]
    for old, new in changes:
        assert footer.count(old) == 1, (old, footer)
        footer = footer.replace(old, new)
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return str(path)


class TestLegacyLists:
    def plain(self, path: Path) -> Path:
        lists = pa.array([[1, 2], [], None], pa.list_(pa.field("element", pa.int64(), nullable=False)))
        write(path, {"l": lists}, store_schema=False, compression="none")
        return path

    def check(self, lake: DuckLake, path: str) -> None:
        lake.add_files("t", path)
        assert rows(lake, "FROM t") == [([1, 2],), ([],), (None,)]
        assert [(stat[0], *stat[4:]) for stat in stats(lake)] == [(2, "1", "2")]

    def test_a_two_level_list_is_read(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "l BIGINT[]")
        make(lake, "l BIGINT[]", name="twin")
        for name in ("t", "twin"):
            path = edited(
                self.plain(tmp_path / f"{name}.parquet"),
                # Four nodes of the schema become three: the group around the element is dropped, the element repeats.
                (b"\x19\x4c", b"\x19\x3c"),
                (b"\x35\x04\x18\x04list\x15\x02\x00", b""),
                (b"\x15\x04\x25\x00\x18\x07element", b"\x15\x04\x25\x04\x18\x05array"),
                (b"\x38\x01l\x04list\x07element", b"\x28\x01l\x05array"),
            )
        lake.execute(f"CALL ducklake_add_data_files('lake', 'twin', {literal(path)})").raise_for_error()
        self.check(lake, str(tmp_path / "t.parquet"))
        assert mapped(lake) == mapped(lake, "twin") == [("l", 1, None, False), ("array", 2, 1, False)]

    def test_a_list_with_another_name_of_its_inner_group_is_read(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "l BIGINT[]")
        changes = [
            (b"\x35\x04\x18\x04list", b"\x35\x04\x18\x04bags"),
            (b"\x01l\x04list\x07element", b"\x01l\x04bags\x07element"),
        ]
        self.check(lake, edited(self.plain(tmp_path / "f.parquet"), *changes))
        assert mapped(lake) == [("l", 1, None, False), ("bags", 2, 1, False)]


class TestFieldIds:
    def with_ids(self, lake: DuckLake, path: Path, ids: str) -> str:
        sql = "SELECT 1::BIGINT AS a, 'x' AS b, [1::BIGINT] AS l, map {'k': 1::BIGINT} AS m, {d: 1::BIGINT} AS s"
        return copy_out(lake, sql, path, f", FIELD_IDS {ids}")

    COLUMNS = "a BIGINT, b VARCHAR, l BIGINT[], m MAP(VARCHAR, BIGINT), s STRUCT(d BIGINT)"
    RIGHT = (
        "{a: 1, b: 2, l: {__duckdb_field_id: 3, element: 4}, m: {__duckdb_field_id: 5, key: 6, value: 7},"
        " s: {__duckdb_field_id: 8, d: 9}}"
    )
    ROW = (1, "x", [1], {"k": 1}, {"d": 1})

    def test_matching_field_ids_need_no_name_mapping(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, self.COLUMNS)
        lake.add_files("t", self.with_ids(lake, tmp_path / "f.parquet", self.RIGHT))
        assert mapped(lake) is None
        assert rows(lake, "FROM t") == [self.ROW]
        lake.execute("ALTER TABLE t RENAME COLUMN a TO z").raise_for_error()
        assert rows(lake, "SELECT z, b FROM t") == [(1, "x")]

    @pytest.mark.parametrize(
        "ids",
        [
            "{a: 1, b: 2}",
            "{a: 2, b: 1, l: 3, m: 5, s: 8}",
            "{a: 1, b: 2, l: 3, m: {__duckdb_field_id: 5, key: 6, value: 7}, s: {__duckdb_field_id: 8, d: 9}}",
            "{a: 1, b: 2, l: {__duckdb_field_id: 3, element: 4}, m: 5, s: {__duckdb_field_id: 8, d: 9}}",
            "{a: 1, b: 2, l: {__duckdb_field_id: 3, element: 4}, m: {__duckdb_field_id: 5, key: 7, value: 6},"
            " s: {__duckdb_field_id: 8, d: 9}}",
            "{a: 1, b: 2, l: {__duckdb_field_id: 3, element: 4}, m: {__duckdb_field_id: 5, key: 6, value: 7}, s: 8}",
        ],
    )
    def test_incomplete_or_wrong_field_ids_are_ignored(self, lake: DuckLake, tmp_path: Path, ids: str) -> None:
        make(lake, self.COLUMNS)
        lake.add_files("t", self.with_ids(lake, tmp_path / "f.parquet", ids))
        assert mapped(lake) is not None
        assert rows(lake, "FROM t") == [self.ROW]
        lake.execute("ALTER TABLE t RENAME COLUMN a TO z").raise_for_error()
        assert rows(lake, "SELECT z, b, s.d FROM t") == [(1, "x", 1)]

    def test_a_column_name_that_contradicts_its_field_id_is_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        # Column ids of every table start at 1, so another table's file has the same ids.
        make(lake, "first BIGINT, second VARCHAR")
        path = copy_out(
            lake,
            "SELECT 1::BIGINT AS other, 'x' AS second",
            tmp_path / "f.parquet",
            ", FIELD_IDS {other: 1, second: 2}",
        )
        refused(errors.DataError, lambda: lake.add_files("t", path), "`other`", "`first`")

    def test_field_ids_are_used_if_the_file_lacks_columns(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT, b VARCHAR, c STRUCT(d BIGINT, e BIGINT)")
        sql = "SELECT 1::BIGINT AS a, {d: 2::BIGINT} AS c"
        path = copy_out(lake, sql, tmp_path / "f.parquet", ", FIELD_IDS {a: 1, c: {__duckdb_field_id: 3, d: 4}}")
        lake.add_files("t", path, allow_missing=True)
        assert mapped(lake) is None
        assert rows(lake, "FROM t") == [(1, None, {"d": 2, "e": None})]

    def test_field_ids_are_used_if_the_file_has_narrower_types(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT, f DOUBLE, ts TIMESTAMP, l BIGINT[], m MAP(VARCHAR, DECIMAL(9,2))")
        sql = "SELECT 1::INTEGER AS a, 0.1::FLOAT AS f, '2024-01-01 00:00:00.123456789'::TIMESTAMP_NS AS ts"
        sql += ", [1::UTINYINT] AS l, map {'k': 1.5::DECIMAL(5,1)} AS m"
        ids = "{a: 1, f: 2, ts: 3, l: {__duckdb_field_id: 4, element: 5}, m: {__duckdb_field_id: 6, key: 7, value: 8}}"
        lake.add_files("t", copy_out(lake, sql, tmp_path / "f.parquet", f", FIELD_IDS {ids}"))
        assert mapped(lake) is None
        moment = dt.datetime(2024, 1, 1, 0, 0, 0, 123456)
        (row,) = rows(lake, "FROM t WHERE a = 1 AND f = 0.1::FLOAT::DOUBLE AND ts = '2024-01-01 00:00:00.123456'")
        assert row == (1, pytest.approx(0.1), moment, [1], {"k": Decimal("1.50")})

    def test_an_extra_column_without_a_field_id_is_matched_by_name(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT, b BIGINT")
        sql = "SELECT 9::BIGINT AS extra, 2::BIGINT AS b, 1::BIGINT AS a"
        path = copy_out(lake, sql, tmp_path / "f.parquet", ", FIELD_IDS {a: 1, b: 2}")
        lake.add_files("t", path, ignore_extra=True)
        assert rows(lake, "FROM t") == [(1, 2)]

    def test_row_ids_of_another_lake_are_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        sql = "SELECT 1::BIGINT AS a, 7::BIGINT AS _ducklake_internal_row_id"
        options = ", FIELD_IDS {a: 1, _ducklake_internal_row_id: 2147483540}"
        path = copy_out(lake, sql, tmp_path / "f.parquet", options)
        refused(errors.DataError, lambda: lake.add_files("t", path, ignore_extra=True), path, "row ids")
