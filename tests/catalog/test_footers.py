"""Statistics from Parquet footers equal those that the engine writes, and unknown ones stay unknown."""

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.catalog.metadata import ColumnDef, ColumnStats, Metadata, TableDef
from ducklake_orch.catalog.parquet import FileColumn, LeafStats, read_footers
from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.quoting import literal, table_name
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.snapshots import metadata
from tests.support.refusals import refused

# A lower and an upper value of every type that Parquet can store.
VALUES = {
    "BOOLEAN": ["false", "true"],
    "TINYINT": ["-3", "4"],
    "SMALLINT": ["-300", "400"],
    "INTEGER": ["9", "10"],
    "BIGINT": ["-1", "9223372036854775807"],
    "UTINYINT": ["9", "255"],
    "USMALLINT": ["9", "65535"],
    "UINTEGER": ["9", "4294967295"],
    "UBIGINT": ["9", "18446744073709551615"],
    "HUGEINT": ["1", "2"],
    "UHUGEINT": ["1", "2"],
    "DECIMAL(4,1)": ["-12.3", "1.5"],
    "DECIMAL(9,2)": ["-12.3", "1.5"],
    "DECIMAL(18,3)": ["-12.3", "1.5"],
    "DECIMAL(38,10)": ["-12.3", "1.5"],
    "DATE": ["'0044-03-15 (BC)'", "'2024-01-15'"],
    "TIME": ["'01:00:00'", "'12:30:00.123456'"],
    "TIMESTAMP": ["'1969-12-31 23:59:59.5'", "'infinity'"],
    "TIMESTAMP_S": ["'1950-01-01'", "'2024-01-15 12:30:00'"],
    "TIMESTAMP_MS": ["'1950-01-01'", "'2024-01-15 12:30:00.123'"],
    "TIMESTAMP_NS": ["'1950-01-01'", "'2024-01-15 12:30:00.123456789'"],
    "TIMESTAMPTZ": ["'2024-01-15 12:30:00.5+02'", "'12024-01-15 12:30:00+02'"],
    "VARCHAR": ["'abc'", "'z''é\"'"],
    "BLOB": ["'a'::BLOB", r"'\xFFabc'::BLOB"],
    "UUID": ["'00000000-0000-0000-0000-000000000001'", "'ffffffff-0000-0000-0000-000000000001'"],
    "JSON": ["'[1]'", "'{\"a\": 1}'"],
    "INTEGER[]": ["[]", "[1, 2, NULL]"],
    "STRUCT(a INTEGER, b STRUCT(c VARCHAR))": ["{a: NULL, b: NULL}", "{a: 1, b: {c: 'x'}}"],
    "MAP(VARCHAR, INTEGER)": ["map {}", "map {'a': 1}"],
}


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


@contextmanager
def opened_table(lake: DuckLake, name: str = "t") -> Iterator[tuple[duckdb.DuckDBPyConnection, TableDef]]:
    with open_session(lake.config) as session, closing(session.instance.root.cursor()) as con:
        tables = Metadata(con, lake.config)
        yield con, tables.table(table_name(name), tables.latest().snapshot_id)


def stats_of(lake: DuckLake, paths: Sequence[Path | str]) -> list[dict[str, LeafStats]]:
    """Return the statistics of files with the columns of table `t`, by column name."""
    with opened_table(lake) as (con, table):
        names = {leaf.column_id: leaf.name for leaf in table.leaves().values()}
        return [
            {names[column_id]: stats for column_id, stats in by_id.items()}
            for shape in read_footers(con, lake.config, [str(path) for path in paths])
            for by_id in shape.statistics(dict(pairs(shape.columns, table.columns))).values()
        ]


def pairs(
    columns: Sequence[FileColumn], targets: Sequence[ColumnDef]
) -> Iterator[tuple[int, tuple[FileColumn, ColumnDef]]]:
    for column, target in zip(columns, targets, strict=True):
        if column.leaf is not None:
            yield column.leaf, (column, target)
        yield from pairs(column.children, target.children)


