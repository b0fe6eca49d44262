"""Written rows equal the source: every type of a DuckDB relation and every Arrow type is stored or refused by name."""

import decimal
import uuid
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import DataError
from tests.support.backends import SQLITE, catalogs
from tests.support.lakes import MakeLake

HUGE = 2**127 - 1
# Values at the limits of every type that a lake supports.
KEPT = {
    "BOOLEAN": ["true", "false"],
    "TINYINT": ["-128", "127"],
    "UBIGINT": ["0", "18446744073709551615"],
    "BIGINT": ["-9223372036854775808", "9223372036854775807"],
    "DOUBLE": ["'nan'", "'-inf'", "-0.0", "5e-324"],
    "DECIMAL(38,3)": ["-99999999999999999999999999999999999.999"],
    "DATE": ["'infinity'", "'5877642-06-25 (BC)'"],
    "TIME": ["'24:00:00'", "'00:00:00.000001'"],
    "TIME WITH TIME ZONE": ["'23:59:59.999999+00'"],
    "TIMESTAMP": ["'infinity'", "'290309-12-22 (BC)'"],
    "TIMESTAMP_S": ["'2020-01-01'"],
    "TIMESTAMP_NS": ["'2020-01-01 00:00:00.123456789'"],
    "TIMESTAMP WITH TIME ZONE": ["'-infinity'", "'2020-01-01 00:00:00.000001+00'"],
    "INTERVAL": ["'1 month 2 days 1192:59:59.999'"],
    "VARCHAR": ["''", "'a' || chr(0) || 'b'", "'🦆'"],
    "BLOB": ["'\\x00\\xFF'"],
    "UUID": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "JSON": ["'{\"a\": [1, null]}'", "'null'"],
    "GEOMETRY": ["'POINT (1 2)'"],
    "STRUCT(u UUID, t TIME WITH TIME ZONE)[]": ["[{'u': 'ffffffff-ffff-ffff-ffff-ffffffffffff', 't': '09:00:00+00'}]"],
    "MAP(UUID, JSON)": ["MAP {'00000000-0000-0000-0000-000000000000': '{}'}"],
    "INTEGER[]": ["[]", "[1, NULL]"],
}


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake")


def stored(lake: DuckLake, table: str = "t") -> tuple[list[str], list[Any]]:
    """Return the types and texts of a table's column, read by the engine."""
    with lake.connect(read_only=True) as con:
        con.execute("SET TimeZone = 'UTC'")
        found = con.execute(f"SELECT typeof(x), CAST(x AS VARCHAR) FROM {table} ORDER BY n").fetchall()
    return [row[0] for row in found], [row[1] for row in found]


def relation(kind: str, values: list[str]) -> Any:
    con = duckdb.connect()
    con.execute("SET TimeZone = 'UTC'")
    rows = " UNION ALL ".join(f"SELECT {n} AS n, CAST({value} AS {kind}) AS x" for n, value in enumerate(values))
    return con.sql(f"FROM ({rows}) UNION ALL SELECT {len(values)}, NULL")


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("kind", KEPT)
def test_values_of_every_relation_type_are_stored_unchanged(kind: str, make_lake: MakeLake) -> None:
    lake = make_lake()
    wanted = [row[0] for row in relation(kind, KEPT[kind]).project("CAST(x AS VARCHAR)").fetchall()]
    lake.write(relation(kind, KEPT[kind]), "t", mode="overwrite")
    assert stored(lake) == ([kind] * len(wanted), wanted)
    for mode in ("append", "overwrite"):  # to an existing table
        lake.write(relation(kind, KEPT[kind]), "t", mode=mode)
    lake.write(relation(kind, KEPT[kind]), "t", mode="merge", keys=["n"])
    lake.write(relation(kind, KEPT[kind]), "t", mode="replace_where", where="n >= 0")
    assert stored(lake) == ([kind] * len(wanted), wanted)
    lake.write(relation(kind, KEPT[kind]), "made_by_merge", mode="merge", keys=["n"])
    assert stored(lake, "made_by_merge") == ([kind] * len(wanted), wanted)


def test_wide_integers_of_a_relation_become_exact_decimals(lake: DuckLake) -> None:
    sums = duckdb.sql("SELECT 0 AS n, sum(9223372036854775807) AS x FROM range(10)")
    lake.write(sums, "t", mode="overwrite")
    assert stored(lake) == (["DECIMAL(38,0)"], ["92233720368547758070"])
    for value in (f"{HUGE}::HUGEINT", f"(-{HUGE})::HUGEINT", f"{2**128 - 1}::UHUGEINT"):
        for shape in ("{}", "[{}]", "{{'a': {}}}"):
            wide = duckdb.sql(f"SELECT 1 AS n, {shape.format(value)} AS x")
            table = "t" if shape == "{}" else "other"
            with pytest.raises(DataError, match="fit"):
                lake.write(wide, table, mode="append")
    assert stored(lake) == (["DECIMAL(38,0)"], ["92233720368547758070"])


