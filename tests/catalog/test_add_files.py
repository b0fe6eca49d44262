"""`lake.add_files`: what files of others become in the lake, compared with what the engine makes of the same files."""

import datetime as dt
import re
from collections.abc import Callable, Mapping
from contextlib import closing
from decimal import Decimal
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from ducklake_orch.catalog.file_paths import canonical
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.snapshots import metadata
from ducklake_orch.results import WriteResult
from tests.backends import backends
from tests.conftest import MakeLake
from tests.refusal import refused

Rows = list[tuple[Any, ...]]


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def write(path: Path, columns: Mapping[str, Any] | pa.Table, **options: Any) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(columns if isinstance(columns, pa.Table) else pa.table(dict(columns)), path, **options)
    return str(path)


def copy_out(lake: DuckLake, sql: str, path: Path, options: str = "") -> str:
    """Have plain DuckDB write a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with lake.connect() as con:
        con.execute(f"COPY ({sql}) TO {literal(str(path))} (FORMAT parquet{options})")
    return str(path)


def rows(lake: DuckLake, sql: str) -> Rows:
    with lake.connect() as con:
        return con.execute(sql).fetchall()


def catalog(lake: DuckLake, sql: str) -> Rows:
    """Ask the metadata tables, on a connection that never entered the lake."""
    sql = re.sub(r"\bducklake_\w+", lambda name: metadata(lake.config, name[0]), sql)
    with open_session(lake.config, entering=False) as session, closing(session.instance.root.cursor()) as con:
        return con.execute(sql).fetchall()


def make(lake: DuckLake, columns: str, *, partition_by: str | None = None, name: str = "t") -> None:
    statements = [f"CREATE TABLE {name} ({columns})"]
    statements += [f"ALTER TABLE {name} SET PARTITIONED BY ({partition_by})"] if partition_by else []
    lake.execute(statements).raise_for_error()


def mapped(lake: DuckLake, name: str = "t") -> Rows | None:
    """The name mapping of a table's last file, with the parents' targets in place of the mapping's own numbers."""
    mine = f"WHERE table_id = {table_id(lake, name)} ORDER BY data_file_id DESC LIMIT 1"
    (mapping,) = catalog(lake, f"SELECT mapping_id FROM ducklake_data_file {mine}")[0]
    if mapping is None:
        return None
    joined = "n LEFT JOIN ducklake_name_mapping p ON p.mapping_id = n.mapping_id AND p.column_id = n.parent_column"
    columns = "n.source_name, n.target_field_id, p.target_field_id, n.is_partition::BOOLEAN"
    where = f"n.mapping_id = {mapping} ORDER BY n.target_field_id"
    return catalog(lake, f"SELECT {columns} FROM ducklake_name_mapping {joined} WHERE {where}")


def table_id(lake: DuckLake, name: str = "t") -> int:
    return int(catalog(lake, f"SELECT max(table_id) FROM ducklake_table WHERE table_name = {literal(name)}")[0][0])


def stats(lake: DuckLake, name: str = "t") -> Rows:
    return catalog(
        lake,
        "SELECT column_id, column_size_bytes, value_count, null_count, min_value, max_value"
        f" FROM ducklake_file_column_stats WHERE table_id = {table_id(lake, name)} ORDER BY data_file_id, column_id",
    )


def partitions(lake: DuckLake, name: str = "t") -> Rows:
    """The partition values of each file, as the catalog has them."""
    return catalog(
        lake,
        "SELECT list(partition_value ORDER BY partition_key_index) FROM ducklake_file_partition_value"
        f" WHERE table_id = {table_id(lake, name)} GROUP BY data_file_id ORDER BY data_file_id",
    )


NESTED = pa.table(
    {
        "i": [1, 2],
        "l": [[1], [2, None]],
        "s": [{"x": 1, "y": [{"z": 1}]}, None],
        "m": pa.array([[("a", {"q": 1})], None], pa.map_(pa.string(), pa.struct([("q", pa.int32())]))),
        "ll": [[["a"], None], []],
    }
)
NESTED_TYPES = (
    "i BIGINT, l BIGINT[], s STRUCT(x BIGINT, y STRUCT(z BIGINT)[]), m MAP(VARCHAR, STRUCT(q INTEGER)), ll VARCHAR[][]"
)
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
    """The same file is added to one table by us and to its twin by the engine."""

    @pytest.mark.parametrize("writer", WRITERS)
    def test_rows_names_and_statistics_are_the_same(self, lake: DuckLake, tmp_path: Path, writer: str) -> None:
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
        """Ours are of the table's type; the engine leaves booleans, bytes and narrower types as the file has them."""
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
            assert all(text[:26].startswith(one) for one, text in zip(ours[4:], theirs[4:], strict=True))
        elif kind != "blob":
            assert ours[4:] == theirs[4:]

    def test_columns_that_are_only_in_the_path(self, lake: DuckLake, tmp_path: Path) -> None:
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
        assert ours[4] == (5, 0, 2, 0, "1", "1")  # the flag, as the engine writes it elsewhere

    def test_partition_values_are_those_of_an_insert(self, lake: DuckLake, tmp_path: Path) -> None:
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
    """Write a file with an edited footer: what only old writers make, nobody here can."""
    content = path.read_bytes()
    size = int.from_bytes(content[-8:-4], "little")
    data, footer = content[: -size - 8], content[-size - 8 : -8]
    for old, new in changes:
        assert footer.count(old) == 1, (old, footer)
        footer = footer.replace(old, new)
    path.write_bytes(data + footer + len(footer).to_bytes(4, "little") + b"PAR1")
    return str(path)


