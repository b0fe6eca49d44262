"""The report measures whether the files of sorted tables overlap, from the statistics in the catalog."""

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.support.backends import catalogs, on_sqlite


def append(lake: DuckLake, values: list[int], part: int = 0) -> None:
    data = pa.table({"v": values, "p": [part] * len(values)})
    lake.write(data, "t", mode="append", partition_by=["p"], sort_by=["v"])


@catalogs()
def test_files_that_share_no_value_have_an_overlap_of_one(lake: DuckLake) -> None:
    append(lake, [1, 9])
    append(lake, [10, 20])  # as texts, these bounds would overlap
    assert lake.report().overlaps == {"main.t": ("v", 1.0)}
    append(lake, [5, 15])
    assert lake.report().overlaps == {"main.t": ("v", (1 + 2 + 2 + 1 + 2 + 2) / 6)}


@on_sqlite
def test_files_of_other_partitions_do_not_overlap(lake: DuckLake) -> None:
    append(lake, [1, 9], part=1)
    append(lake, [1, 9], part=2)
    assert lake.report().overlaps["main.t"][1] == 1.0


@on_sqlite
def test_retired_files_do_not_count(lake: DuckLake) -> None:
    append(lake, [1, 9])
    lake.write(pa.table({"v": [1, 9], "p": [0, 0]}), "t", mode="overwrite_partitions")
    assert lake.report().overlaps["main.t"][1] == 1.0


@on_sqlite
def test_tables_that_are_not_sorted_by_a_column_have_no_overlap(lake: DuckLake) -> None:
    lake.write(pa.table({"v": [1]}), "u", mode="append")
    append(lake, [1])
    lake.execute("ALTER TABLE t SET SORTED BY (v + 1)").raise_for_error()
    assert lake.report().overlaps == {}
