"""`create_table(defaults=…)`: rows that do not name a column get its default."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError
from tests.support.backends import catalogs, on_sqlite

TYPES = {"a": "INTEGER NOT NULL", "b": "VARCHAR", "c": "DATE", "t": "TIMESTAMPTZ", "o": "BOOLEAN", "n": "DOUBLE"}
NEW_YEAR = datetime(2024, 1, 1, tzinfo=UTC)
DEFAULTS = {"A": 3, "b": "it's", "c": "2024-01-01", "t": NEW_YEAR, "o": True, "n": None}
ROW = {"a": 3, "b": "it's", "c": date(2024, 1, 1), "t": NEW_YEAR, "o": True, "n": 1.5}


@catalogs()
def test_rows_without_a_column_get_its_default(lake: DuckLake) -> None:
    lake.create_table("t", TYPES, defaults=DEFAULTS)
    lake.write(pa.table({"n": [1.5]}), "t", mode="append")
    lake.execute("INSERT INTO t (n) VALUES (1.5)")  # which the engine cannot do on MySQL
    with lake.transaction() as tx:
        tx.create_table("u", TYPES, defaults=DEFAULTS)
        tx.write(pa.table({"n": [1.5]}), "u", mode="append")
    for table in ("t", "u"):
        assert [column.default for column in lake.table(table).schema()] == [
            *("3", "it's", "2024-01-01", "2024-01-01 00:00:00+00", "true", None)
        ]
        assert ROW in lake.read(table).to_pylist()
        assert all(row == ROW for row in lake.read(table).to_pylist())


@on_sqlite
@pytest.mark.parametrize(
    ("defaults", "words"),
    [
        ({"z": 1}, "there is no column `z`"),
        ({"a": "x"}, "'x' cannot be the default of `a`, which is INTEGER"),
        ({"l": [1]}, r"cannot be the default of `l`, which is INTEGER\[\]"),
        ({"b": "NULL"}, "cannot be the text NULL"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(lake: DuckLake, defaults: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        lake.create_table("t", {"a": "INTEGER", "b": "VARCHAR", "l": "INTEGER[]"}, defaults=defaults)
    assert not lake.exists("t")


@catalogs(sql_writes=True)
def test_defaults_of_the_engine_may_be_expressions(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (n BIGINT, made TIMESTAMPTZ DEFAULT now(), day DATE DEFAULT today() - 1)")
    before = datetime.now(UTC)
    lake.execute("INSERT INTO t (n) VALUES (1)").raise_for_error()
    lake.write(pa.table({"n": [2]}), "t", mode="append")
    lake.merge(pa.table({"n": [3]}), "t", ["n"])
    after = datetime.now(UTC)
    found = lake.read("t").sort_by("n").to_pylist()
    assert [row["n"] for row in found] == [1, 2, 3]
    assert all(before <= row["made"] <= after for row in found)
    assert {row["day"] for row in found} <= {(moment - timedelta(days=1)).date() for moment in (before, after)}