class TestOldLists:
    def plain(self, path: Path) -> Path:
        lists = pa.array([[1, 2], [], None], pa.list_(pa.field("element", pa.int64(), nullable=False)))
        write(path, {"l": lists}, store_schema=False, compression="none")
        return path

    def check(self, lake: DuckLake, path: str) -> None:
        lake.add_files("t", path)
        assert rows(lake, "FROM t") == [([1, 2],), ([],), (None,)]
        assert [(one[0], *one[4:]) for one in stats(lake)] == [(2, "1", "2")]

    def test_a_list_of_two_levels(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "l BIGINT[]")
        make(lake, "l BIGINT[]", name="twin")
        for name in ("t", "twin"):
            path = edited(
                self.plain(tmp_path / f"{name}.parquet"),
                # Four columns in the schema become three: the group around the element goes, the element is repeated.
                (b"\x19\x4c", b"\x19\x3c"),
                (b"\x35\x04\x18\x04list\x15\x02\x00", b""),
                (b"\x15\x04\x25\x00\x18\x07element", b"\x15\x04\x25\x04\x18\x05array"),
                (b"\x38\x01l\x04list\x07element", b"\x28\x01l\x05array"),
            )
        lake.execute(f"CALL ducklake_add_data_files('lake', 'twin', {literal(path)})").raise_for_error()
        self.check(lake, str(tmp_path / "t.parquet"))
        assert mapped(lake) == mapped(lake, "twin") == [("l", 1, None, False), ("array", 2, 1, False)]

    def test_a_list_whose_inner_group_has_another_name(self, lake: DuckLake, tmp_path: Path) -> None:
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

    def test_ids_that_are_the_tables_make_names_superfluous(self, lake: DuckLake, tmp_path: Path) -> None:
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
    def test_others_are_not_trusted(self, lake: DuckLake, tmp_path: Path, ids: str) -> None:
        make(lake, self.COLUMNS)
        lake.add_files("t", self.with_ids(lake, tmp_path / "f.parquet", ids))
        assert mapped(lake) is not None
        assert rows(lake, "FROM t") == [self.ROW]
        lake.execute("ALTER TABLE t RENAME COLUMN a TO z").raise_for_error()
        assert rows(lake, "SELECT z, b, s.d FROM t") == [(1, "x", 1)]

    def test_a_name_that_contradicts_them_counts_more(self, lake: DuckLake, tmp_path: Path) -> None:
        # Every table counts its columns from 1, so another table's file has the same ids.
        make(lake, "first BIGINT, second VARCHAR")
        path = copy_out(
            lake,
            "SELECT 1::BIGINT AS other, 'x' AS second",
            tmp_path / "f.parquet",
            ", FIELD_IDS {other: 1, second: 2}",
        )
        refused(errors.DataError, lambda: lake.add_files("t", path), "`other`", "`first`")

    def test_ids_serve_beside_columns_that_the_file_lacks(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT, b VARCHAR, c STRUCT(d BIGINT, e BIGINT)")
        sql = "SELECT 1::BIGINT AS a, {d: 2::BIGINT} AS c"
        path = copy_out(lake, sql, tmp_path / "f.parquet", ", FIELD_IDS {a: 1, c: {__duckdb_field_id: 3, d: 4}}")
        lake.add_files("t", path, allow_missing=True)
        assert mapped(lake) is None
        assert rows(lake, "FROM t") == [(1, None, {"d": 2, "e": None})]

    def test_ids_serve_where_the_file_has_narrower_types(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT, f DOUBLE, ts TIMESTAMP, l BIGINT[], m MAP(VARCHAR, DECIMAL(9,2))")
        sql = "SELECT 1::INTEGER AS a, 0.1::FLOAT AS f, '2024-01-01 00:00:00.123456789'::TIMESTAMP_NS AS ts"
        sql += ", [1::UTINYINT] AS l, map {'k': 1.5::DECIMAL(5,1)} AS m"
        ids = "{a: 1, f: 2, ts: 3, l: {__duckdb_field_id: 4, element: 5}, m: {__duckdb_field_id: 6, key: 7, value: 8}}"
        lake.add_files("t", copy_out(lake, sql, tmp_path / "f.parquet", f", FIELD_IDS {ids}"))
        assert mapped(lake) is None
        moment = dt.datetime(2024, 1, 1, 0, 0, 0, 123456)
        (row,) = rows(lake, "FROM t WHERE a = 1 AND f = 0.1::FLOAT::DOUBLE AND ts = '2024-01-01 00:00:00.123456'")
        assert row == (1, pytest.approx(0.1), moment, [1], {"k": Decimal("1.50")})

    def test_an_extra_column_without_id_would_make_the_engine_count_positions(
        self, lake: DuckLake, tmp_path: Path
    ) -> None:
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


MISFITS: list[tuple[str, pa.Array, str]] = [
    ("INTEGER", pa.array([1], pa.int64()), "make the column wider"),
    ("SMALLINT", pa.array([1], pa.uint16()), "make the column wider"),
    ("UINTEGER", pa.array([1], pa.int8()), "make the column wider"),
    ("FLOAT", pa.array([1.0], pa.float64()), "lake.write"),
    ("DOUBLE", pa.array([1], pa.int32()), "lake.write"),
    ("DECIMAL(9,2)", pa.array([Decimal("1.234")], pa.decimal128(9, 3)), "lake.write"),
    ("DECIMAL(9,2)", pa.array([Decimal(1)], pa.decimal128(9, 0)), "lake.write"),
    ("TIMESTAMP WITH TIME ZONE", pa.array([0], pa.timestamp("us")), "in which zone"),
    ("TIMESTAMP", pa.array([0], pa.timestamp("us", "UTC")), "TIMESTAMP_NTZ"),
    ("TIMESTAMP_MS", pa.array([0], pa.timestamp("ns")), "lake.write"),
    ("DATE", pa.array([0], pa.timestamp("us")), "lake.write"),
    ("VARCHAR", pa.array([b"x"], pa.binary()), "UTF-8"),
    ("BLOB", pa.array(["x"]), "lake.write"),
    ("JSON", pa.array(["{}"]), "mark of JSON"),
    ("UUID", pa.array(["00000000-0000-0000-0000-000000000001"]), "Spark cannot write"),
    ("BIGINT", pa.nulls(1), "only NULLs"),
    ("BIGINT[]", pa.array([1]), "lake.write"),
    ("BIGINT", pa.array([[1]]), "lake.write"),
    ("GEOMETRY", pa.array([b"x"]), "GeoParquet"),
    ("VARIANT", pa.array(["x"]), "cannot be registered"),
]


class TestTypes:
    def test_what_could_lose_something_is_refused_with_advice(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(MISFITS)))
        path = write(tmp_path / "f.parquet", {f"c{n}": values for n, (_, values, _) in enumerate(MISFITS)})
        text = refused(errors.DataError, lambda: lake.add_files("t", path), path)
        lines = [line for line in text.splitlines() if line.startswith("    column")]
        for n, (line, (kind, _, advice)) in enumerate(zip(lines, MISFITS, strict=True)):
            assert line.startswith(f"    column `c{n}`: the table has {kind}, the file ")
            assert advice in line
        assert rows(lake, "FROM t") == []

    def test_int96_does_not_become_an_instant(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "c TIMESTAMPTZ")
        values = pa.array([0], pa.timestamp("us", "UTC"))
        path = write(tmp_path / "f.parquet", {"c": values}, use_deprecated_int96_timestamps=True)
        refused(errors.DataError, lambda: lake.add_files("t", path), "INT96", "outputTimestampType")

    def test_all_misfits_of_all_files_are_in_one_report(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a INTEGER, s STRUCT(x INTEGER, l VARCHAR[]), m MAP(VARCHAR, DATE), need INTEGER NOT NULL")
        write(tmp_path / "good.parquet", {"need": pa.array([1], pa.int32())})
        bad = {
            "a": [1],
            "s": [{"x": "text", "l": [1], "more": 1}],
            "m": pa.array([[("k", "v")]], pa.map_(pa.string(), pa.string())),
        }
        for name in ("bad1", "bad2"):
            write(tmp_path / f"{name}.parquet", bad)
        write(tmp_path / "other.parquet", {"need": pa.array([1], pa.int32()), "b": [1]})
        text = refused(
            errors.DataError,
            lambda: lake.add_files("t", f"{tmp_path}/*.parquet", allow_missing=True),
            "3 files do not fit table `main.t`",
            "bad1.parquet and 1 more like it",
            "`a`: the table has INTEGER, the file BIGINT",
            "`s.x`: the table has INTEGER, the file VARCHAR",
            "`s.l.element`: the table has VARCHAR, the file BIGINT",
            "`s.more`: the table has no such column",
            "`m.value`: the table has DATE, the file VARCHAR",
            "`need`: the file has no such column, and the table allows no NULL in it",
            "`b`: the table has no such column",
        )
        assert "good.parquet" not in text

    def test_nulls_where_the_table_allows_none_are_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "need INTEGER NOT NULL, s STRUCT(x INTEGER) NOT NULL")
        number, struct = pa.array([1, None], pa.int32()), pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))
        some = write(tmp_path / "some.parquet", {"need": number, "s": struct}, write_statistics=False)
        refused(errors.DataError, lambda: lake.add_files("t", some), some, "`need`: 1 rows are NULL", "`s`: 1 rows")
        none = {"need": number.drop_null(), "s": pa.array([{"x": None}], struct.type)}
        assert lake.add_files("t", write(tmp_path / "none.parquet", none)).rows_written == 1

    def test_two_columns_whose_names_differ_in_case_are_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1], "A": [2]})
        refused(errors.DataError, lambda: lake.add_files("t", path, ignore_extra=True), "two columns")


