"""Rows of numbers, as Arrow tables and as query results."""

import duckdb
import pyarrow as pa


def numbers(start: int, stop: int) -> pa.Table:
    return pa.table({"id": range(start, stop), "name": [f"n{n % 7}" for n in range(start, stop)]})


def pairs(start: int, stop: int) -> list[tuple[int, str]]:
    return [(n, f"n{n % 7}") for n in range(start, stop)]


def wide_rows(start: int, count: int) -> pa.Table:
    words = ", ".join(f"md5(concat(range, '{n}')) AS c{n}" for n in range(5))
    sql = f"SELECT (hash(range) % 1000000)::BIGINT AS k, {words} FROM range({start}, {start + count})"
    return duckdb.sql(sql).to_arrow_table()
