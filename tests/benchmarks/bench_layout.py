"""Clustering by two columns: ducklake-orch, Delta's `OPTIMIZE ZORDER BY` and Iceberg's z-order, in one run and session.

Run it with `make bench-layout` on an idle machine. Each format gets the same rows in unclustered files, clusters them
once into files of the same size, and answers the same ten queries before and after. Spark runs all queries and tells
the size of the files that they open. Their seconds are medians of three runs; the clustering is run once.
"""

import argparse
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from tests.benchmarks.bench_spark import session

FILES, FILE_SIZE = 20, 32 * 1000**2
_TIMES = 3
# The metrics of scans, of Spark and of Iceberg, that tell the size of the files.
_SIZES = ("filesSize", "totalDataFileSize", "totalFileSize")
_DAYS = (("2026-02-11", "2026-02-12"), ("2026-07-04", "2026-07-05"), ("2026-11-30", "2026-12-01"))
QUERIES = (
    *(f"customer = {number}" for number in (17, 4_242, 50_000, 99_999)),
    *(f"seen >= TIMESTAMP '{day}' AND seen < TIMESTAMP '{following}'" for day, following in _DAYS),
    *(f"customer < 2000 AND seen >= TIMESTAMP '{day}'" for day in ("2026-12-01", "2026-12-20")),
    "customer BETWEEN 40000 AND 42000 AND seen < TIMESTAMP '2026-01-15'",
)


class TableFormat(ABC):
    """A table format that clusters the table `visits` by `customer` and `seen`."""

    name: str

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    @abstractmethod
    def write(self, rows: DataFrame) -> None:
        """Create the table with one file per partition of the frame."""

    @abstractmethod
    def cluster(self) -> None:
        """Cluster the table."""

    @abstractmethod
    def read(self, where: str) -> DataFrame:
        """Return the rows that meet a condition."""


class DuckLakeOrch(TableFormat):
    name = "ducklake-orch"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.lake = DuckLake.local(folder / "lake")

    def write(self, rows: DataFrame) -> None:
        options = {"target_file_size": f"{FILE_SIZE}B", "parquet_compression": "zstd"}
        self.lake.create_table("visits", rows.schema, cluster_by=["customer", "seen"], options=options)
        self.lake.write(rows, "visits", mode="append", distribution="none")

    def cluster(self) -> None:
        policy = {"layout": {"max_depth": 1.5}, "merge": {"enabled": False}}
        self.lake.maintain(policy, ["layout"]).raise_for_error()

    def read(self, where: str) -> DataFrame:
        return self.lake.read("visits", self.spark, where=where)

    def latest(self) -> int:
        """Return the latest snapshot."""
        return self.lake.snapshots(limit=1)[0].snapshot_id

    def fingerprint(self, snapshot: int) -> Any:
        """Return what identifies the rows of a snapshot, with their ids."""
        sql = f"SELECT count(*), sum(hash(rowid, customer, seen, amount)) FROM visits AT (VERSION => {snapshot})"
        return self.lake.execute(sql).rows


class Delta(TableFormat):
    name = "Delta"

    @property
    def _path(self) -> str:
        return str(self.folder / "delta")

    def write(self, rows: DataFrame) -> None:
        rows.write.format("delta").option("compression", "zstd").save(self._path)

    def cluster(self) -> None:
        self.spark.conf.set("spark.databricks.delta.optimize.maxFileSize", FILE_SIZE)
        self.spark.conf.set("spark.sql.parquet.compression.codec", "zstd")
        self.spark.sql(f"OPTIMIZE delta.`{self._path}` ZORDER BY (customer, seen)").collect()

    def read(self, where: str) -> DataFrame:
        return self.spark.read.format("delta").load(self._path).where(where)


