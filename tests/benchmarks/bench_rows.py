"""Changing rows with Spark: ducklake-orch on each engine, Iceberg (merge-on-read) and Delta, in one run and session.

Run it with `make bench-rows` on an idle machine. Every figure is the median of several runs. Ratios carry over to other
machines, seconds do not. The table has 100 files, and each run changes different rows.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from tests.benchmarks.bench_spark import orders, session

FILES, SNAPSHOTS = 100, 100


class TableFormat(ABC):
    """A table format that can change rows.

    Args:
        spark: The session.
        folder: The folder of its tables.
    """

    name: str

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @abstractmethod
    def make(self, rows: DataFrame, table: str) -> None:
        """Create a table with a change feed."""

    @abstractmethod
    def append(self, rows: DataFrame, table: str) -> None:
        """Append rows."""

    @abstractmethod
    def merge(self, rows: DataFrame, table: str) -> None:
        """Update rows with the same id, and insert the others."""

    @abstractmethod
    def delete(self, table: str, where: str) -> None:
        """Delete rows."""

    @abstractmethod
    def update(self, table: str, where: str) -> None:
        """Add one to an amount."""

    @abstractmethod
    def changes(self, table: str) -> int:
        """Return the number of changes since the table was created."""


class DuckLakeOrch(TableFormat):
    engine = "auto"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.name = f"ours, {self.engine}"
        self.lake = DuckLake.local(folder / self.engine, data_inlining_row_limit=0)
        self.made: dict[str, int] = {}

    def make(self, rows: DataFrame, table: str) -> None:
        self.made[table] = self.lake.write(rows, table, mode="overwrite").snapshot_id + 1

    def append(self, rows: DataFrame, table: str) -> None:
        self.lake.write(rows, table, mode="append")

    def merge(self, rows: DataFrame, table: str) -> None:
        self.lake.write(rows, table, mode="merge", keys=["id"], engine=self.engine)

    def delete(self, table: str, where: str) -> None:
        self.lake.delete(table, where, spark=self.spark, engine=self.engine)

    def update(self, table: str, where: str) -> None:
        self.lake.update(table, {"amount": "amount + 1"}, where, spark=self.spark, engine=self.engine)

    def changes(self, table: str) -> int:
        if self.engine == "spark":
            return self.lake.changes(table, self.made[table], spark=self.spark).count()
        return int(self.lake.changes(table, self.made[table]).num_rows)


class DuckLakeOrchDuckDB(DuckLakeOrch):
    engine = "duckdb"


class DuckLakeOrchSpark(DuckLakeOrch):
    engine = "spark"


class Iceberg(TableFormat):
    name = "Iceberg"

    def make(self, rows: DataFrame, table: str) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS ice.db.{table} PURGE")
        writer = rows.writeTo(f"ice.db.{table}").using("iceberg").tableProperty("format-version", "2")
        for verb in ("delete", "update", "merge"):
            writer = writer.tableProperty(f"write.{verb}.mode", "merge-on-read")
        writer.create()

    def append(self, rows: DataFrame, table: str) -> None:
        rows.writeTo(f"ice.db.{table}").append()

    def merge(self, rows: DataFrame, table: str) -> None:
        rows.createOrReplaceTempView("source")
        self.spark.sql(
            f"MERGE INTO ice.db.{table} t USING source s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM ice.db.{table} WHERE {where}")

    def update(self, table: str, where: str) -> None:
        self.spark.sql(f"UPDATE ice.db.{table} SET amount = amount + 1 WHERE {where}")

    def changes(self, table: str) -> int:
        first = self.spark.sql(f"SELECT snapshot_id FROM ice.db.{table}.snapshots ORDER BY committed_at").first()
        assert first is not None
        options = f"map('start-snapshot-id', '{first[0]}')"
        self.spark.sql(f"CALL ice.system.create_changelog_view(table => 'db.{table}', options => {options})")
        return self.spark.table(f"{table}_changes").count()


class Delta(TableFormat):
    name = "Delta"

    def _sql(self, table: str) -> str:
        return f"delta.`{self.folder / 'delta' / table}`"

    def make(self, rows: DataFrame, table: str) -> None:
        path = self.folder / "delta" / table
        shutil.rmtree(path, ignore_errors=True)
        rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(path))

    def append(self, rows: DataFrame, table: str) -> None:
        rows.write.format("delta").mode("append").save(str(self.folder / "delta" / table))

    def merge(self, rows: DataFrame, table: str) -> None:
        rows.createOrReplaceTempView("source")
        self.spark.sql(
            f"MERGE INTO {self._sql(table)} t USING source s ON t.id = s.id"
            " WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM {self._sql(table)} WHERE {where}")

    def update(self, table: str, where: str) -> None:
        self.spark.sql(f"UPDATE {self._sql(table)} SET amount = amount + 1 WHERE {where}")

    def changes(self, table: str) -> int:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
        return reader.load(str(self.folder / "delta" / table)).count()


Work = Callable[[TableFormat, int], None]


def measure(spark: SparkSession, formats: Sequence[TableFormat], rows: int, times: int) -> None:
    """Print one line per operation."""
    for table_format in formats:
        table_format.make(orders(spark, rows, 8, tasks=FILES), "t")
        table_format.make(orders(spark, 1000, 8, tasks=1), "fed")
        for n in range(SNAPSHOTS):
            table_format.append(orders(spark, 10, 8, tasks=1).selectExpr(f"id + {n} AS id", "* EXCEPT (id)"), "fed")
    source, share = 200_000, rows // FILES

    def few_files(table_format: TableFormat, n: int) -> None:
        """Merge updates of one file's rows, and new rows."""
        start = f"CASE WHEN id < {share} THEN id + {n * share} ELSE id + {rows + n * source} END AS id"
        table_format.merge(orders(spark, source, 8).selectExpr(start, "* EXCEPT (id)"), "t")

    def all_files(table_format: TableFormat, n: int) -> None:
        table_format.merge(
            orders(spark, source, 8).selectExpr(f"id * {rows // source} + {n} AS id", "* EXCEPT (id)"), "t"
        )

    works: list[tuple[str, Work]] = [
        (f"merge {source:,} rows, 1 % of the files", few_files),
        (f"merge {source:,} rows, all files", all_files),
        ("delete 1 % of the rows", lambda table_format, n: table_format.delete("t", f"id % 100 = {n + 50}")),
        ("update 1 % of the rows", lambda table_format, n: table_format.update("t", f"id % 100 = {n + 10}")),
        (f"change feed of {SNAPSHOTS} snapshots", lambda table_format, _: changed(table_format)),
    ]
    names = " | ".join(table_format.name for table_format in formats)
    print(f"| Work | {names} | auto / Iceberg | auto / Delta | spark / Iceberg |")
    print("|---" * (len(formats) + 4) + "|", flush=True)
    for name, work in works:
        seconds = {table_format.name: median(table_format, work, times) for table_format in formats}
        shown = [
            f"{seconds[table_format.name]:.2f} s" if table_format.name in seconds else "" for table_format in formats
        ]
        pairs = [("ours, auto", "Iceberg"), ("ours, auto", "Delta"), ("ours, spark", "Iceberg")]
        shown += [f"{seconds[a] / seconds[b]:.2f}" if a in seconds and b in seconds else "" for a, b in pairs]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


def median(table_format: TableFormat, work: Work, times: int) -> float:
    """Return the median duration of work without its first run."""
    taken = []
    for n in range(times + 1):
        started = time.perf_counter()
        work(table_format, n)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def changed(table_format: TableFormat) -> None:
    count = table_format.changes("fed")
    if count != SNAPSHOTS * 10:
        raise AssertionError(f"{table_format.name} reports {count} changes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--times", type=int, default=3)
    kinds: dict[str, type[TableFormat]] = {
        "auto": DuckLakeOrch,
        "duckdb": DuckLakeOrchDuckDB,
        "spark": DuckLakeOrchSpark,
        "iceberg": Iceberg,
        "delta": Delta,
    }
    parser.add_argument("--formats", nargs="+", default=list(kinds), choices=list(kinds))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        spark = session(folder, given.formats)
        print(f"\n{given.rows:,} rows, Spark {spark.version}, medians of {given.times}\n", flush=True)
        measure(spark, [kinds[name](spark, folder) for name in given.formats], given.rows, given.times)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
