"""Rows for consecutive days, one snapshot per day."""

from datetime import date, timedelta

import pyarrow as pa

from ducklake_orch import CommitInfo, DuckLake

FIRST = date(2026, 11, 1)


def days(lake: DuckLake, table: str, count: int, *, author: str | None = None) -> None:
    """Append a number of days, one snapshot each. Day n has 10 n rows."""
    for number in range(1, count + 1):
        rows = 10 * number
        data = pa.table({"day": [FIRST + timedelta(number - 1)] * rows, "v": list(range(rows))})
        lake.write(data, table, mode="append", partition_by=["day"], commit=CommitInfo(author, "a day"))
