"""The queries of TPC-H and TPC-DS: `lake.sql` returns what Spark returns for the same data in plain Parquet files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlglot
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.engine.extensions import open_database

PARTITIONED = {"lineitem": ["year(l_shipdate)"], "orders": ["o_orderpriority"], "store_sales": ["ss_store_sk"]}
NewSession = Callable[[], SparkSession]


@dataclass(frozen=True)
class Suite:
    """The tables of a benchmark in a lake, and as plain files in a session of their own."""

    lake: DuckLake
    ours: SparkSession
    plain: SparkSession
    queries: dict[int, str]

    def check(self, number: int) -> None:
        """Assert that both return the same for a query: columns, types and rows."""
        query = self.queries[number]
        assert results(self.lake.sql(self.ours, query)) == results(self.plain.sql(query))


def load(name: str, generator: str, folder: Path, new_session: NewSession) -> Suite:
    """Generate the data of a benchmark; its queries are translated from DuckDB's SQL."""
    lake, ours, plain = DuckLake.local(folder / "lake"), new_session(), new_session()
    with open_database((name,), {}) as con:
        con.execute(generator)
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            con.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
            lake.write(con.table(table), table, mode="append", partition_by=PARTITIONED.get(table))
            plain.read.parquet(f"{folder}/{table}.parquet").createOrReplaceTempView(table)
        found = con.execute(f"SELECT query_nr, query FROM {name}_queries()").fetchall()
    queries = {int(number): sqlglot.transpile(text, read="duckdb", write="spark")[0] for number, text in found}
    return Suite(lake, ours, plain, queries)


def results(frame: DataFrame) -> tuple[str, list[str]]:
    """Return the columns and the sorted rows; floating-point numbers are rounded, as sums depend on the order."""
    rows = [[float(f"{value:.9g}") if isinstance(value, float) else value for value in row] for row in frame.collect()]
    return frame.schema.json(), sorted(map(repr, rows))


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory, new_session: NewSession) -> Suite:
    return load("tpch", "CALL dbgen(sf = 0.01)", tmp_path_factory.mktemp("tpch"), new_session)


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory: pytest.TempPathFactory, new_session: NewSession) -> Suite:
    return load("tpcds", "CALL dsdgen(sf = 0.01)", tmp_path_factory.mktemp("tpcds"), new_session)


@pytest.mark.parametrize("number", range(1, 23))
def test_queries_of_tpch_return_what_spark_returns_for_plain_files(tpch: Suite, number: int) -> None:
    tpch.check(number)


@pytest.mark.full
@pytest.mark.parametrize("number", range(1, 100))
def test_queries_of_tpcds_return_what_spark_returns_for_plain_files(tpcds: Suite, number: int) -> None:
    tpcds.check(number)
