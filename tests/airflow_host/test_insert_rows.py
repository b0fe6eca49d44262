"""`insert_rows`: missing values become NULL, unsupported values and unknown arguments are refused."""

import datetime as dt
import enum
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from ducklake_orch.airflow import DuckLakeExecuteOperator, DuckLakeHook, DuckLakeWriteOperator
from ducklake_orch.airflow.sql_literals import sql_value
from ducklake_orch.errors import ConfigError, DataError

HALF = dt.timedelta(hours=12)


@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        (None, "VARCHAR", None),
        (pd.NA, "VARCHAR", None),
        (pd.NaT, "VARCHAR", None),
        (float("nan"), "VARCHAR", None),
        (float("nan"), "DOUBLE", None),
        (Decimal("NaN"), "VARCHAR", None),
        (np.float32("nan"), "FLOAT", None),
        (np.datetime64("NaT"), "VARCHAR", None),
        (np.timedelta64("NaT"), "VARCHAR", None),
        ([1, pd.NA], "INTEGER[]", [1, None]),
        (float("-inf"), "DOUBLE", float("-inf")),
        (-0.0, "DOUBLE", -0.0),
        (True, "BOOLEAN", True),
        (np.bool_(False), "BOOLEAN", False),
        (np.int64(-(2**63)), "BIGINT", -(2**63)),
        (np.float64(0.1), "DOUBLE", 0.1),
        (np.str_("it's"), "VARCHAR", "it's"),
        ("<NA>", "VARCHAR", "<NA>"),
        (Decimal("12345678901234567890123456789012345.678"), "DECIMAL(38,3)", None),
        (dt.date(2024, 2, 29), "DATE", dt.date(2024, 2, 29)),
        (dt.time(12, 30, 0, 1), "TIME", dt.time(12, 30, 0, 1)),
        (dt.datetime(2024, 2, 29, 1), "TIMESTAMP", dt.datetime(2024, 2, 29, 1)),
        (dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC), "TIMESTAMPTZ", dt.datetime(2024, 2, 29, 1, tzinfo=dt.UTC)),
        (pd.Timestamp("2024-02-29 00:00:00.123456789"), "TIMESTAMP_NS", None),
        (np.datetime64("2024-02-29T00:00:00.123456789"), "TIMESTAMP_NS", None),
        (HALF, "INTERVAL", HALF),
        (np.timedelta64(12, "h"), "INTERVAL", HALF),
        (pd.Timedelta(hours=12), "INTERVAL", HALF),
        (uuid.UUID(int=7), "UUID", uuid.UUID(int=7)),
        (b"\x00\xff", "BLOB", b"\x00\xff"),
        (bytearray(b"a"), "BLOB", b"a"),
        (np.array([1, 2]), "INTEGER[]", [1, 2]),
        ({"a": 1, "b": None}, "STRUCT(a INTEGER, b VARCHAR)", {"a": 1, "b": None}),
        ({1: "x"}, "MAP(INTEGER, VARCHAR)", {1: "x"}),
        ({}, "MAP(INTEGER, VARCHAR)", {}),
        ({"a": [1]}, "JSON", '{"a":[1]}'),
        (pa.scalar(5), "BIGINT", 5),
    ],
    ids=str,
)
def test_values_round_trip_and_missing_ones_become_null(value: Any, kind: str, stored: Any) -> None:
    with duckdb.connect() as con:
        con.execute(f"SET TimeZone = 'UTC'; CREATE TABLE t (x {kind}); INSERT INTO t VALUES ({sql_value(value)})")
        found, text = con.execute("SELECT x, CAST(x AS VARCHAR) FROM t").fetchall()[0]
    if stored is None and isinstance(value, Decimal) and value.is_finite():
        assert text == str(value)
    elif kind == "TIMESTAMP_NS":
        assert text == "2024-02-29 00:00:00.123456789"
    else:
        assert repr(found) == repr(stored) or found == stored
        assert (found is None) == (stored is None)


class Colour(enum.Enum):
    RED = 1


@pytest.mark.parametrize(
    "value", [object(), Colour.RED, {1, 2}, Path("x"), pd.DataFrame(), [object()], pd.Timedelta(1, "ns"), 1j]
)
def test_values_that_cannot_be_stored_are_refused(value: Any) -> None:
    with pytest.raises(DataError, match=r"cannot be stored|finer than a microsecond"):
        sql_value(value)


def test_pandas_rows_are_inserted_with_nulls_for_missing_values(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.lake().execute("CREATE TABLE t (id BIGINT, name VARCHAR, seen TIMESTAMP, x DOUBLE)").raise_for_error()
    frame = pd.DataFrame(
        {"id": [1, 2], "name": ["a", None], "at": [pd.Timestamp("2024-01-01"), pd.NaT], "x": [1, None]}
    )
    hook.insert_rows("t", frame.convert_dtypes().itertuples(index=False))
    with hook.lake().connect(read_only=True) as con:
        missing = con.execute(
            "SELECT count(*) FROM t WHERE id = 2 AND COALESCE(name, seen::VARCHAR, x::VARCHAR) IS NULL"
        )
        assert missing.fetchall() == [(1,)]
    with pytest.raises(DataError, match="Row 1 for `t`: A value of type object"):
        hook.insert_rows("t", [(3, "c", None, 1.0), (4, object(), None, 1.0)])
    assert hook.lake().table("t").count() == 2


def test_mappings_are_inserted_by_the_names_of_their_values(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (a INTEGER, b VARCHAR)")
    hook.insert_rows("t", [{"b": "x", "A": 1}, {"a": 2}])
    hook.insert_rows("t", [{"a": 3, "b": "z", "ignored": 0}], target_fields=["a"])
    assert hook.get_records("FROM t ORDER BY a") == [(1, "x"), (2, None), (3, None)]
    with pytest.raises(DataError, match="Row 1 for `t`: The table has no column `bb`") as refused:
        hook.insert_rows("t", [{"a": 4}, {"a": 5, "bb": "y"}])
    assert "`b`" in str(refused.value.remedy)
    assert hook.get_first("SELECT count(*) FROM t") == (3,)


def test_misspelt_arguments_are_refused(conn_id: str) -> None:
    hook = DuckLakeHook()
    rows: list[Any] = []
    with pytest.raises(ConfigError, match="Did you mean `commit_every`"):
        hook.insert_rows("t", rows, commit_evry=1)
    hook.insert_rows("t", rows, executemany=True, autocommit=False)  # arguments of other hooks
    with pytest.raises(ConfigError, match="Did you mean `df_type`"):
        hook.get_df("SELECT 1", df_typ="polars")
    with pytest.raises(ConfigError, match="Did you mean `ducklake_conn_id`"):
        DuckLakeHook(ducklake_con_id="x")
    with pytest.raises(ConfigError, match="Did you mean `table`"):
        DuckLakeWriteOperator(task_id="write", tables="t", table="t", mode="append", sql="SELECT 1")
    with pytest.raises(ConfigError, match="Did you mean `retries`"):
        DuckLakeExecuteOperator(task_id="run", command="SELECT 1", retrys=2)
