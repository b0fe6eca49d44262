"""Maintenance: ours on each engine, the extension's own functions, Iceberg and Delta, in one run and one session.

Run it with `make bench-maintenance`, on a quiet machine. Each run needs a table of its own: for 500 files, figures are
medians of three, all others are one run. Ratios carry over to other machines, seconds do not.
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


class Keeper(ABC):
    """What keeps tables, and how they are kept in shape.

    Args:
        spark: The session.
        folder: A folder of its own.

    Attributes:
        name: What the table says.
        forgets_by_itself: Whether it forgets snapshots in a way of its own.
    """

    name: str
    forgets_by_itself = True

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @abstractmethod
    def make(self, rows: DataFrame, table: str) -> None:
        """Make a table of as many files as the rows have parts."""

    @abstractmethod
    def append(self, number: int, table: str) -> None:
        """Add a few rows."""

    @abstractmethod
    def delete(self, table: str, where: str) -> None:
        """Delete rows."""

    @abstractmethod
    def compact(self, table: str) -> None:
        """Make few files of many."""

    @abstractmethod
    def forget(self, table: str) -> None:
        """Forget all snapshots but the last, and delete the files that only they need."""


class Ours(Keeper):
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


class OursSpark(Ours):
    engine = "spark"
    forgets_by_itself = False


class Extension(Ours):
    engine = "extension"


class Iceberg(Keeper):
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


class Delta(Keeper):
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


def measure(spark: SparkSession, keepers: Sequence[Keeper], many: int, snapshots: int) -> None:
    """Print a line for each kind of work."""
    print(f"| Work | {' | '.join(keeper.name for keeper in keepers)} | auto / Iceberg | spark / Iceberg |")
    print("|---" * (len(keepers) + 3) + "|", flush=True)

    def line(
        work: str, prepare: Callable[[Keeper], Callable[[], None]], *, of_engines: bool = True, times: int = 1
    ) -> None:
        seconds = {}
        for keeper in keepers:
            if not (of_engines or keeper.forgets_by_itself):
                continue
            seconds[keeper.name] = statistics.median(_seconds(prepare(keeper)) for _ in range(times))
        shown = [f"{seconds[keeper.name]:.2f} s" if keeper.name in seconds else "" for keeper in keepers]
        pairs = [("ours, auto", "Iceberg"), ("ours, spark", "Iceberg")]
        shown += [f"{seconds[a] / seconds[b]:.2f}" if a in seconds and b in seconds else "" for a, b in pairs]
        print(f"| {work} | {' | '.join(shown)} |", flush=True)

    def warm(one: Keeper) -> None:
        """Have all that it needs run: Spark ends Python workers that were idle for a minute."""
        one.make(orders(spark, 20 * ROWS_IN_A_FILE, 8, tasks=20), "w")
        one.compact("w")

    def small(files: int, *, deleted: bool = False) -> Callable[[Keeper], Callable[[], None]]:
        def prepare(one: Keeper) -> Callable[[], None]:
            one.make(orders(spark, files * ROWS_IN_A_FILE, 8, tasks=files), "t")
            if deleted:
                one.delete("t", "id % 10 = 3")
            one.forget("t")  # what was there before
            warm(one)
            return lambda: one.compact("t")

        return prepare

    def history(one: Keeper) -> Callable[[], None]:
        one.make(spark.range(0, 1, 1, 1), "h")
        for number in range(snapshots):
            one.append(number, "h")
        return lambda: one.forget("h")

    line("compact 500 files", small(500), times=3)
    line("compact 500 files with deletions", small(500, deleted=True), times=3)
    line(f"compact {many:,} files", small(many))
    line(f"delete the {many:,} files that were compacted", lambda one: lambda: one.forget("t"))
    line(f"expire {snapshots:,} snapshots", history, of_engines=False)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--many", type=int, default=5_000, help="how many files are many")
    parser.add_argument("--snapshots", type=int, default=500, help="how many to expire")
    kinds: dict[str, type[Keeper]] = {
        "auto": Ours,
        "spark": OursSpark,
        "extension": Extension,
        "iceberg": Iceberg,
        "delta": Delta,
    }
    parser.add_argument("--keepers", nargs="+", default=list(kinds), choices=list(kinds))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        spark = session(folder, given.keepers)
        print(f"\nSpark {spark.version}\n", flush=True)
        measure(spark, [kinds[name](spark, folder) for name in given.keepers], given.many, given.snapshots)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
