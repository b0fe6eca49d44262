"""`lake.add_files` refuses files whose types do not fit the table."""

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.results import WriteResult
from tests.support.added_files import (
    local_lake,
    make,
    rows,
    stats,
    write,
)
from tests.support.refusals import refused


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return local_lake(tmp_path)


MISFITS: list[tuple[str, pa.Array, str]] = [
    ("INTEGER", pa.array([1], pa.int64()), "Make the column wider"),
    ("SMALLINT", pa.array([1], pa.uint16()), "Make the column wider"),
    ("UINTEGER", pa.array([1], pa.int8()), "Make the column wider"),
    ("FLOAT", pa.array([1.0], pa.float64()), "lake.write"),
    ("DOUBLE", pa.array([1], pa.int32()), "lake.write"),
    ("DECIMAL(9,2)", pa.array([Decimal("1.234")], pa.decimal128(9, 3)), "lake.write"),
    ("DECIMAL(9,2)", pa.array([Decimal(1)], pa.decimal128(9, 0)), "lake.write"),
    ("TIMESTAMP WITH TIME ZONE", pa.array([0], pa.timestamp("us")), "record the time zone"),
    ("TIMESTAMP", pa.array([0], pa.timestamp("us", "UTC")), "TIMESTAMP_NTZ"),
    ("TIMESTAMP_MS", pa.array([0], pa.timestamp("ns")), "lake.write"),
    ("DATE", pa.array([0], pa.timestamp("us")), "lake.write"),
    ("VARCHAR", pa.array([b"x"], pa.binary()), "UTF-8"),
    ("BLOB", pa.array(["x"]), "lake.write"),
    ("JSON", pa.array(["{}"]), "annotate text as JSON"),
    ("UUID", pa.array(["00000000-0000-0000-0000-000000000001"]), "Spark cannot write"),
    ("BIGINT", pa.nulls(1), "all its values are NULL"),
    ("BIGINT[]", pa.array([1]), "lake.write"),
    ("BIGINT", pa.array([[1]]), "lake.write"),
    ("GEOMETRY", pa.array([b"x"]), "GeoParquet"),
    ("VARIANT", pa.array(["x"]), "cannot be registered"),
]


class TestTypes:
    def test_lossy_types_are_refused_with_advice(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, ", ".join(f"c{n} {kind}" for n, (kind, _, _) in enumerate(MISFITS)))
        path = write(tmp_path / "f.parquet", {f"c{n}": values for n, (_, values, _) in enumerate(MISFITS)})
        text = refused(errors.DataError, lambda: lake.add_files("t", path), path)
        lines = [line for line in text.splitlines() if line.startswith("    column")]
        for n, (line, (kind, _, advice)) in enumerate(zip(lines, MISFITS, strict=True)):
            assert line.startswith(f"    column `c{n}`: the table has {kind}, the file ")
            assert advice in line
        assert rows(lake, "FROM t") == []

    def test_int96_is_refused_for_a_timestamp_with_time_zone(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "c TIMESTAMPTZ")
        values = pa.array([0], pa.timestamp("us", "UTC"))
        path = write(tmp_path / "f.parquet", {"c": values}, use_deprecated_int96_timestamps=True)
        refused(errors.DataError, lambda: lake.add_files("t", path), "INT96", "outputTimestampType")

    def test_one_error_lists_the_misfits_of_all_files(self, lake: DuckLake, tmp_path: Path) -> None:
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
            "`a`: the table has INTEGER, the file has BIGINT",
            "`s.x`: the table has INTEGER, the file has VARCHAR",
            "`s.l.element`: the table has VARCHAR, the file has BIGINT",
            "`s.more`: the table has no such column",
            "`m.value`: the table has DATE, the file has VARCHAR",
            "`need`: the file has no such column, and the table's column is NOT NULL",
            "`b`: the table has no such column",
        )
        assert "good.parquet" not in text

    def test_nulls_in_not_null_columns_are_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "need INTEGER NOT NULL, s STRUCT(x INTEGER) NOT NULL")
        number, struct = pa.array([1, None], pa.int32()), pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))
        with_nulls = write(tmp_path / "some.parquet", {"need": number, "s": struct}, write_statistics=False)
        refused(
            errors.DataError,
            lambda: lake.add_files("t", with_nulls),
            with_nulls,
            "`need`: 1 rows are NULL",
            "`s`: 1 rows",
        )
        without_nulls = {"need": number.drop_null(), "s": pa.array([{"x": None}], struct.type)}
        assert lake.add_files("t", write(tmp_path / "none.parquet", without_nulls)).rows_written == 1

    def test_two_columns_whose_names_differ_in_case_are_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1], "A": [2]})
        refused(errors.DataError, lambda: lake.add_files("t", path, ignore_extra=True), "two columns")


class TestMissingAndExtraColumns:
    def test_the_error_names_the_option_that_allows_the_columns(self, lake: DuckLake, tmp_path: Path) -> None:
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