def written_by_the_engine(lake: DuckLake) -> tuple[list[str], dict[str, ColumnStats]]:
    with opened_table(lake) as (con, table):
        names = {leaf.column_id: leaf.name for leaf in table.leaves().values()}
        rows = con.execute(f"""
            SELECT column_id, column_size_bytes, value_count, null_count, min_value, max_value, contains_nan::BOOLEAN,
                   extra_stats
            FROM {metadata(lake.config, "ducklake_file_column_stats")} WHERE table_id = {table.table_id}""").fetchall()
        (files,) = con.execute(f"SELECT list(file) FROM glob({literal(table.folder + '*')})").fetchall()[0]
    return files, {names[row[0]]: ColumnStats(*row[1:]) for row in rows}


class TestSameStatisticsAsTheEngine:
    """The engine writes a file and its statistics. The file's footer gives the same statistics."""

    def test_statistics_of_every_type_equal_the_engines(self, lake: DuckLake) -> None:
        columns = [f"c{n} {kind}" for n, kind in enumerate(VALUES)]
        rows = ["(" + ", ".join(values[n] for values in VALUES.values()) + ")" for n in (0, 1)]
        nulls = "(" + ", ".join("NULL" for _ in VALUES) + ")"
        values = ", ".join([*rows, nulls])
        lake.execute([f"CREATE TABLE t ({', '.join(columns)})", f"INSERT INTO t VALUES {values}"]).raise_for_error()
        files, expected = written_by_the_engine(lake)
        (found,) = stats_of(lake, files)
        assert {name: leaf.stats for name, leaf in found.items()} == expected
        bound = {name for name, leaf in expected.items() if leaf.min_value is not None}
        assert len(bound) == len(VALUES) + 2 - 2  # structs and maps have two columns; 128 bits no bounds
        assert {name for name, leaf in found.items() if leaf.exact} == bound

    def test_row_group_bounds_are_merged_by_value_not_by_text(self, lake: DuckLake) -> None:
        kinds = {
            "i": "range - 6000",
            "d": "(range / 7)::DECIMAL(12,3)",
            "ts": "TIMESTAMP '1999-12-31 23:00:00' + INTERVAL (range * 7) MINUTE",
            "day": "DATE '0009-12-01' + range::INTEGER",
            "s": "'é' || range",
            "b": "encode('' || range)",
            "n": "CASE WHEN range % 10 = 0 THEN NULL ELSE range END",
            "flag": "range > 9000",
            "l": "[range, NULL]",
        }
        select = ", ".join(f"{sql} AS {name}" for name, sql in kinds.items())
        lake.set_option("parquet_row_group_size", 2048)
        lake.execute(f"CREATE TABLE t AS SELECT {select} FROM range(10000)").raise_for_error()
        files, expected = written_by_the_engine(lake)
        (found,) = stats_of(lake, files)
        assert {name: leaf.stats for name, leaf in found.items()} == expected
        assert (expected["i"].min_value, expected["i"].max_value) == ("-6000", "3999")

    def test_float_statistics_without_a_nan_count_equal_the_engines(self, lake: DuckLake) -> None:
        lake.execute(["CREATE TABLE t (f FLOAT, d DOUBLE)", "INSERT INTO t VALUES (0.1, 9.5), (1.5, 10.25)"])
        files, expected = written_by_the_engine(lake)
        (found,) = stats_of(lake, files)
        for name, low, high in (("f", "0.1", "1.5"), ("d", "9.5", "10.25")):
            assert (found[name].stats.min_value, found[name].stats.max_value) == (low, high)
            assert (expected[name].contains_nan, found[name].stats.contains_nan) == (False, None)

    def test_bounds_of_long_values_are_truncated_as_the_engine_does(self, lake: DuckLake) -> None:
        values = {
            "ascii": "repeat('a', 300)",
            "tilde": "repeat('~', 300)",
            "edge": "repeat('z', 256)",
            "blob": "repeat('a', 256)::BLOB",
        }
        select = ", ".join(f"{sql} AS {name}" for name, sql in values.items())
        lake.execute(f"CREATE TABLE t AS SELECT {select}").raise_for_error()
        files, expected = written_by_the_engine(lake)
        (found,) = stats_of(lake, files)
        assert {name: leaf.stats for name, leaf in found.items()} == expected
        assert {name: leaf.exact for name, leaf in found.items()} == {
            "ascii": False,
            "tilde": False,
            "edge": True,
            "blob": True,
        }

    def test_geometries_have_a_bounding_box_and_geometry_types(self, lake: DuckLake) -> None:
        points = "('POINT(1.5 2)'), ('POINT Z(0.25 3 7)'), ('LINESTRING(0.5 3, 4 5)')"
        lake.execute(["CREATE TABLE t (g GEOMETRY)", f"INSERT INTO t VALUES {points}"]).raise_for_error()
        files, expected = written_by_the_engine(lake)
        (found,) = stats_of(lake, files)
        assert json.loads(str(found["g"].stats.extra)) == json.loads(str(expected["g"].extra))