@pytest.mark.parametrize(
    ("kind", "good", "bad", "words"),
    [
        ("HUGEINT", str(2**53), str(2**53 + 1), "DECIMAL"),
        ("UHUGEINT", str(2**100), str(2**128 - 1), "DECIMAL"),
        ("HUGEINT[]", f"[{2**53}]", f"[1, {2**53 + 1}]", "DECIMAL"),
        ("STRUCT(a HUGEINT)", f"{{'a': {2**53}}}", f"{{'a': {2**53 + 1}}}", "DECIMAL"),
        ("TIME WITH TIME ZONE", "'12:00:00+00'", "'12:00:00+15:59:58'", "UTC"),
        ("INTERVAL", "'1 day'", "'-1 day'", "BIGINT"),
        ("INTERVAL", "'1 day'", "'3000000 hours'", "BIGINT"),
        ("INTERVAL[]", "['1 day']", "['1 day', '-5 months']", "BIGINT"),
        ("MAP(VARCHAR, INTERVAL[])", "MAP {'a': ['1 day']}", "MAP {'a': ['1 microsecond']}", "BIGINT"),
    ],
)
def test_values_that_parquet_cannot_store_exactly_are_refused_by_name(
    kind: str, good: str, bad: str, words: str, lake: DuckLake
) -> None:
    lake.execute(f"CREATE TABLE t (n INTEGER, x {kind})").raise_for_error()
    lake.write(relation(kind, [good]), "t", mode="append")
    before = stored(lake)
    with pytest.raises(DataError, match=r"Column `x` of table `main\.t`") as caught:
        lake.write(relation(kind, [bad]), "t", mode="append")
    assert words in str(caught.value.remedy)
    assert stored(lake) == before


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ("'101'::BIT", "BIT"),
        ("['101'::BIT]", "BIT"),
        ("'12:00:00.123456789'::TIME_NS", "TIME_NS"),
        ("'1'::BIGNUM", "BIGNUM"),
        ("union_value(a := 1)", "UNION"),
        ("1::VARIANT", "VARIANT"),
    ],
)
def test_types_that_ducklake_lacks_are_refused_by_name(value: str, named: str, lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (n INTEGER, x BLOB)").raise_for_error()
    for table in ("t", "made"):
        with pytest.raises(DataError, match=rf"x.*{named}"):
            lake.write(duckdb.sql(f"SELECT 1 AS n, {value} AS x"), table, mode="append")


TZ = "TIMESTAMP WITH TIME ZONE"
MOMENT, UUID = "1970-01-01 00:00:00.000001+00", uuid.UUID(int=1)
ARROW_KEPT: list[tuple[Any, str, str]] = [
    (pa.array(np.array([1.5], dtype=np.float16)), "FLOAT", "1.5"),
    (pa.array([decimal.Decimal(10**37)], pa.decimal256(38, 0)), "DECIMAL(38,0)", str(10**37)),
    (pa.array([decimal.Decimal(5)], pa.decimal256(76, 0)), "DECIMAL(38,0)", "5"),
    (pa.array([decimal.Decimal("1.5")], pa.decimal32(5, 2)), "DECIMAL(5,2)", "1.50"),
    (pa.array([1_000_000], pa.duration("ns")), "INTERVAL", "00:00:00.001"),
    (pa.array([[1000]], pa.list_(pa.timestamp("ns", "UTC"))), f"{TZ}[]", f"['{MOMENT}']"),
    (pa.array([1000], pa.timestamp("ns", "UTC")).dictionary_encode(), TZ, MOMENT),
    (pa.array(["a"]).dictionary_encode(), "VARCHAR", "a"),
    (pa.RunEndEncodedArray.from_arrays([1], pa.array(["a"])), "VARCHAR", "a"),
    (pa.array(["a"], pa.string_view()), "VARCHAR", "a"),
    (pa.array([[1]], pa.list_view(pa.int64())), "BIGINT[]", "[1]"),
    (pa.array([b"ab"], pa.binary(2)), "BLOB", "ab"),
    (pa.array([86_400_000], pa.int64()).view(pa.date64()), "DATE", "1970-01-02"),
    (pa.array([(1, 2, 3_000_000)], pa.month_day_nano_interval()), "INTERVAL", "1 month 2 days 00:00:00.003"),
    (pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())), "BOOLEAN", "true"),
    (pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])), "JSON", "{}"),
    (pa.ExtensionArray.from_storage(pa.uuid(), pa.array([UUID.bytes], pa.binary(16))), "UUID", str(UUID)),
]  # fmt: skip


@pytest.mark.parametrize(("column", "kind", "text"), ARROW_KEPT, ids=lambda column: str(getattr(column, "type", "")))
def test_values_of_every_arrow_type_are_stored_unchanged(column: Any, kind: str, text: str, lake: DuckLake) -> None:
    lake.write(pa.table({"n": [1], "x": column}), "t", mode="overwrite")
    assert stored(lake) == ([kind], [text])


ARROW_CUT = [
    pa.array([1_000_500], pa.duration("ns")),
    pa.array([[1_000_500]], pa.list_(pa.duration("ns"))),
    pa.array([1001], pa.timestamp("ns", "UTC")),
    pa.array([1001], pa.timestamp("ns", "UTC")).dictionary_encode(),
    pa.array([[1001]], pa.list_(pa.timestamp("ns", "UTC"))),
    pa.array([{"a": 1001}], pa.struct([("a", pa.timestamp("ns", "UTC"))])),
    pa.array([[("k", 1001)]], pa.map_(pa.string(), pa.timestamp("ns", "UTC"))),
    pa.array([(0, 0, 1_000_001)], pa.month_day_nano_interval()),
    pa.array([decimal.Decimal(10**39)], pa.decimal256(40, 0)),
    pa.array([86_400_001], pa.int64()).view(pa.date64()),
    pa.array([1001], pa.time64("ns")),
    pa.UnionArray.from_dense(pa.array([0], pa.int8()), pa.array([0], pa.int32()), [pa.array([1])]),
]


@pytest.mark.parametrize("column", ARROW_CUT, ids=lambda column: str(column.type))
def test_arrow_values_that_would_be_truncated_are_refused_by_name(column: Any, lake: DuckLake) -> None:
    with pytest.raises(DataError, match="`x`"):
        lake.write(pa.table({"n": [1], "x": column}), "t", mode="append")
    assert lake.tables() == []
