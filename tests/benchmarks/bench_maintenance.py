"""Maintenance: ducklake-orch on each engine, the functions of the extension, Iceberg and Delta, in one run and session.

Run it with `make bench-maintenance` on an idle machine. Each run needs a new table, so figures for 500 files are
medians of three runs, and all others are single runs. Ratios carry over to other machines, seconds do not.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake, MaintenancePolicy
from tests.benchmarks.bench_spark import orders, session

ROWS_IN_A_FILE = 400


class TableFormat(ABC):
    """A table format and its maintenance.

    Args:
        spark: The session.
        folder: The folder of its tables.

    Attributes:
        name: The name in the printed table.
        forgets_by_itself: Whether the format has its own operation to expire snapshots.
    """

    name: str
    forgets_by_itself = True

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @abstractmethod
    def make(self, rows: DataFrame, table: str) -> None:
        """Create a table with one file per partition of the frame."""

    @abstractmethod
    def append(self, number: int, table: str) -> None:
        """Append some rows."""

    @abstractmethod
    def delete(self, table: str, where: str) -> None:
        """Delete rows."""

    @abstractmethod
    def compact(self, table: str) -> None:
        """Compact small files."""

    @abstractmethod
    def forget(self, table: str) -> None:
        """Expire all snapshots except the last, and delete the files that only they need."""


class DuckLakeOrch(TableFormat):
    engine = "auto"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        super().__init__(spark, folder)
        self.name = f"ours, {self.engine}"
        self.lake = DuckLake.local(folder / self.engine, data_inlining_row_limit=0)

    def make(self, rows: DataFrame, table: str) -> None:
        self.lake.write(rows, table, mode="overwrite", distribution="none", engine="native")

    def append(self, number: int, table: str) -> None:
        self.lake.write(pa.table({"id": [number]}), table, mode="append")

    def delete(self, table: str, where: str) -> None:
        self.lake.delete(table, where)

    def compact(self, table: str) -> None:
        policy = {"merge": {"min_files": 2, "engine": self.engine}, "rewrite": {"delete_threshold": 0.05}}
        self._maintain(policy, ["rewrite", "merge"], table)

    def forget(self, table: str) -> None:
        at_once: dict[str, Any] = {"older_than": "0s"}
        policy = {"expire": at_once | {"retain_last": 1}, "cleanup": at_once, "force": True}
        self._maintain(policy, ["expire", "cleanup"], None)

    def _maintain(self, policy: dict[str, Any], operations: Sequence[str], table: str | None) -> None:
        spark = self.spark if self.engine == "spark" else None
        tables = None if table is None else [table]
        chosen = MaintenancePolicy.model_validate(policy)
        report = self.lake.maintain(chosen, operations, tables=tables, spark=spark)
        if report.status != "ok":
            raise AssertionError(str(report))


class DuckLakeOrchSpark(DuckLakeOrch):
    engine = "spark"
    forgets_by_itself = False


class Extension(DuckLakeOrch):
    engine = "extension"


class Iceberg(TableFormat):
    name = "Iceberg"

    def make(self, rows: DataFrame, table: str) -> None:
        self.spark.sql(f"DROP TABLE IF EXISTS ice.db.{table} PURGE")
        writer = rows.writeTo(f"ice.db.{table}").using("iceberg").tableProperty("write.distribution-mode", "none")
        writer.tableProperty("format-version", "2").tableProperty("write.delete.mode", "merge-on-read").create()

    def append(self, number: int, table: str) -> None:
        self.spark.range(number, number + 1, 1, 1).writeTo(f"ice.db.{table}").append()

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM ice.db.{table} WHERE {where}")

    def compact(self, table: str) -> None:
        options = "map('min-input-files', '2', 'delete-ratio-threshold', '0.05')"
        self.spark.sql(f"CALL ice.system.rewrite_data_files(table => 'db.{table}', options => {options})")

    def forget(self, table: str) -> None:
        self.spark.sql(
            f"CALL ice.system.expire_snapshots(table => 'db.{table}', retain_last => 1,"
            " older_than => TIMESTAMP '2999-01-01 00:00:00')"
        )


class Delta(TableFormat):
    name = "Delta"

    def _sql(self, table: str) -> str:
        return f"delta.`{self.folder / 'delta' / table}`"

    def make(self, rows: DataFrame, table: str) -> None:
        shutil.rmtree(self.folder / "delta" / table, ignore_errors=True)
        rows.write.format("delta").option("delta.enableDeletionVectors", "true").save(
            str(self.folder / "delta" / table)
        )

    def append(self, number: int, table: str) -> None:
        rows = self.spark.range(number, number + 1, 1, 1)
        rows.write.format("delta").mode("append").save(str(self.folder / "delta" / table))

    def delete(self, table: str, where: str) -> None:
        self.spark.sql(f"DELETE FROM {self._sql(table)} WHERE {where}")

    def compact(self, table: str) -> None:
        self.spark.sql(f"OPTIMIZE {self._sql(table)}")

    def forget(self, table: str) -> None:
        self.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        self.spark.sql(f"VACUUM {self._sql(table)} RETAIN 0 HOURS")


def measure(spark: SparkSession, formats: Sequence[TableFormat], many: int, snapshots: int) -> None:
    """Print one line per operation."""
    print(f"| Work | {' | '.join(table_format.name for table_format in formats)} | auto / Iceberg | spark / Iceberg |")
    print("|---" * (len(formats) + 3) + "|", flush=True)

    def line(
        work: str, prepare: Callable[[TableFormat], Callable[[], None]], *, of_engines: bool = True, times: int = 1
    ) -> None:
        seconds = {}
        for table_format in formats:
            if not (of_engines or table_format.forgets_by_itself):
                continue
            seconds[table_format.name] = statistics.median(_seconds(prepare(table_format)) for _ in range(times))
        shown = [
            f"{seconds[table_format.name]:.2f} s" if table_format.name in seconds else "" for table_format in formats
        ]
        pairs = [("ours, auto", "Iceberg"), ("ours, spark", "Iceberg")]
        shown += [f"{seconds[a] / seconds[b]:.2f}" if a in seconds and b in seconds else "" for a, b in pairs]
        print(f"| {work} | {' | '.join(shown)} |", flush=True)

    def warm(table_format: TableFormat) -> None:
        """Start all workers, because Spark stops Python workers that are idle for a minute."""
        table_format.make(orders(spark, 20 * ROWS_IN_A_FILE, 8, tasks=20), "w")
        table_format.compact("w")

    def small(files: int, *, deleted: bool = False) -> Callable[[TableFormat], Callable[[], None]]:
        def prepare(table_format: TableFormat) -> Callable[[], None]:
            table_format.make(orders(spark, files * ROWS_IN_A_FILE, 8, tasks=files), "t")
            if deleted:
                table_format.delete("t", "id % 10 = 3")
            table_format.forget("t")  # files of the previous table
            warm(table_format)
            return lambda: table_format.compact("t")

        return prepare

    def history(table_format: TableFormat) -> Callable[[], None]:
        table_format.make(spark.range(0, 1, 1, 1), "h")
        for number in range(snapshots):
            table_format.append(number, "h")
        return lambda: table_format.forget("h")

    line("compact 500 files", small(500), times=3)
    line("compact 500 files with deletions", small(500, deleted=True), times=3)
    line(f"compact {many:,} files", small(many))
    line(f"delete the {many:,} files that were compacted", lambda table_format: lambda: table_format.forget("t"))
    line(f"expire {snapshots:,} snapshots", history, of_engines=False)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=5_000, help="how many files are many")
    parser.add_argument("--snapshots", type=int, default=500, help="how many to expire")
    kinds: dict[str, type[TableFormat]] = {
        "auto": DuckLakeOrch,
        "spark": DuckLakeOrchSpark,
        "extension": Extension,
        "iceberg": Iceberg,
        "delta": Delta,
    }
    parser.add_argument("--formats", nargs="+", default=list(kinds), choices=list(kinds))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        spark = session(folder, given.formats)
        print(f"\nSpark {spark.version}\n", flush=True)
        measure(spark, [kinds[name](spark, folder) for name in given.formats], given.many, given.snapshots)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