class TestFilesOfOtherWriters:
    def write(self, lake: DuckLake, table: pa.Table, columns: str, **options: object) -> dict[str, LeafStats]:
        lake.execute(f"CREATE TABLE t ({columns})").raise_for_error()
        path = Path(str(lake.config.data_path)) / "other.parquet"
        pq.write_table(table, path, **options)
        (found,) = stats_of(lake, [path])
        return found

    def test_files_without_a_nan_count_have_unknown_contains_nan(self, lake: DuckLake) -> None:
        table = pa.table({"d": [1.0, float("nan")], "all_nan": [float("nan")] * 2, "endless": [1.0, float("inf")]})
        found = self.write(lake, table, "d DOUBLE, all_nan DOUBLE, endless DOUBLE")
        assert found["d"].stats.contains_nan is None
        assert (found["d"].stats.min_value, found["d"].stats.max_value) == ("1.0", "1.0")
        assert (found["all_nan"].stats.min_value, found["all_nan"].stats.max_value) == (None, None)
        assert found["endless"].stats.max_value is None

    def test_int96_has_no_bounds(self, lake: DuckLake) -> None:
        table = pa.table({"ts": [dt.datetime(2024, 1, 1), None]})
        found = self.write(lake, table, "ts TIMESTAMP", use_deprecated_int96_timestamps=True)
        assert (found["ts"].stats.min_value, found["ts"].stats.max_value, found["ts"].exact) == (None, None, False)

    def test_bounds_are_values_of_the_tables_type(self, lake: DuckLake) -> None:
        table = pa.table(
            {
                "f": pa.array([0.1, 0.2], pa.float32()),
                "ns": pa.array([1_000_000_001, 2_000_000_999], pa.timestamp("ns")),
                "small": pa.array([-1, 7], pa.int8()),
                "dec": pa.array([1, 2]).cast(pa.decimal128(19, 0)).cast(pa.decimal128(5, 1)),
            }
        )
        found = self.write(lake, table, "f DOUBLE, ns TIMESTAMP, small BIGINT, dec DECIMAL(9,2)")
        bounds = {name: (leaf.stats.min_value, leaf.stats.max_value) for name, leaf in found.items()}
        assert bounds == {
            # The FLOAT 0.1 is not equal to the DOUBLE 0.1.
            "f": ("0.10000000149011612", "0.20000000298023224"),
            "ns": ("1970-01-01 00:00:01", "1970-01-01 00:00:02"),
            "small": ("-1", "7"),
            "dec": ("1.00", "2.00"),
        }

    def test_bounds_that_a_row_group_lacks_are_unknown(self, lake: DuckLake) -> None:
        path = Path(str(lake.config.data_path)) / "two groups.parquet"
        lake.execute("CREATE TABLE t (d DOUBLE, i INTEGER)").raise_for_error()
        first = pa.table({"d": [1.0, 2.0], "i": pa.array([None, None], pa.int32())})
        second = pa.table({"d": [float("nan")] * 2, "i": pa.array([5, None], pa.int32())})
        with pq.ParquetWriter(path, first.schema) as writer:
            writer.write_table(first)
            writer.write_table(second)
        (found,) = stats_of(lake, [path])
        assert (found["d"].stats.min_value, found["d"].stats.max_value) == (None, None)
        # A row group with only NULLs has no bounds.
        assert (found["i"].stats.min_value, found["i"].stats.max_value) == ("5", "5")
        assert (found["i"].stats.value_count, found["i"].stats.null_count) == (1, 3)

    def test_statistics_that_a_file_lacks_are_unknown(self, lake: DuckLake) -> None:
        found = self.write(lake, pa.table({"i": [1, 2]}), "i BIGINT", write_statistics=False)
        stats = found["i"].stats
        assert (stats.value_count, stats.null_count, stats.min_value, stats.max_value) == (None, None, None, None)
        assert not found["i"].exact

    def test_long_text_that_is_not_ascii_has_no_upper_bound(self, lake: DuckLake) -> None:
        found = self.write(lake, pa.table({"s": ["é" * 300]}), "s VARCHAR")
        assert (found["s"].stats.min_value, found["s"].stats.max_value) == ("é" * 128, None)


