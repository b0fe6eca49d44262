"""`@task.ducklake`: results of functions become tables, and tables become arguments of functions."""

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook, DuckLakeWriteOperator, read_reference
from ducklake_orch.errors import ConfigError
from tests.airflow_host.own_process import in_own_process
from tests.support.airflow_runs import result, run, states
from tests.support.airflow_tasks import execute


def stored(table: str, columns: str = "*") -> list[Any]:
    found: list[Any] = DuckLakeHook().get_records(f"SELECT {columns} FROM {table} ORDER BY ALL")
    return found


def test_return_values_become_tables_and_downstream_arguments_frames(conn_id: str) -> None:
    with DAG("frames_from_task_to_task") as dag:

        @task.ducklake(table="sales.orders")
        def orders() -> pa.Table:
            return pa.table({"id": [1, 2, 3], "amount": [10, 20, 30]})

        @task.ducklake(table="sales.large")
        def large(orders: pd.DataFrame, least: int) -> pd.DataFrame:
            assert isinstance(orders, pd.DataFrame)
            return orders[orders["amount"] >= least]

        @task.ducklake(table="sales.total", read="polars")
        def total(rows: Any, ti: Any) -> pl.DataFrame:
            assert isinstance(rows, pl.DataFrame)
            return rows.select(pl.col("amount").sum(), by=pl.lit(ti.task_id))

        total(large(orders(), least=20))
    done = run(dag)
    assert set(states(done).values()) == {"success"}
    assert stored("sales.large", "id, amount") == [(2, 20), (3, 30)]
    assert stored("sales.total") == [(50, "total")]
    reference = result(done, "orders")
    assert (reference["table"], reference["snapshot_id"], reference["rows_written"]) == ("sales.orders", 1, 3)
    assert len(str(reference)) < 2000


def test_a_downstream_task_reads_the_partition_at_the_written_snapshot(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.write(pa.table({"day": ["2024-01-01", "2024-01-02"], "n": [1, 2]}), "t", mode="append")
    with DAG("frames_of_partitions") as dag:

        @task.ducklake(table="t", partition_expr="day", partition_key="2024-01-02")
        def write() -> pa.Table:
            return pa.table({"day": ["2024-01-02"], "n": [20]})

        @task
        def update_concurrently() -> None:
            DuckLakeHook().run("UPDATE t SET n = 99")

        @task
        def read_back(reference: dict[str, Any]) -> list[int]:
            return read_reference(reference, "pandas")["n"].tolist()  # type: ignore[no-any-return]

        written = write()
        written >> update_concurrently() >> read_back(written)
    assert result(run(dag), "read_back") == [20]


def test_each_parameter_chooses_its_kind_of_frame(conn_id: str) -> None:
    with DAG("kinds_of_frames") as dag:
        source = DuckLakeWriteOperator(task_id="source", table="t", python_callable=lambda: pa.table({"a": [1]}))

        @task.ducklake(table="kinds", read={"a": "pandas", "b": "reader", "c": "duckdb"})
        def kinds(a: Any, b: Any, c: Any, d: Any, e: pl.LazyFrame) -> pa.Table:
            return pa.table({"kind": [type(frame).__name__ for frame in (a, b, c, d, e)]})

        kinds(*[source.output] * 5)
    run(dag)
    assert [row[0] for row in stored("kinds")] == sorted(
        ["DataFrame", "RecordBatchReader", "DuckDBPyRelation", "Table", "LazyFrame"]
    )


def test_each_mapped_append_passes_on_only_its_own_rows(conn_id: str) -> None:
    DuckLakeHook().write(pa.table({"n": [0]}), "t", mode="append")
    with DAG("mapped_frames") as dag:

        @task.ducklake(table="t", mode="append")
        def part(number: int) -> pa.Table:
            return pa.table({"n": pa.array([number] * number, pa.int64())})

        @task.ducklake(table="whole")
        def whole(parts: list[pl.DataFrame]) -> pl.DataFrame:
            return pl.concat(parts)

        whole(part.expand(number=[1, 2, 0, 3]))
    done = run(dag)
    assert set(states(done).values()) == {"success"}
    assert [row[0] for row in stored("t")] == [0, 1, 2, 2, 3, 3, 3]
    assert [row[0] for row in stored("whole")] == [1, 2, 2, 3, 3, 3]


def test_a_replayed_append_passes_on_its_original_rows(conn_id: str) -> None:
    operator = DuckLakeWriteOperator(
        task_id="write", table="t", mode="append", python_callable=lambda: pa.table({"n": [1, 2]})
    )
    DuckLakeHook().write(pa.table({"n": [0]}), "t", mode="append")
    execute(operator)
    DuckLakeHook().run("UPDATE t SET n = n + 10")
    DuckLakeHook().maintain(operations=["merge"])
    again = execute(operator, try_number=2)
    assert again["replayed"]
    assert read_reference(again, "pandas")["n"].tolist() == [1, 2]


def test_a_reference_to_appended_rows_refuses_a_column_named_author(conn_id: str) -> None:
    rows = pa.table({"author": ["x"]})
    operator = DuckLakeWriteOperator(task_id="write", table="t", mode="append", python_callable=lambda: rows)
    with pytest.raises(ConfigError, match="column `author`"):
        read_reference(execute(operator))


class WritingViews(dict[str, str]):
    """Views that append a row to the table while they are iterated: a concurrent write between two views."""

    def items(self) -> Any:
        for pair in super().items():
            yield pair
            DuckLakeHook().write(pa.table({"n": [0]}), "t", mode="append")


@in_own_process
def test_all_views_of_a_query_read_one_snapshot(conn_id: str) -> None:
    DuckLakeHook().write(pa.table({"n": [1]}), "t", mode="append")
    query = "SELECT (SELECT count(*) FROM a) AS a, (SELECT count(*) FROM b) AS b"
    execute(DuckLakeWriteOperator(task_id="query", table="counted", sql=query, views=WritingViews(a="t", b="t")))
    assert stored("counted") == [(1, 1)]


@in_own_process
def test_spark_functions_get_a_session_that_ends_with_the_task(conn_id: str) -> None:
    from pyspark.sql import DataFrame, SparkSession

    with DAG("frames_of_spark") as dag:

        @task.ducklake(table="numbers")
        def numbers(spark: SparkSession) -> DataFrame:
            return spark.range(1000).toDF("n")

        @task.ducklake(table="even")
        def even(spark: SparkSession, numbers: DataFrame) -> DataFrame:
            numbers.createOrReplaceTempView("numbers")
            return spark.sql("SELECT n FROM numbers WHERE n % 2 = 0")

        query = DuckLakeWriteOperator(
            task_id="query", table="total", sql="SELECT sum(n) AS total FROM e", views={"e": "even"}
        )

        @task.ducklake(table="total", mode="append")
        def more(spark: SparkSession) -> DataFrame:
            return spark.sql("SELECT 1L AS total")

        @task.ducklake(table="added")
        def added(more: DataFrame) -> DataFrame:
            return more

        rows = more()
        even(numbers=numbers()) >> query >> rows
        added(rows)
    done = run(dag)
    assert set(states(done).values()) == {"success"}
    assert stored("total") == [(1,), (249500,)]
    assert stored("added") == [(1,)]
    assert SparkSession.getActiveSession() is None


def test_a_value_that_is_not_a_reference_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a reference"):
        read_reference({"table": "t"})
