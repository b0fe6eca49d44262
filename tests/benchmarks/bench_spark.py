"""Writing and reading with Spark: ducklake-orch, plain Parquet, Iceberg and Delta, in one run and one session.

Run it with `make bench-spark` on an idle machine. Every figure is the median of several runs, which alternate between
the formats after one warm-up run. Ratios carry over to other machines, seconds do not. Plain Parquet is Spark's own
writer with timestamps in microseconds and zstd. It is neither atomic nor versioned, and shows the limit of Spark.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.spark.java_home import find_java

ICEBERG = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


class Format(ABC):
    """A table format."""

    name: str
    deletes = True

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @abstractmethod
    def write(self, frame: DataFrame, table: str, partition_by: Sequence[str] = ()) -> None:
        """Create a table from rows."""

    @abstractmethod
    def append(self, frame: DataFrame, table: str) -> None:
        """Append rows."""

    @abstractmethod
    def replace(self, frame: DataFrame, table: str, day: str) -> None:
        """Replace one partition."""

    @abstractmethod
    def read(self, table: str) -> DataFrame:
        """Return the rows."""

    @abstractmethod
    def drop(self, table: str) -> None:
        """Remove a table."""

    def delete(self, table: str, where: str) -> None:
        """Delete rows."""
        raise NotImplementedError


class DuckLakeOrch(Format):
    name = "ducklake-orch"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)

    def write(self, frame: DataFrame, table: str, partition_by: Sequence[str] = ()) -> None:
        self.lake.write(frame, table, mode="error", partition_by=list(partition_by) or None)

    def append(self, frame: DataFrame, table: str) -> None:
        self.lake.write(frame, table, mode="append")

    def replace(self, frame: DataFrame, table: str, day: str) -> None:
        self.lake.write(frame, table, mode="replace_where", where=f"day = DATE '{day}'")

    def read(self, table: str) -> DataFrame:
        return self.lake.read(table, self.spark)

    def drop(self, table: str) -> None:
        self.lake.drop_table(table, if_exists=True)

    def delete(self, table: str, where: str) -> None:
        self.lake.execute(f"DELETE FROM {table} WHERE {where}").raise_for_error()


class PlainParquet(Format):
    name = "plain Parquet"
    deletes = False

    def write(self, frame: DataFrame, table: str, partition_by: Sequence[str] = ()) -> None:
        frame.write.option("compression", "zstd").parquet(
            str(self.folder / table), partitionBy=list(partition_by) or None
        )

    def append(self, frame: DataFrame, table: str) -> None:
        frame.write.option("compression", "zstd").parquet(str(self.folder / table), mode="append")

    def replace(self, frame: DataFrame, table: str, day: str) -> None:
        frame.drop("day").write.parquet(str(self.folder / table / f"day={day}"), mode="overwrite", compression="zstd")

    def read(self, table: str) -> DataFrame:
        return self.spark.read.parquet(str(self.folder / table))

    def drop(self, table: str) -> None:
        shutil.rmtree(self.folder / table, ignore_errors=True)


class Iceberg(Format):
    name = "Iceberg"

    def write(self, frame: DataFrame, table: str, partition_by: Sequence[str] = ()) -> None:
        writer = frame.writeTo(f"ice.db.{table}").using("iceberg").tableProperty("format-version", "2")
        writer = writer.tableProperty("write.delete.mode", "merge-on-read")
        if partition_by:
            writer = writer.partitionedBy(*[frame[column] for column in partition_by])
        writer.create()

    def append(self, frame: DataFrame, table: str) -> None:
        frame.writeTo(f"ice.db.{table}").append()

    def replace(self, frame: DataFrame, table: str, day: str) -> None:
        frame.writeTo(f"ice.db.{table}").overwritePartitions()

    def read(self, table: str) -> DataFrame:
        return self.spark.table(f"ice.db.{table}")

    def drop(self, table: str) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS ice.db.{table} PURGE")

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM ice.db.{table} WHERE {where}")


class Delta(Format):
    name = "Delta"

    def path(self, table: str) -> str:
        return str(self.folder / "delta" / table)

    def write(self, frame: DataFrame, table: str, partition_by: Sequence[str] = ()) -> None:
        frame.write.format("delta").save(self.path(table), partitionBy=list(partition_by) or None)

    def append(self, frame: DataFrame, table: str) -> None:
        frame.write.format("delta").mode("append").save(self.path(table))

    def replace(self, frame: DataFrame, table: str, day: str) -> None:
        writer = frame.write.format("delta").mode("overwrite").option("replaceWhere", f"day = DATE '{day}'")
        writer.save(self.path(table))

    def read(self, table: str) -> DataFrame:
        return self.spark.read.format("delta").load(self.path(table))

    def drop(self, table: str) -> None:
        shutil.rmtree(self.path(table), ignore_errors=True)

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM delta.`{self.path(table)}` WHERE {where}")


def session(folder: Path, formats: Sequence[str]) -> SparkSession:
    """Start a session with support for the formats."""
    find_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").appName("bench")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "6g",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    }
    packages = []
    if "iceberg" in formats:
        packages.append(ICEBERG)
        settings |= {
            "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.ice.type": "hadoop",
            "spark.sql.catalog.ice.warehouse": str(folder / "iceberg"),
        }
    extensions = ["org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"] if packages else []
    if "delta" in formats:
        extensions.append("io.delta.sql.DeltaSparkSessionExtension")
        settings["spark.sql.catalog.spark_catalog"] = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    if extensions:
        settings["spark.sql.extensions"] = ",".join(extensions)
    for name, value in settings.items():
        builder = builder.config(name, value)
    if "delta" in formats:
        from delta import configure_spark_with_delta_pip

        builder = configure_spark_with_delta_pip(builder, extra_packages=packages)
    elif packages:
        builder = builder.config("spark.jars.packages", ",".join(packages))
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    # Spark also adds Java packages to Python's path, where every task reads their directories, which takes 0.2 s.
    spark.sparkContext._python_includes = []
    return spark


def orders(spark: SparkSession, rows: int, days: int, tasks: int = 4) -> DataFrame:
    """Return rows with six columns: bigint, int, double, string, timestamp, date."""
    return spark.range(0, rows, 1, tasks).selectExpr(
        "id",
        "CAST(id % 1000 AS INT) AS customer",
        "rand(7) * 100 AS amount",
        "concat('item-', CAST(id % 5000 AS STRING)) AS item",
        "timestamp_micros(1700000000000000 + id * 1000003) AS at",
        f"date_add(DATE'2024-01-01', CAST(id % {days} AS INT)) AS day",
    )


def wide(spark: SparkSession, rows: int) -> DataFrame:
    columns = [f"id * {n} % 1000 AS c{n}" for n in range(200)]
    return spark.range(0, rows, 1, 4).selectExpr(*columns)


def nested(spark: SparkSession, rows: int) -> DataFrame:
    return spark.range(0, rows, 1, 4).selectExpr(
        "id",
        "named_struct('a', id, 'b', CAST(id AS STRING)) AS s",
        "array(id, id + 1, id + 2) AS l",
        "map('k', id, 'j', id + 1) AS m",
    )


def often(times: int) -> int:
    """Return the number of runs of short work for a number of runs of long work."""
    return 2 * times + 1


class Table:
    """The printed figures, one line at a time."""

    def __init__(self, formats: Sequence[Format], times: int) -> None:
        self.formats, self.times = formats, times
        print(
            f"| Work | {' | '.join(table_format.name for table_format in formats)} | ours / Parquet | ours / Iceberg |",
            flush=True,
        )
        print("|---" * (len(formats) + 3) + "|", flush=True)

    def line(
        self, work: str, run: Callable[[Format], Callable[[], Any] | None], *, short: bool = False
    ) -> dict[str, float]:
        """Measure work on every format; `run` prepares it and returns the timed function. Short work is repeated."""
        taken: dict[str, list[float]] = {table_format.name: [] for table_format in self.formats}
        for _ in range(1 + (often(self.times) if short else self.times)):
            for table_format in self.formats:
                if (timed := run(table_format)) is not None:
                    started = time.perf_counter()
                    timed()
                    taken[table_format.name].append(time.perf_counter() - started)
        seconds = {name: statistics.median(each[1:]) for name, each in taken.items() if each}
        self.show(work, seconds)
        return seconds

    def show(self, work: str, seconds: Mapping[str, float]) -> None:
        """Print the seconds that work took, by format."""
        shown = [
            f"{seconds[table_format.name]:.2f} s" if table_format.name in seconds else ""
            for table_format in self.formats
        ]
        ours = seconds.get(DuckLakeOrch.name)
        ratios = [
            f"{ours / seconds[name]:.2f}" if ours and name in seconds else ""
            for name in (PlainParquet.name, Iceberg.name)
        ]
        print(f"| {work} | {' | '.join([*shown, *ratios])} |", flush=True)


def measure(spark: SparkSession, formats: Sequence[Format], rows: int, times: int) -> None:
    """Print one line per operation."""
    table = Table(formats, times)

    def writing(name: str, frame: DataFrame, *keys: str) -> Callable[[Format], Callable[[], None]]:
        def prepare(table_format: Format) -> Callable[[], None]:
            table_format.drop(name)
            return lambda: table_format.write(frame, name, keys)

        return prepare

    flat, eight, many = orders(spark, rows, 8), orders(spark, rows, 8), orders(spark, rows, 200)
    one_day = eight.where("day = DATE'2024-01-03'")
    for table_format in formats:  # warm-up
        table_format.drop("warm")
        table_format.write(orders(spark, 500_000, 8), "warm")
        table_format.append(orders(spark, 1000, 8), "warm")
        table_format.read("warm").selectExpr("sum(amount)").collect()
    table.line("write", writing("flat", flat))
    table.line("write, 8 partitions", writing("eight", eight, "day"))
    table.line("write, 200 partitions", writing("many", many, "day"))
    replacing = "replace one of 8 partitions"
    table.line(replacing, lambda table_format: lambda: table_format.replace(one_day, "eight", "2024-01-03"), short=True)

    def small(table_format: Format) -> Callable[[], None]:
        small_frame = orders(spark, 100, 8, tasks=1)

        def run() -> None:
            for _ in range(10):
                table_format.append(small_frame, "warm")

        return run

    table.line("ten appends of 100 rows", small, short=True)
    sums = "sum(amount)", "max(at)", "count(DISTINCT customer)"

    def scanning(name: str, *columns: str, where: str = "true") -> Callable[[Format], Callable[[], Any]]:
        return lambda table_format: lambda: table_format.read(name).where(where).selectExpr(*columns).collect()

    table.line("full scan, three aggregates", scanning("flat", *sums), short=True)
    condition = "day = DATE'2024-01-05' AND customer < 100"
    table.line("filtered scan", scanning("eight", *sums, where=condition), short=True)

    def deleted(table_format: Format) -> Callable[[], Any] | None:
        if not table_format.deletes:
            return None
        if table_format.name not in shrunk:
            table_format.delete("flat", "id % 20 = 0")
            shrunk.add(table_format.name)
        return scanning("flat", *sums)(table_format)

    shrunk: set[str] = set()
    table.line("scan with 5 % deleted", deleted, short=True)
    table.line(f"write 200 columns, {rows // 50:,} rows", writing("wide", wide(spark, rows // 50)))
    table.line(f"write nested columns, {rows // 5:,} rows", writing("nested", nested(spark, rows // 5)))
    read_nested = "sum(s.a)", "sum(l[1])", "sum(m['k'])"
    table.line("scan nested columns", scanning("nested", *read_nested), short=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", nargs="+", type=int, default=[5_000_000, 20_000_000])
    parser.add_argument("--times", type=int, default=3)
    kinds: dict[str, type[Format]] = {"ours": DuckLakeOrch, "parquet": PlainParquet, "iceberg": Iceberg, "delta": Delta}
    parser.add_argument("--formats", nargs="+", default=list(kinds), choices=list(kinds))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        spark = session(folder, given.formats)
        for rows in given.rows:
            medians = f"medians of {given.times}, of short work {often(given.times)}"
            print(f"\n{rows:,} rows, Spark {spark.version}, {medians}\n", flush=True)
            place = folder / str(rows)
            place.mkdir()
            measure(spark, [kinds[name](spark, place) for name in given.formats], rows, given.times)
            shutil.rmtree(place)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
