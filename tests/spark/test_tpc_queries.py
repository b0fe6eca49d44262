"""The queries of TPC-H and TPC-DS: `lake.sql` returns what Spark returns for the same data in plain Parquet files."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from tests.support.tpc_data import generate

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


def load(benchmark: str, folder: Path, new_session: NewSession) -> Suite:
    """Generate the data of a benchmark, and write them to a lake."""
    lake, ours, plain = DuckLake.local(folder / "lake"), new_session(), new_session()
    queries = generate(benchmark, 0.01, folder)
    for path in folder.glob("*.parquet"):
        lake.write(duckdb.read_parquet(str(path)), path.stem, mode="append", partition_by=PARTITIONED.get(path.stem))
        plain.read.parquet(str(path)).createOrReplaceTempView(path.stem)
    return Suite(lake, ours, plain, queries)


def results(frame: DataFrame) -> tuple[str, list[str]]:
    """Return the columns and the sorted rows; floating-point numbers are rounded, as sums depend on the order."""
    rows = [[float(f"{value:.9g}") if isinstance(value, float) else value for value in row] for row in frame.collect()]
    return frame.schema.json(), sorted(map(repr, rows))


@pytest.fixture(scope="module")
def tpch(tmp_path_factory: pytest.TempPathFactory, new_session: NewSession) -> Suite:
    return load("tpch", tmp_path_factory.mktemp("tpch"), new_session)


@pytest.fixture(scope="module")
def tpcds(tmp_path_factory: pytest.TempPathFactory, new_session: NewSession) -> Suite:
    return load("tpcds", tmp_path_factory.mktemp("tpcds"), new_session)


@pytest.mark.parametrize("number", range(1, 23))
def test_queries_of_tpch_return_what_spark_returns_for_plain_files(tpch: Suite, number: int) -> None:
    tpch.check(number)


@pytest.mark.full
@pytest.mark.parametrize("number", range(1, 100))
def test_queries_of_tpcds_return_what_spark_returns_for_plain_files(tpcds: Suite, number: int) -> None:
    tpcds.check(number)
