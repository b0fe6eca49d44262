"""VARIANT columns: read as JSON text, written from JSON and from typed values, and found where they are NULL."""

import json
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import DataError, StatementError
from tests.support.backends import SQLITE, catalogs
from tests.support.lakes import MakeLake

VALUES = ["{'a': 1, 'b': DATE '2020-01-01'}::VARIANT", "NULL", "'null'::VARIANT", "5::VARIANT", "[1, 2]::VARIANT"]
READ = [{"a": 1, "b": "2020-01-01"}, None, "null", 5, [1, 2]]


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize("limit", [0, 10])
def test_variants_are_read_as_json(limit: int, make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=limit)
    made = [f"({n}, {value})" for n, value in enumerate(VALUES)]
    sql = ["CREATE TABLE t (id INTEGER, v VARIANT)", f"INSERT INTO t VALUES {', '.join(made)}"]
    lake.execute(sql).raise_for_error()

    def values(table: pa.Table) -> list[object]:
        return [None if text is None else json.loads(text) for text in table.sort_by("id")["v"].to_pylist()]

    assert values(lake.read("t")) == READ
    assert values(lake.read_batches("t").read_all()) == READ
    assert lake.read("t", columns=["V"], where="v IS NOT NULL AND id = 3").to_pylist() == [{"v": "5"}]
    assert values(lake.changes("t")) == READ
    lake.execute("DELETE FROM t WHERE id = 0").raise_for_error()
    deleted = lake.changes("t").to_pylist()[-1]
    assert (deleted["change_type"], json.loads(deleted["v"])) == ("delete", READ[0])


@catalogs(quick=[SQLITE])
def test_json_is_parsed_and_other_values_keep_their_types(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.create_table("t", {"id": "BIGINT", "v": "VARIANT"})
    json_column = pa.array(['{"a": [1, "x"]}', None, '"q"'], pa.json_())
    lake.write(pa.table({"id": [1, 2, 3], "v": json_column}), "t", mode="append")
    lake.write(pa.table({"id": [4], "v": ['{"a": 1}']}), "t", mode="append")
    lake.write([{"id": 5, "v": {"a": date(2020, 1, 1)}}], "t", mode="append")
    found = lake.execute("SELECT id, variant_typeof(v) AS kind FROM t ORDER BY id").rows
    assert [row["kind"] for row in found] == ["OBJECT(a)", "VARIANT_NULL", "VARCHAR", "VARCHAR", "OBJECT(a)"]
    read = ['{"a":[1,"x"]}', None, '"q"', '"{\\"a\\": 1}"', '{"a":"2020-01-01"}']
    assert lake.read("t").sort_by("id")["v"].to_pylist() == read


def test_sql_reads_variants_and_geometries_in_other_forms(lake: DuckLake) -> None:
    values = "{'a': DATE '2020-01-01'}::VARIANT, 'POINT (1 2)'::GEOMETRY"
    lake.execute(["CREATE TABLE t (v VARIANT, g GEOMETRY)", f"INSERT INTO t VALUES ({values})"]).raise_for_error()
    with lake.connect() as con:
        found = con.execute("SELECT v::STRUCT(a DATE) AS v, ST_AsText(g) AS g FROM t").to_arrow_table()
    assert found.to_pylist() == [{"v": {"a": date(2020, 1, 1)}, "g": "POINT (1 2)"}]


@catalogs(quick=[SQLITE], sql_writes=True)
def test_rows_without_a_variant_are_found(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    values = "(0, NULL), (1, '2020-01-01'::DATE::VARIANT), (2, [1]::VARIANT)"
    lake.execute(["CREATE TABLE t (id INTEGER, v VARIANT)", f"INSERT INTO t VALUES {values}"]).raise_for_error()
    # The engine counts a NULL as a value, so its statistics prove nothing.
    assert lake.delete("t", "v IS NULL").rows_removed == 1
    assert lake.read("t", columns=["id"], where="v IS NOT NULL").num_rows == 2


@pytest.mark.parametrize("kind", ["STRUCT(x VARIANT)", "VARIANT[]", "MAP(VARCHAR, VARIANT)"])
def test_a_table_with_a_variant_inside_another_value_is_read_but_not_written(lake: DuckLake, kind: str) -> None:
    lake.create_table("t", {"id": "BIGINT", "nested": kind})
    assert lake.read("t").num_rows == 0
    with pytest.raises(DataError, match="a VARIANT inside another value, as `nested` has one"):
        lake.write(pa.table({"id": [1]}), "t", mode="append")
    # The engine does not write such a table either.
    with pytest.raises(StatementError, match="not a root column"):
        lake.execute("INSERT INTO t VALUES (1, NULL)").raise_for_error()
