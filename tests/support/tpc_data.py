"""The data of TPC-H and TPC-DS as Parquet files, and their queries in Spark's SQL."""

from pathlib import Path

import sqlglot

from ducklake_orch.engine.extensions import open_database

_GENERATORS = {"tpch": "dbgen", "tpcds": "dsdgen"}


def generate(benchmark: str, scale: float, folder: Path) -> dict[int, str]:
    """Write a file for each table of `tpch` or `tpcds`; return the queries, translated from DuckDB's SQL."""
    with open_database((benchmark,), {}) as con:
        con.execute(f"CALL {_GENERATORS[benchmark]}(sf = {scale})")
        for (table,) in con.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            con.execute(f"COPY {table} TO '{folder}/{table}.parquet'")
        found = con.execute(f"SELECT query_nr, query FROM {benchmark}_queries()").fetchall()
    return {int(number): sqlglot.transpile(text, read="duckdb", write="spark")[0] for number, text in found}