class Iceberg(TableFormat):
    name = "Iceberg"

    def write(self, rows: DataFrame) -> None:
        rows.writeTo("ice.db.visits").using("iceberg").create()

    def cluster(self) -> None:
        options = f"map('rewrite-all', 'true', 'target-file-size-bytes', '{FILE_SIZE}')"
        order = "strategy => 'sort', sort_order => 'zorder(customer, seen)'"
        self.spark.sql(
            f"CALL ice.system.rewrite_data_files(table => 'db.visits', {order}, options => {options})"
        ).collect()

    def read(self, where: str) -> DataFrame:
        return self.spark.table("ice.db.visits").where(where)


def visits(spark: SparkSession, rows: int) -> DataFrame:
    """Return rows in no order: a customer and a time of 2026, independent of each other, and three more columns."""
    return spark.range(0, rows, 1, FILES).selectExpr(
        "id",
        "abs(xxhash64(id)) % 100000 AS customer",
        "timestamp_seconds(1767225600 + abs(xxhash64(id, 7)) % 31536000) AS seen",
        "rand(7) * 100 AS amount",
        "concat('page-', CAST(id % 5000 AS STRING)) AS page",
    )


def opened(frame: DataFrame) -> int:
    """Return the size of the files that a query opened, after it ran."""
    leaves: Any = frame._jdf.queryExecution().executedPlan().collectLeaves()
    total = 0
    for leaf in map(leaves.apply, range(leaves.size())):
        metrics = leaf.metrics()
        found = [metrics.get(name) for name in _SIZES if metrics.contains(name)]
        total += found[0].get().value() if found else 0
    if not total:
        raise SystemExit("the plan does not tell what it read")
    return total


def answers(table_format: TableFormat) -> tuple[int, float, Sequence[Any]]:
    """Return the size of the files that the queries open, their seconds, and their results."""
    taken, size, results = list[float](), 0, list[Any]()
    table_format.spark.conf.set("spark.sql.adaptive.enabled", "false")  # so that a plan tells what it read
    for _ in range(1 + _TIMES):
        started = time.perf_counter()
        frames = [table_format.read(where).selectExpr("count(*)", "round(sum(amount), 3)") for where in QUERIES]
        results = [frame.collect() for frame in frames]
        taken.append(time.perf_counter() - started)
        size = sum(map(opened, frames))
    table_format.spark.conf.set("spark.sql.adaptive.enabled", "true")
    return size, statistics.median(taken[1:]), results


def measure(spark: SparkSession, folder: Path, rows: int) -> None:
    """Print a line for each format."""
    formats = [kind(spark, folder) for kind in (DuckLakeOrch, Delta, Iceberg)]
    frame = visits(spark, rows)
    print("| Format | clustering | ten queries before | after | opened before | after |")
    print("|---|---|---|---|---|---|", flush=True)
    seen = list[Any]()
    for table_format in formats:
        table_format.write(frame)
        bytes_before, before, found = answers(table_format)
        ours = table_format if isinstance(table_format, DuckLakeOrch) else None
        snapshot = 0 if ours is None else ours.latest()
        rows_before = None if ours is None else ours.fingerprint(snapshot)
        started = time.perf_counter()
        table_format.cluster()
        clustering = time.perf_counter() - started
        bytes_after, after, found_after = answers(table_format)
        if found_after != found:
            raise SystemExit(f"{table_format.name}: other results after clustering")
        if ours and not rows_before == ours.fingerprint(snapshot) == ours.fingerprint(ours.latest()):
            raise SystemExit("other rows or row ids after clustering")
        seen.append(found)
        sizes = f"{bytes_before / 1e6:,.0f} MB | {bytes_after / 1e6:,.0f} MB"
        print(f"| {table_format.name} | {clustering:.1f} s | {before:.2f} s | {after:.2f} s | {sizes} |", flush=True)
    if any(found != seen[0] for found in seen):
        raise SystemExit("the formats give other results")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=20_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        spark = session(Path(folder), ["iceberg", "delta"])
        print(f"**{args.rows:,} rows** in {FILES} files, clustered by two columns into files of 32 MB\n")
        measure(spark, Path(folder), args.rows)
        spark.stop()


if __name__ == "__main__":
    main()
