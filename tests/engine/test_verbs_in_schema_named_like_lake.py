"""Every verb works in a schema that has the name of the lake."""

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from tests.support.backends import DUCKDB, LOCAL, POSTGRES, SQLITE, Backend
from tests.support.lakes import MakeLake

ROWS = pa.table({"id": [1, 2]})


@pytest.mark.parametrize(
    "backend", [Backend(kind, LOCAL) for kind in (SQLITE, DUCKDB, POSTGRES)], indirect=True, ids=str
)
def test_every_verb_works_in_a_schema_named_like_the_lake(make_lake: MakeLake) -> None:
    lake: DuckLake = make_lake("sales")
    lake.create_table("sales.made", {"id": "BIGINT"}, comment="mine", partition_by=["id"], sort_by=["id"])
    assert [table.comment for table in lake.tables()] == ["mine"]
    for table in ("sales.made", "sales.orders"):
        lake.write(ROWS, table, mode="append")
        assert lake.read(table, where="id = 1").to_pylist() == [{"id": 1}]
        assert lake.changes(table).num_rows == 2
        lake.update(table, {"id": "3"}, where="id = 1")
        lake.delete(table, where="id = 2")
        assert lake.read(table).to_pylist() == [{"id": 3}]
    lake.set_option("data_inlining_row_limit", 0, schema="sales", table="orders")
    assert "data_inlining_row_limit" in {option.name for option in lake.options()}
    lake.execute("UPDATE sales.sales.orders SET id = 4").raise_for_error()
    lake.maintain().raise_for_error()
    lake.truncate("sales.orders")
    lake.drop_table("sales.orders")
    assert [table.table for table in lake.tables()] == ["made"]
