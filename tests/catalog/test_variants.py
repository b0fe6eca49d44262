"""`read`, `read_batches` and `changes` return VARIANT columns as JSON text."""

import json

import pyarrow as pa
import pytest

from tests.support.backends import SQLITE, catalogs
from tests.support.lakes import MakeLake

VALUES = ["{'a': 1, 'b': DATE '2020-01-01'}::VARIANT", "NULL", "'null'::VARIANT", "5::VARIANT", "[1, 2]::VARIANT"]
READ = [{"a": 1, "b": "2020-01-01"}, None, "null", 5, [1, 2]]


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