class TestReadingFooters:
    def test_footers_are_read_in_several_batches(self, lake: DuckLake, tmp_path: Path) -> None:
        lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        paths = [tmp_path / f"{n}.parquet" for n in range(300)]
        for n, path in enumerate(paths):
            pq.write_table(pa.table({"i": [n]}), path)
        assert [columns["i"].stats.min_value for columns in stats_of(lake, paths)] == [str(n) for n in range(300)]

    def test_a_path_with_glob_characters_is_read_literally(self, lake: DuckLake, tmp_path: Path) -> None:
        lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        path = tmp_path / "we[i]rd *{0}? it's é.parquet"
        pq.write_table(pa.table({"i": [1]}), path)
        pq.write_table(pa.table({"i": [2]}), tmp_path / "weird anything0x it's é.parquet")
        assert [columns["i"].stats.min_value for columns in stats_of(lake, [path])] == ["1"]

    def test_files_with_different_columns_are_returned_separately(self, lake: DuckLake, tmp_path: Path) -> None:
        for n, column in enumerate(("a", "b", "a")):
            pq.write_table(pa.table({column: [n]}), tmp_path / f"{n}.parquet")
        lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        with opened_table(lake) as (con, _):
            shapes = [
                ([column.name for column in shape.columns], [Path(file.path).stem for file in shape.files])
                for shape in read_footers(con, lake.config, [f"{tmp_path}/{n}.parquet" for n in range(3)])
            ]
        assert shapes == [(["a"], ["0", "2"]), (["b"], ["1"])]

    def test_every_unreadable_file_is_named_with_its_error(self, lake: DuckLake, tmp_path: Path) -> None:
        good = tmp_path / "good.parquet"
        pq.write_table(pa.table({"i": [1]}), good)
        content = good.read_bytes()
        bad = {
            "truncated": content[: len(content) // 2],
            "damaged": content[:-60] + content[-20:],
            "text": b"this is no Parquet file at all",
            "empty": b"",
        }
        for name, data in bad.items():
            (tmp_path / f"{name}.parquet").write_bytes(data)
        (tmp_path / "folder.parquet").mkdir()
        lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        paths = [good, *(tmp_path / f"{name}.parquet" for name in (*bad, "folder", "gone"))]
        text = refused(errors.FileNotUsableError, lambda: stats_of(lake, paths), "6 files", *map(str, paths[1:]))
        assert str(good) not in text
        assert "gone.parquet: the file does not exist" in text

    def test_an_encrypted_file_is_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        path = tmp_path / "secret.parquet"
        with lake.connect() as con:
            load_extension(con.cursor(), "httpfs")
            con.execute("PRAGMA add_parquet_key('k', '0123456789112345')")
            con.execute(f"COPY (SELECT 1 AS i) TO {literal(str(path))} (ENCRYPTION_CONFIG {{footer_key: 'k'}})")
        lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        refused(errors.FileNotUsableError, lambda: stats_of(lake, [path]), str(path), "encrypted")

    def test_reading_footers_leaves_no_objects_in_the_connection(self, lake: DuckLake, tmp_path: Path) -> None:
        pq.write_table(pa.table({"i": [1]}), tmp_path / "f.parquet")
        lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        stats_of(lake, [tmp_path / "f.parquet"])
        with opened_table(lake) as (con, _):
            assert con.execute("SELECT count(*) FROM duckdb_tables() WHERE temporary").fetchone() == (0,)
