"""Changing rows with Spark: ours on each engine, Iceberg (merge-on-read) and Delta, in one run and one session.

Run it with `make bench-rows`, on a quiet machine. Every figure is the median of some runs; ratios carry over to other
machines, seconds do not. The table has 100 files; each run changes other rows of it.
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


class Keeper(ABC):
    """What keeps a table, and changes its rows.

    Args:
        spark: The session.
        folder: A folder of its own.
    """

    name: str

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder

    @abstractmethod
    def make(self, rows: DataFrame, table: str) -> None:
        """Make a table, whose changes can be read later."""

    @abstractmethod
    def append(self, rows: DataFrame, table: str) -> None:
        """Add rows."""

    @abstractmethod
    def merge(self, rows: DataFrame, table: str) -> None:
        """Update the rows with the same id, add the others."""

    @abstractmethod
    def delete(self, table: str, where: str) -> None:
        """Delete rows."""

    @abstractmethod
    def update(self, table: str, where: str) -> None:
        """Add one to an amount."""

    @abstractmethod
    def changes(self, table: str) -> int:
        """Return how many changes there were since the table was made."""


class Ours(Keeper):
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


class OursDuckDB(Ours):
    engine = "duckdb"


class OursSpark(Ours):
    engine = "spark"


class Iceberg(Keeper):
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


class Delta(Keeper):
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


Work = Callable[[Keeper, int], None]


def measure(spark: SparkSession, keepers: Sequence[Keeper], rows: int, times: int) -> None:
    """Print a line for each kind of work."""
    for keeper in keepers:
        keeper.make(orders(spark, rows, 8, tasks=FILES), "t")
        keeper.make(orders(spark, 1000, 8, tasks=1), "fed")
        for n in range(SNAPSHOTS):
            keeper.append(orders(spark, 10, 8, tasks=1).selectExpr(f"id + {n} AS id", "* EXCEPT (id)"), "fed")
    source, share = 200_000, rows // FILES

    def few_files(one: Keeper, n: int) -> None:
        """A file's rows are changed, the others are new."""
        start = f"CASE WHEN id < {share} THEN id + {n * share} ELSE id + {rows + n * source} END AS id"
        one.merge(orders(spark, source, 8).selectExpr(start, "* EXCEPT (id)"), "t")

    def all_files(one: Keeper, n: int) -> None:
        one.merge(orders(spark, source, 8).selectExpr(f"id * {rows // source} + {n} AS id", "* EXCEPT (id)"), "t")

    works: list[tuple[str, Work]] = [
        (f"merge {source:,} rows, 1 % of the files", few_files),
        (f"merge {source:,} rows, all files", all_files),
        ("delete 1 % of the rows", lambda one, n: one.delete("t", f"id % 100 = {n + 50}")),
        ("update 1 % of the rows", lambda one, n: one.update("t", f"id % 100 = {n + 10}")),
        (f"change feed of {SNAPSHOTS} snapshots", lambda one, _: changed(one)),
    ]
    print(
        f"| Work | {' | '.join(keeper.name for keeper in keepers)} | auto / Iceberg | auto / Delta | spark / Iceberg |"
    )
    print("|---" * (len(keepers) + 4) + "|", flush=True)
    for name, work in works:
        seconds = {keeper.name: median(keeper, work, times) for keeper in keepers}
        shown = [f"{seconds[keeper.name]:.2f} s" if keeper.name in seconds else "" for keeper in keepers]
        pairs = [("ours, auto", "Iceberg"), ("ours, auto", "Delta"), ("ours, spark", "Iceberg")]
        shown += [f"{seconds[a] / seconds[b]:.2f}" if a in seconds and b in seconds else "" for a, b in pairs]
        print(f"| {name} | {' | '.join(shown)} |", flush=True)


def median(one: Keeper, work: Work, times: int) -> float:
    """Return how long work takes; its first run does not count."""
    taken = []
    for n in range(times + 1):
        started = time.perf_counter()
        work(one, n)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken[1:])


def changed(one: Keeper) -> None:
    found = one.changes("fed")
    if found != SNAPSHOTS * 10:
        raise AssertionError(f"{one.name} tells of {found} changes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--times", type=int, default=3)
    kinds: dict[str, type[Keeper]] = {
        "auto": Ours,
        "duckdb": OursDuckDB,
        "spark": OursSpark,
        "iceberg": Iceberg,
        "delta": Delta,
    }
    parser.add_argument("--keepers", nargs="+", default=list(kinds), choices=list(kinds))
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        spark = session(folder, given.keepers)
        print(f"\n{given.rows:,} rows, Spark {spark.version}, medians of {given.times}\n", flush=True)
        measure(spark, [kinds[name](spark, folder) for name in given.keepers], given.rows, given.times)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