class TestMissingAndExtraColumns:
    def test_they_are_reported_with_the_option_that_allows_them(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT, b BIGINT, s STRUCT(x BIGINT, y BIGINT)")
        path = write(tmp_path / "f.parquet", {"a": [1], "s": [{"x": 1}], "c": [1]})

        def add(**options: Any) -> WriteResult:
            return lake.add_files("t", path, **options)

        refused(errors.DataError, add, "`b`", "`s.y`", "allow_missing=True", "`c`", "ignore_extra=True")
        refused(errors.DataError, lambda: add(allow_missing=True), "`c`")
        refused(errors.DataError, lambda: add(ignore_extra=True), "`b`", "`s.y`")
        add(allow_missing=True, ignore_extra=True)
        assert rows(lake, "FROM t") == [(1, None, {"x": 1, "y": None})]

    def test_a_missing_column_reads_as_its_default_and_has_its_statistics(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        lake.execute(
            [
                "ALTER TABLE t ADD COLUMN d DOUBLE DEFAULT 7",
                "ALTER TABLE t ADD COLUMN s VARCHAR",
                "ALTER TABLE t ADD COLUMN flag BOOLEAN DEFAULT 'true'",
                "ALTER TABLE t ADD COLUMN l BIGINT[]",
            ]
        ).raise_for_error()
        lake.add_files("t", write(tmp_path / "f.parquet", {"a": [1, 2]}), allow_missing=True)
        assert rows(lake, "FROM t") == [(1, 7.0, None, True, None), (2, 7.0, None, True, None)]
        assert stats(lake)[1:] == [
            (2, 0, 2, 0, "7.0", "7.0"),
            (3, 0, 0, 2, None, None),
            (4, 0, 2, 0, "1", "1"),
            (6, 0, 0, 2, None, None),
        ]
        for where in ("d = 7", "s IS NULL", "flag", "l IS NULL", "d < 8"):
            assert len(rows(lake, f"FROM t WHERE {where}")) == 2, where
        for where in ("d > 7", "s IS NOT NULL", "NOT flag", "l IS NOT NULL"):
            assert rows(lake, f"FROM t WHERE {where}") == [], where


class TestPartitions:
    DAY = dt.datetime(2024, 3, 5, 7)

    def test_the_value_comes_from_the_rows_wherever_the_file_lies(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "region VARCHAR, ts TIMESTAMP", partition_by="region, year(ts), month(ts), day(ts), hour(ts)")
        times = [self.DAY, self.DAY + dt.timedelta(minutes=59)]
        lake.add_files("t", write(tmp_path / "f.parquet", {"region": ["eu", "eu"], "ts": times}))
        assert partitions(lake) == [(["eu", "2024", "3", "5", "7"],)]
        for where in ("region = 'eu'", "ts >= '2024-03-05' AND ts < '2024-03-06'", "month(ts) = 3"):
            assert len(rows(lake, f"FROM t WHERE {where}")) == 2

    @pytest.mark.parametrize("statistics", [True, False])
    @pytest.mark.parametrize(
        ("transform", "apart", "values"),
        [
            ("year(ts)", dt.timedelta(days=310), ["`2024`", "`2025`"]),
            ("month(ts)", dt.timedelta(days=30), ["`3`", "`4`"]),
            ("day(ts)", dt.timedelta(days=1), ["`5`", "`6`"]),
            ("hour(ts)", dt.timedelta(hours=1), ["`7`", "`8`"]),
            ("ts", dt.timedelta(hours=1), ["2024-03-05 07:00:00", "2024-03-05 08:00:00"]),
            ("bucket(1000, ts)", dt.timedelta(hours=1), ["`bucket(1000, ts)` is `", "` and `"]),
        ],
    )
    def test_a_file_of_several_partitions_is_refused(
        self, lake: DuckLake, tmp_path: Path, transform: str, apart: dt.timedelta, values: list[str], statistics: bool
    ) -> None:
        make(lake, "ts TIMESTAMP", partition_by=transform)
        times = [self.DAY, self.DAY + apart]
        path = write(tmp_path / "f.parquet", {"ts": times}, write_statistics=statistics)
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), path, "several partitions", *values)

    def test_a_transform_that_bounds_cannot_prove_is_read(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "ts TIMESTAMP", partition_by="month(ts)")
        march = [dt.datetime(2023, 3, 1), dt.datetime(2024, 3, 31)]
        lake.add_files("t", write(tmp_path / "only march.parquet", {"ts": march}))
        assert partitions(lake) == [(["3"],)]
        path = write(tmp_path / "july too.parquet", {"ts": [*march, dt.datetime(2023, 7, 1)]})
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), "`3` and `7`")

    def test_nulls_are_a_partition_of_their_own(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR, x BIGINT", partition_by="s, bucket(4, s)")
        nulls = pa.nulls(2, pa.string())
        lake.add_files("t", write(tmp_path / "nulls.parquet", {"s": nulls, "x": [1, 2]}))
        assert partitions(lake) == [([None, None],)]
        for statistics in (True, False):
            path = write(tmp_path / "f.parquet", {"s": ["a", None], "x": [1, 2]}, write_statistics=statistics)
            refused(errors.PartitionMismatchError, partial(lake.add_files, "t", path), "`a` and NULL")

    @pytest.mark.parametrize(
        ("columns", "key", "table", "value", "options"),
        [
            ("s VARCHAR", "s", {"s": ["x" * 300] * 2}, "x" * 300, {}),
            ("ts TIMESTAMP", "day(ts)", {"ts": [DAY] * 2}, "5", {"use_deprecated_int96_timestamps": True}),
            ("d DOUBLE", "d", {"d": [1.5, 1.5]}, "1.5", {}),
            ("i BIGINT", "bucket(2, i)", {"i": [0, 1, 4]}, None, {}),
            ("raw BLOB", "raw", {"raw": [b"ab", b"ab"]}, "ab", {}),
            ("i BIGINT", "i", {"i": [7, 7]}, "7", {"write_statistics": False}),
        ],
    )
    def test_where_statistics_do_not_tell_the_column_is_read(
        self, lake: DuckLake, tmp_path: Path, columns: str, key: str, table: Any, value: Any, options: Any
    ) -> None:
        make(lake, columns, partition_by=key)
        if value is None:
            (value,) = rows(
                lake, "SELECT list(DISTINCT (murmur3_32(v::BIGINT) & 2147483647) % 2) FROM unnest([0, 1, 4]) t(v)"
            )[0]
            assert len(value) == 1
            value = str(value[0])
        lake.add_files("t", write(tmp_path / "f.parquet", table, **options))
        assert partitions(lake) == [([value],)]

    def test_long_texts_that_begin_alike_are_not_taken_for_one(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR", partition_by="s")
        sql = "SELECT repeat('x', 300) || i AS s FROM range(2) t(i)"
        path = copy_out(lake, sql, tmp_path / "f.parquet")
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), path)

    def test_a_moment_in_infinity_has_no_year(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "ts TIMESTAMP", partition_by="year(ts)")
        make(lake, "ts TIMESTAMP", partition_by="year(ts)", name="twin")
        endless = "SELECT TIMESTAMP 'infinity' AS ts"
        lake.execute(f"INSERT INTO twin {endless}").raise_for_error()
        lake.add_files("t", copy_out(lake, endless, tmp_path / "f.parquet"))
        assert partitions(lake) == partitions(lake, "twin") == [([None],)]
        path = copy_out(lake, f"{endless} UNION ALL SELECT TIMESTAMP '-infinity'", tmp_path / "both.parquet")
        assert lake.add_files("t", path).rows_written == 2
        path = copy_out(lake, f"{endless} UNION ALL SELECT TIMESTAMP '2024-01-01'", tmp_path / "mixed.parquet")
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), "`2024` and NULL")

    def test_instants_are_placed_in_utc(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "ts TIMESTAMPTZ", partition_by="year(ts), day(ts)")
        times = pa.array(
            [dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9)))], pa.timestamp("us", "Asia/Tokyo")
        )
        lake.add_files("t", write(tmp_path / "f.parquet", {"ts": times}))
        assert partitions(lake) == [(["2023", "31"],)]

    @pytest.mark.parametrize(
        ("folder", "says", "has"),
        [
            ("region=us/year=2024", "`us`", "`eu`"),
            ("region=__HIVE_DEFAULT_PARTITION__/year=2024", "NULL", "`eu`"),
            ("region=eu/year=2023", "`2023`", "`2024`"),
        ],
    )
    def test_a_path_that_contradicts_the_rows_is_refused(
        self, lake: DuckLake, tmp_path: Path, folder: str, says: str, has: str
    ) -> None:
        make(lake, "region VARCHAR, ts TIMESTAMP", partition_by="region, year(ts)")
        path = write(tmp_path / folder / "f.parquet", {"region": ["eu"], "ts": [self.DAY]})
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), path, "its path says", says, has)

    def test_a_path_that_agrees_may_spell_it_differently(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR, ts TIMESTAMP, d DOUBLE", partition_by="s, month(ts), d")
        table = {"s": ["a b"], "ts": [self.DAY], "d": [1.0]}
        lake.add_files("t", write(tmp_path / "S=a b/month=03/d=1/f.parquet", table))
        assert partitions(lake) == [(["a b", "3", "1.0"],)]

    def test_a_key_that_is_only_in_the_path_has_its_value_there(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "region VARCHAR, ts DATE, x BIGINT", partition_by="region, year(ts)")
        write(tmp_path / "Region=a%2Fb" / "ts=2024-05-06" / "f.parquet", {"x": [1, 2]})
        lake.add_files("t", f"{tmp_path}/**/*.parquet")
        assert partitions(lake) == [(["a/b", "2024"],)]
        assert rows(lake, "FROM t WHERE region = 'a/b'")[0] == ("a/b", dt.date(2024, 5, 6), 1)

    @pytest.mark.parametrize(
        ("folder", "words"),
        [
            ("n=x", ["`n=x`", "INTEGER"]),
            ("n=1/n=2", ["`n=1` and `n=2`"]),
            ("s=null", ["NULL or the text", "__HIVE_DEFAULT_PARTITION__"]),
        ],
    )
    def test_a_path_that_says_nothing_clear_is_refused(
        self, lake: DuckLake, tmp_path: Path, folder: str, words: list[str]
    ) -> None:
        make(lake, "n INTEGER, s VARCHAR, x BIGINT")
        path = write(tmp_path / folder / "f.parquet", {"x": [1]})
        refused(errors.DataError, lambda: lake.add_files("t", path, allow_missing=True), path, *words)

    def test_a_missing_key_is_in_the_partition_of_its_default(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "x BIGINT")
        lake.execute(
            [
                "ALTER TABLE t ADD COLUMN region VARCHAR DEFAULT 'eu'",
                "ALTER TABLE t ADD COLUMN other VARCHAR",
                "ALTER TABLE t SET PARTITIONED BY (region, bucket(8, region), other)",
            ]
        ).raise_for_error()
        lake.add_files("t", write(tmp_path / "f.parquet", {"x": [1]}), allow_missing=True)
        bucket = rows(lake, "SELECT ((murmur3_32('eu') & 2147483647) % 8)::VARCHAR")[0][0]
        assert partitions(lake) == [(["eu", bucket, None],)]


class TestFilesTheLakeHasAlready:
    def add_twice(self, lake: DuckLake, first: Any, second: Any, *words: str, **options: Any) -> None:
        lake.add_files("t", first)
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", second, **options), *words)
        assert rows(lake, "SELECT count(*) FROM t") == [(1,)]

    def test_a_file_is_added_once(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "it's f.parquet", {"a": [1]})
        self.add_twice(lake, path, path, path, "table `main.t` has it")
        # A copy of it would double the rows all the same.
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path, copy=True), path)

    def test_whatever_its_path_is_called(self, lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "real" / "f.parquet", {"a": [1]})
        (tmp_path / "link").symlink_to(tmp_path / "real")
        monkeypatch.chdir(tmp_path)
        self.add_twice(lake, path, "real//./f.parquet", path)
        for other in (
            "link/f.parquet",
            f"file://{path}",
            "../*/rea?/f.parquet",
            tmp_path / "link" / ".." / "link" / "f.parquet",
        ):
            refused(errors.DuplicateFileError, partial(lake.add_files, "t", other), path)

    def test_the_same_file_twice_in_one_call(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        both = [path, f"{tmp_path}/*.parquet"]
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", both), "given twice", path, "*.parquet")

    def test_a_file_of_another_table_comes_in_as_a_copy_only(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        make(lake, "a BIGINT", name="other")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("other", path)
        # When either table drops the file, it would be gone from both.
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path), "`main.other`", "copy=True")
        assert lake.add_files("t", path, copy=True).rows_written == 1

    def test_a_file_that_the_lake_will_delete_is_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        lake.execute("DELETE FROM t").raise_for_error()
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path), "up to snapshot 3", "expires")
        lake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())", force=True).raise_for_error()
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path), "about to delete it")
        assert lake.add_files("t", path, copy=True).rows_written == 1

    def test_of_two_who_add_the_same_file_at_once_one_does(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        together = Barrier(2)
        outcomes: list[object] = []

        def add() -> None:
            together.wait()
            try:
                outcomes.append(lake.add_files("t", path).rows_written)
            except errors.DuplicateFileError as error:
                outcomes.append(type(error))

        threads = [Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(str, outcomes)) == ["1", str(errors.DuplicateFileError)]
        assert rows(lake, "FROM t") == [(1,)]


class TestPaths:
    def stored(self, lake: DuckLake) -> Rows:
        return catalog(lake, "SELECT path, path_is_relative::BOOLEAN FROM ducklake_data_file ORDER BY data_file_id")

    def orphans(self, lake: DuckLake) -> Rows:
        return rows(lake, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)")

    def test_files_in_the_tables_folder_are_stored_as_its_own(
        self, lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(lake, "a BIGINT", partition_by="a")
        folder = tmp_path / "lake.files" / "main" / "t"
        write(folder / "a=1" / "f.parquet", {"a": [1]})
        write(folder / "g.parquet", {"a": [2]})
        (tmp_path / "link").symlink_to(tmp_path / "lake.files")
        monkeypatch.chdir(folder)
        lake.add_files("t", ["a=1/f.parquet", tmp_path / "link" / "main" / "t" / "g.parquet"])
        assert self.stored(lake) == [("a=1/f.parquet", True), ("g.parquet", True)]
        assert self.orphans(lake) == []
        assert rows(lake, "FROM t ORDER BY a") == [(1,), (2,)]

    def test_files_elsewhere_under_the_data_path_are_no_orphans(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "lake.files" / "landing" / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        assert self.stored(lake) == [(path, False)]
        assert self.orphans(lake) == []

    def test_a_lake_behind_a_link_keeps_its_own_spelling(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        lake = DuckLake.local(tmp_path / "link" / "lake", data_inlining_row_limit=0)
        make(lake, "a BIGINT")
        lake.add_files("t", write(tmp_path / "real" / "lake.files" / "main" / "t" / "f.parquet", {"a": [1]}))
        assert self.stored(lake) == [("f.parquet", True)]
        assert self.orphans(lake) == []

    def test_whoever_adds_files_from_elsewhere_is_told_that_the_lake_owns_them(
        self, lake: DuckLake, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        assert "belong to the lake now" in caplog.text
        assert path in caplog.text

    @pytest.mark.parametrize(
        ("path", "kind", "words"),
        [
            ("{tmp}", errors.ConfigError, ["is a folder", "**/*.parquet"]),
            ("{tmp}/*.nothing", errors.FileNotUsableError, ["No file matches"]),
            ("{tmp}/gone.parquet", errors.FileNotUsableError, ["gone.parquet: there is no such file"]),
            ("https://localhost/f.parquet", errors.ConfigError, ["copy=True"]),
        ],
    )
    def test_paths_that_lead_nowhere(
        self, lake: DuckLake, tmp_path: Path, path: str, kind: type[errors.DuckLakeOrchError], words: list[str]
    ) -> None:
        make(lake, "a BIGINT")
        refused(kind, lambda: lake.add_files("t", path.format(tmp=tmp_path)), *words)

    def test_one_spelling_of_every_address(self) -> None:
        cases = {
            ("s3a://b/x//y/./f.parquet", "s3://other/"): "s3://b/x/y/f.parquet",
            ("s3n://b/f.parquet", "/data/"): "s3://b/f.parquet",
            ("gcs://b/f.parquet", "gs://b/"): "gs://b/f.parquet",
            ("gs://b/f.parquet", "gcs://b/"): "gcs://b/f.parquet",
            ("azure://c/f.parquet", "az://c/"): "az://c/f.parquet",
            ("r2://b/f.parquet", "s3://b/"): "r2://b/f.parquet",
            ("file:///a//b/../f.parquet", "s3://b/"): "/a/f.parquet",
        }
        assert {given: canonical(*given) for given in cases} == cases
        refused(errors.ConfigError, lambda: canonical("abfss://c@account.dfs.core.windows.net/f", "az://c/"), "az://")


class TestCopies:
    def test_they_lie_where_the_engine_would_have_put_them(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR, ts TIMESTAMP, n VARCHAR", partition_by="s, month(ts), bucket(4, s), n")
        lake.execute("INSERT INTO t VALUES ('a b/é', '2024-03-05', NULL)").raise_for_error()
        columns = {"s": ["a b/é"], "ts": [dt.datetime(2024, 3, 6)], "n": pa.nulls(1, pa.string())}
        path = write(tmp_path / "f.parquet", columns)
        result = lake.add_files("t", path, copy=True)
        theirs, ours = [Path(one) for (one,) in catalog(lake, "SELECT path FROM ducklake_data_file ORDER BY 1 DESC")]
        assert {theirs.parent, ours.parent} == {theirs.parent}
        write_id = lake.snapshots()[0].extra["ducklake_orch"]["write_id"]
        assert sum(f"ducklake-{write_id}-" in one.name for one in (theirs, ours)) == 1
        assert result.partitions[0].values["s"] == "a b/é"
        copies = list((tmp_path / "lake.files" / "main" / "t").rglob(f"ducklake-{write_id}-*.parquet"))
        assert [one.read_bytes() for one in copies] == [Path(path).read_bytes()]
        # The engine compacts only files of one folder.
        merged = rows(lake, "CALL ducklake_merge_adjacent_files('lake', 't')")
        assert merged[0][2:] == (2, 1)
        assert len(rows(lake, "FROM t")) == 2

    def test_values_that_are_only_in_the_path_come_along(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "region VARCHAR, day DATE, x BIGINT", partition_by="region")
        write(tmp_path / "Region=a%20b" / "Day=2024-01-02" / "f.parquet", {"x": [1]})
        lake.add_files("t", f"{tmp_path}/Reg*/**/*.parquet", copy=True)
        ((path, relative),) = catalog(lake, "SELECT path, path_is_relative::BOOLEAN FROM ducklake_data_file")
        assert (path.rpartition("/")[0], relative) == ("region=a%20b/Day=2024-01-02", True)
        assert rows(lake, "FROM t") == [("a b", dt.date(2024, 1, 2), 1)]

    def test_the_files_themselves_are_left_alone(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path, copy=True)
        lake.execute("DROP TABLE t").raise_for_error()
        lake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())", force=True).raise_for_error()
        lake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)", force=True).raise_for_error()
        assert list((tmp_path / "lake.files").rglob("*.parquet")) == []
        assert Path(path).exists()

    def test_of_a_call_that_fails_nothing_is_left(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path, copy=True))
        assert list((tmp_path / "lake.files").rglob("*.parquet")) == []


class TestTheCommit:
    def test_files_without_rows_are_left_out_and_named(
        self, lake: DuckLake, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(lake, "a BIGINT")
        empty = write(tmp_path / "empty.parquet", {"a": pa.array([], pa.int64())})
        full = write(tmp_path / "full.parquet", {"a": [1]})
        assert lake.add_files("t", [empty, full]).files_added == 1
        assert empty in caplog.text
        before = lake.snapshots()[0].snapshot_id
        result = lake.add_files("t", empty)
        assert (result.snapshot_id, result.files_added) == (before, 0)

    def test_a_key_that_is_committed_is_not_added_again(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        for copy in (False, True):
            first = lake.add_files("t", path, idempotency_key="load-1")
            again = lake.add_files("t", path, copy=copy, idempotency_key="load-1")
            assert (again.replayed, again.snapshot_id, again.rows_written) == (True, first.snapshot_id, 0)
        assert rows(lake, "FROM t") == [(1,)]

    def test_a_table_that_is_not_there_is_named(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        refused(errors.ObjectNotFoundError, lambda: lake.add_files("tt", tmp_path / "f.parquet"), "`main.tt`", "main.t")

    def test_encrypted_lakes_are_refused_before_anything_is_read(self, tmp_path: Path) -> None:
        lake = DuckLake.local(tmp_path / "lake", encrypted=True)
        make(lake, "a BIGINT")
        refused(errors.UnsupportedStatementError, lambda: lake.add_files("t", tmp_path / "gone.parquet"), "encrypted")

    def test_the_snapshot_tells_who_and_what(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1, 2]})
        result = lake.add_files("t", path, commit=CommitInfo(author="me", message="initial load"))
        newest = lake.snapshots()[0]
        assert (newest.author, newest.message) == ("me", "initial load")
        assert newest.changes == [f"inserted_into_table:{table_id(lake)}"]
        assert result.to_dict()["mode"] == "add_files"

    def test_rows_can_be_changed_by_the_engine_afterwards(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, NESTED_TYPES)
        lake.add_files("t", write(tmp_path / "f.parquet", NESTED))
        lake.execute(
            [
                "UPDATE t SET i = 10 WHERE i = 1",
                "DELETE FROM t WHERE i = 2",
                "ALTER TABLE t RENAME COLUMN i TO j",
                "ALTER TABLE t DROP COLUMN m",
                "INSERT INTO t VALUES (3, [3], NULL, NULL)",
                "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
                "CALL ducklake_merge_adjacent_files('lake', 't')",
            ]
        ).raise_for_error()
        assert rows(lake, "SELECT j, l FROM t ORDER BY j") == [(3, [3]), (10, [1])]
        assert len(rows(lake, "FROM t AT (VERSION => 2)")) == 2


@backends()
def test_files_are_added_and_copied_everywhere(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    make(lake, "id BIGINT, s VARCHAR, l BIGINT[]", partition_by="s")
    root = f"{lake.config.data_path}landing"
    if "://" not in root:
        Path(root).mkdir(parents=True)
    with lake.connect() as con:
        for n in range(3):
            sql = f"SELECT range AS id, 'part {n % 2}' AS s, [range, NULL] AS l FROM range({n + 1})"
            con.execute(f"COPY ({sql}) TO {literal(f'{root}/file {n}.parquet')} (FORMAT parquet)")
    result = lake.add_files("t", [f"{root}/file 0.parquet", f"{root}/./file 1.parquet"])
    assert (result.files_added, result.rows_written) == (2, 3)
    copied = lake.add_files("t", f"{root}/file 2*", copy=True)
    assert copied.partitions[0].values == {"s": "part 0"}
    expected = [(0, "part 0", [0, None]), (0, "part 0", [0, None]), (0, "part 1", [0, None])]
    expected += [(1, "part 0", [1, None]), (1, "part 1", [1, None]), (2, "part 0", [2, None])]
    assert rows(lake, "FROM t ORDER BY id, s") == expected
    assert rows(lake, "SELECT id FROM t WHERE s = 'part 1' ORDER BY id") == [(0,), (1,)]
    refused(errors.DuplicateFileError, lambda: lake.add_files("t", f"{root}/file 0.parquet"), "file 0.parquet")
    orphans = rows(lake, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)")
    assert orphans == [(f"{root}/file 2.parquet",)]
