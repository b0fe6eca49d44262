"""Added files belong to the partition of their rows, whatever folder they are in."""

import datetime as dt
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.added_files import (
    copy_out,
    local_lake,
    make,
    partitions,
    rows,
    write,
)
from tests.support.refusals import refused


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return local_lake(tmp_path)


class TestPartitions:
    DAY = dt.datetime(2024, 3, 5, 7)

    def test_partition_values_come_from_the_rows_not_from_the_folder(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "region VARCHAR, ts TIMESTAMP", partition_by="region, year(ts), month(ts), day(ts), hour(ts)")
        times = [self.DAY, self.DAY + dt.timedelta(minutes=59)]
        lake.add_files("t", write(tmp_path / "f.parquet", {"region": ["eu", "eu"], "ts": times}))
        assert partitions(lake) == [(["eu", "2024", "3", "5", "7"],)]
        for where in ("region = 'eu'", "ts >= '2024-03-05' AND ts < '2024-03-06'", "month(ts) = 3"):
            assert len(rows(lake, f"FROM t WHERE {where}")) == 2

    @pytest.mark.parametrize("statistics", [True, False])
    @pytest.mark.parametrize(
        ("transform", "apart", "values"),
        [
            ("year(ts)", dt.timedelta(days=310), ["`2024`", "`2025`"]),
            ("month(ts)", dt.timedelta(days=30), ["`3`", "`4`"]),
            ("day(ts)", dt.timedelta(days=1), ["`5`", "`6`"]),
            ("hour(ts)", dt.timedelta(hours=1), ["`7`", "`8`"]),
            ("ts", dt.timedelta(hours=1), ["2024-03-05 07:00:00", "2024-03-05 08:00:00"]),
            ("bucket(1000, ts)", dt.timedelta(hours=1), ["`bucket(1000, ts)` is `", "` and `"]),
        ],
    )
    def test_a_file_of_several_partitions_is_refused(
        self, lake: DuckLake, tmp_path: Path, transform: str, apart: dt.timedelta, values: list[str], statistics: bool
    ) -> None:
        make(lake, "ts TIMESTAMP", partition_by=transform)
        times = [self.DAY, self.DAY + apart]
        path = write(tmp_path / "f.parquet", {"ts": times}, write_statistics=statistics)
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), path, "several partitions", *values)

    def test_rows_are_read_if_bounds_cannot_prove_the_partition_value(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "ts TIMESTAMP", partition_by="month(ts)")
        march = [dt.datetime(2023, 3, 1), dt.datetime(2024, 3, 31)]
        lake.add_files("t", write(tmp_path / "only march.parquet", {"ts": march}))
        assert partitions(lake) == [(["3"],)]
        path = write(tmp_path / "july too.parquet", {"ts": [*march, dt.datetime(2023, 7, 1)]})
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), "`3` and `7`")

    def test_nulls_have_their_own_partition(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR, x BIGINT", partition_by="s, bucket(4, s)")
        nulls = pa.nulls(2, pa.string())
        lake.add_files("t", write(tmp_path / "nulls.parquet", {"s": nulls, "x": [1, 2]}))
        assert partitions(lake) == [([None, None],)]
        for statistics in (True, False):
            path = write(tmp_path / "f.parquet", {"s": ["a", None], "x": [1, 2]}, write_statistics=statistics)
            refused(errors.PartitionMismatchError, partial(lake.add_files, "t", path), "`a` and NULL")

    @pytest.mark.parametrize(
        ("columns", "key", "table", "value", "options"),
        [
            ("s VARCHAR", "s", {"s": ["x" * 300] * 2}, "x" * 300, {}),
            ("ts TIMESTAMP", "day(ts)", {"ts": [DAY] * 2}, "5", {"use_deprecated_int96_timestamps": True}),
            ("d DOUBLE", "d", {"d": [1.5, 1.5]}, "1.5", {}),
            ("i BIGINT", "bucket(2, i)", {"i": [0, 1, 4]}, None, {}),
            ("raw BLOB", "raw", {"raw": [b"ab", b"ab"]}, "ab", {}),
            ("i BIGINT", "i", {"i": [7, 7]}, "7", {"write_statistics": False}),
        ],
    )
    def test_the_column_is_read_if_statistics_cannot_prove_the_value(
        self, lake: DuckLake, tmp_path: Path, columns: str, key: str, table: Any, value: Any, options: Any
    ) -> None:
        make(lake, columns, partition_by=key)
        if value is None:
            (value,) = rows(
                lake, "SELECT list(DISTINCT (murmur3_32(v::BIGINT) & 2147483647) % 2) FROM unnest([0, 1, 4]) t(v)"
            )[0]
            assert len(value) == 1
            value = str(value[0])
        lake.add_files("t", write(tmp_path / "f.parquet", table, **options))
        assert partitions(lake) == [([value],)]

    def test_long_texts_with_a_common_prefix_are_different_values(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR", partition_by="s")
        sql = "SELECT repeat('x', 300) || i AS s FROM range(2) t(i)"
        path = copy_out(lake, sql, tmp_path / "f.parquet")
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), path)

    def test_an_infinite_timestamp_has_no_year(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "ts TIMESTAMP", partition_by="year(ts)")
        make(lake, "ts TIMESTAMP", partition_by="year(ts)", name="twin")
        endless = "SELECT TIMESTAMP 'infinity' AS ts"
        lake.execute(f"INSERT INTO twin {endless}").raise_for_error()
        lake.add_files("t", copy_out(lake, endless, tmp_path / "f.parquet"))
        assert partitions(lake) == partitions(lake, "twin") == [([None],)]
        path = copy_out(lake, f"{endless} UNION ALL SELECT TIMESTAMP '-infinity'", tmp_path / "both.parquet")
        assert lake.add_files("t", path).rows_written == 2
        path = copy_out(lake, f"{endless} UNION ALL SELECT TIMESTAMP '2024-01-01'", tmp_path / "mixed.parquet")
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), "`2024` and NULL")

    def test_timestamps_with_time_zone_are_partitioned_in_utc(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "ts TIMESTAMPTZ", partition_by="year(ts), day(ts)")
        times = pa.array(
            [dt.datetime(2024, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=9)))], pa.timestamp("us", "Asia/Tokyo")
        )
        lake.add_files("t", write(tmp_path / "f.parquet", {"ts": times}))
        assert partitions(lake) == [(["2023", "31"],)]

    @pytest.mark.parametrize(
        ("folder", "says", "has"),
        [
            ("region=us/year=2024", "`us`", "`eu`"),
            ("region=__HIVE_DEFAULT_PARTITION__/year=2024", "NULL", "`eu`"),
            ("region=eu/year=2023", "`2023`", "`2024`"),
        ],
    )
    def test_a_path_that_contradicts_the_rows_is_refused(
        self, lake: DuckLake, tmp_path: Path, folder: str, says: str, has: str
    ) -> None:
        make(lake, "region VARCHAR, ts TIMESTAMP", partition_by="region, year(ts)")
        path = write(tmp_path / folder / "f.parquet", {"region": ["eu"], "ts": [self.DAY]})
        refused(errors.PartitionMismatchError, lambda: lake.add_files("t", path), path, "its path says", says, has)

    def test_a_path_may_write_an_equal_value_differently(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR, ts TIMESTAMP, d DOUBLE", partition_by="s, month(ts), d")
        table = {"s": ["a b"], "ts": [self.DAY], "d": [1.0]}
        lake.add_files("t", write(tmp_path / "S=a b/month=03/d=1/f.parquet", table))
        assert partitions(lake) == [(["a b", "3", "1.0"],)]

    def test_a_key_missing_from_the_file_gets_its_value_from_the_path(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "region VARCHAR, ts DATE, x BIGINT", partition_by="region, year(ts)")
        write(tmp_path / "Region=a%2Fb" / "ts=2024-05-06" / "f.parquet", {"x": [1, 2]})
        lake.add_files("t", f"{tmp_path}/**/*.parquet")
        assert partitions(lake) == [(["a/b", "2024"],)]
        assert rows(lake, "FROM t WHERE region = 'a/b'")[0] == ("a/b", dt.date(2024, 5, 6), 1)

    @pytest.mark.parametrize(
        ("folder", "words"),
        [
            ("n=x", ["`n=x`", "INTEGER"]),
            ("n=1/n=2", ["`n=1` and `n=2`"]),
            ("s=null", ["NULL or the text", "__HIVE_DEFAULT_PARTITION__"]),
        ],
    )
    def test_an_ambiguous_path_is_refused(self, lake: DuckLake, tmp_path: Path, folder: str, words: list[str]) -> None:
        make(lake, "n INTEGER, s VARCHAR, x BIGINT")
        path = write(tmp_path / folder / "f.parquet", {"x": [1]})
        refused(errors.DataError, lambda: lake.add_files("t", path, allow_missing=True), path, *words)

    def test_a_missing_key_uses_the_partition_of_its_default(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "x BIGINT")
        lake.execute(
            [
                "ALTER TABLE t ADD COLUMN region VARCHAR DEFAULT 'eu'",
                "ALTER TABLE t ADD COLUMN other VARCHAR",
                "ALTER TABLE t SET PARTITIONED BY (region, bucket(8, region), other)",
            ]
        ).raise_for_error()
        lake.add_files("t", write(tmp_path / "f.parquet", {"x": [1]}), allow_missing=True)
        bucket = rows(lake, "SELECT ((murmur3_32('eu') & 2147483647) % 8)::VARCHAR")[0][0]
        assert partitions(lake) == [(["eu", bucket, None],)]
