"""Every type is read as DuckDB reads it: NULLs and extremes, in all time zones, from files and inlined rows."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.errors import UnsupportedStatementError
from tests.support.spark_reads import ENGINES, check, execute, expected, is_native, read_rows

Types = dict[str, tuple[str, list[str], str | None]]
# DuckDB type, sample values, and the DuckDB name of the type that Spark reads, if it differs.
PLAIN: Types = {
    "boolean": ("BOOLEAN", ["true", "false"], None),
    "int8": ("TINYINT", ["-128", "127"], None),
    "int16": ("SMALLINT", ["-32768", "32767"], None),
    "int32": ("INTEGER", ["-2147483648", "2147483647"], None),
    "int64": ("BIGINT", ["-9223372036854775808", "9223372036854775807"], None),
    "uint8": ("UTINYINT", ["0", "255"], "SMALLINT"),
    "uint16": ("USMALLINT", ["0", "65535"], "INTEGER"),
    "uint32": ("UINTEGER", ["0", "4294967295"], "BIGINT"),
    "uint64": ("UBIGINT", ["0", "18446744073709551615"], "DECIMAL(20, 0)"),
    "float32": ("FLOAT", ["'-inf'", "'nan'", "1.1", "-0.0", "3.4028235e38"], None),
    "float64": ("DOUBLE", ["'inf'", "'nan'", "1.1", "-0.0", "1.7976931348623157e308"], None),
    "decimal_small": ("DECIMAL(4, 2)", ["-99.99", "99.99"], None),
    "decimal_middle": ("DECIMAL(18, 6)", ["-999999999999.999999", "0.000001"], None),
    "decimal_large": ("DECIMAL(38, 10)", ["-9999999999999999999999999999.9999999999", "0.5"], None),
    "date": ("DATE", ["'0001-01-01'", "'9999-12-31'", "'1582-10-10'", "'44-03-15 (BC)'"], None),
    "timestamp": ("TIMESTAMP", ["'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'2024-03-31 02:30:00'"], None),
    "timestamp_s": ("TIMESTAMP_S", ["'1900-01-01'", "'2024-10-27 02:30:00'"], "TIMESTAMP"),
    "timestamp_ms": ("TIMESTAMP_MS", ["'1900-01-01 00:00:00.001'", "'2024-03-10 02:30:00'"], "TIMESTAMP"),
    "timestamptz": ("TIMESTAMPTZ", ["'0001-01-02 00:00:00+00'", "'9999-12-30 23:59:59.999999+00'"], None),
    "varchar": ("VARCHAR", ["''", "'é 🦆 \\'", "repeat('x', 300)"], None),
    "json": ("JSON", ["'{\"a\": [1, null]}'", "'null'"], "VARCHAR"),
    "blob": ("BLOB", ["''::BLOB", "'\\x00\\xFF'::BLOB"], None),
    "list": ("INTEGER[][]", ["[]", "[[1, NULL], NULL, []]"], None),
    "struct": ('STRUCT(a INT, "b c" STRUCT(d DATE))', ["{'a': 1, 'b c': NULL}", "{'a': 2, 'b c': {'d': NULL}}"], None),
    "map": ("MAP(VARCHAR, DECIMAL(9, 2)[])", ["MAP {}", "MAP {'k': [1.5, NULL], '': NULL}"], None),
    "many": ("STRUCT(l STRUCT(t TIMESTAMPTZ)[])[]", ["[{'l': [{'t': '2024-01-01 00:00:00+00'}, NULL]}]"], None),
}  # fmt: skip
ONLY_DUCKDB: Types = {
    "int128": ("HUGEINT", ["-99999999999999999999999999999999999999", "1"], "DECIMAL(38, 0)"),
    "uuid": ("UUID", ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"], "VARCHAR"),
    "time": ("TIME", ["'00:00:00'", "'23:59:59.999999'"], "VARCHAR"),
    "timetz": ("TIMETZ", ["'00:00:00+15:59'", "'23:59:59.999999-02'"], "VARCHAR"),
    "interval": ("INTERVAL", ["INTERVAL '1 year 2 days 3 seconds'", "INTERVAL 0 DAY"], "VARCHAR"),
    "uuids": ("STRUCT(u UUID)[]", ["[{'u': '00000000-0000-0000-0000-000000000001'}, NULL]"], "STRUCT(u VARCHAR)[]"),
}
ZONES = ["UTC", "Asia/Tokyo", "America/New_York"]


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


def fill(lake: DuckLake, types: Types, *, inlined: bool) -> None:
    """Create a table with a column per type, and rows with each sample value and with NULLs."""
    lake.set_option("data_inlining_row_limit", 1000 if inlined else 0)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in types.items())
    longest = max(len(values) for _, values, _ in types.values())
    rows = [[values[n] if n < len(values) else "NULL" for _, values, _ in types.values()] for n in range(longest + 1)]
    texts = ", ".join(f"({', '.join(row)})" for row in rows)
    execute(lake, f"CREATE TABLE t ({columns})", f"INSERT INTO t VALUES {texts}")


def in_spark(types: Types) -> str:
    return ", ".join(f"{name}::{seen} AS {name}" if seen else name for name, (_, _, seen) in types.items())


def sessions(new_session: Callable[[], SparkSession]) -> Iterator[SparkSession]:
    for zone in ZONES:
        session = new_session()
        session.conf.set("spark.sql.session.timeZone", zone)
        yield session


@pytest.mark.parametrize("inlined", [False, True])
def test_plain_types_are_read_by_both_engines(
    lake: DuckLake, spark: SparkSession, new_session: Callable[[], SparkSession], inlined: bool
) -> None:
    fill(lake, PLAIN, inlined=inlined)
    wanted = expected(lake, f"SELECT {in_spark(PLAIN)} FROM t")
    for session in sessions(new_session):
        for engine in ENGINES:
            frame = lake.read("t", session, engine=engine)
            assert read_rows(frame) == wanted, f"{engine}, {session.conf.get('spark.sql.session.timeZone')}"
    assert inlined or is_native(lake.read("t", spark))


@pytest.mark.parametrize("inlined", [False, True])
def test_types_without_a_spark_equivalent_are_read_by_duckdb(
    lake: DuckLake, spark: SparkSession, inlined: bool
) -> None:
    fill(lake, ONLY_DUCKDB, inlined=inlined)
    wanted = expected(lake, f"SELECT {in_spark(ONLY_DUCKDB)} FROM t")
    assert read_rows(lake.read("t", spark)) == wanted
    assert all(read_rows(lake.read("t", spark, columns=[name])) for name in ONLY_DUCKDB)


def test_integers_beyond_sparks_range_fail_instead_of_changing(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (h HUGEINT)", "INSERT INTO t VALUES (170141183460469231731687303715884105727)")
    with pytest.raises(Exception, match="170141183460469231731687303715884105727"):
        lake.read("t", spark).collect()


def test_geometry_is_read_as_wkb(lake: DuckLake, spark: SparkSession) -> None:
    wkb = "unhex('0101000000000000000000F03F0000000000000040')"
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, g GEOMETRY)",
        f"INSERT INTO t SELECT range, ST_GeomFromWKB({wkb}) FROM range(20)",
        "INSERT INTO t SELECT range, NULL FROM range(20)",
    )
    wanted = expected(lake, "SELECT k, ST_AsWKB(g)::BLOB AS g FROM t")
    for engine in ENGINES:
        assert read_rows(lake.read("t", spark, engine=engine)) == wanted


def test_variants_are_read_as_variants(lake: DuckLake, spark: SparkSession) -> None:
    execute(
        lake,
        "CREATE TABLE t (k INTEGER, v VARIANT)",
        "INSERT INTO t SELECT range, {'a': range, 'b': ['x']}::VARIANT FROM range(20)",
        "INSERT INTO t SELECT range, 'text'::VARIANT FROM range(20)",
        "INSERT INTO t SELECT range, NULL FROM range(20)",
    )
    for engine in ENGINES:
        frame = lake.read("t", spark, engine=engine)
        found = frame.selectExpr("k", "variant_get(v, '$.a', 'int') a", "to_json(v) j")
        rows = {tuple(row) for row in found.where("k = 3").collect()}
        assert rows == {(3, 3, '{"a":3,"b":["x"]}'), (3, None, '"text"'), (3, None, None)}
        assert frame.schema["v"].dataType.typeName() == "variant"
    lake.delete("t", "k = 3")
    lake.alter_table("t", rename_columns={"v": "w"})
    assert lake.read("t", spark, engine="duckdb").where("w IS NOT NULL").count() == 38


def test_a_type_that_spark_lacks_is_refused_by_name(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (k INTEGER, n TIMESTAMP_NS)", "INSERT INTO t SELECT range, now() FROM range(20)")
    with pytest.raises(UnsupportedStatementError, match="`n`") as refused:
        lake.read("t", spark)
    assert "columns=" in str(refused.value)
    assert lake.read("t", spark, columns=["k"], where="n > '2000-01-01'").count() == 20


def test_a_dropped_nested_field_is_read_from_no_file(lake: DuckLake, spark: SparkSession) -> None:
    execute(lake, "CREATE TABLE t (s STRUCT(a INTEGER), l STRUCT(b INTEGER)[])")
    execute(lake, "INSERT INTO t VALUES ({'a': 1}, [{'b': 1}])")
    execute(lake, "ALTER TABLE t ADD COLUMN s.x INTEGER", "ALTER TABLE t ADD COLUMN l.element.x INTEGER")
    execute(lake, "INSERT INTO t VALUES ({'a': 2, 'x': 3}, [{'b': 2, 'x': 3}])")
    execute(lake, "ALTER TABLE t DROP COLUMN s.x", "ALTER TABLE t DROP COLUMN l.element.x")
    check(lake, spark)
