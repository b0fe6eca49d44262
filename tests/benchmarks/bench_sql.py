"""The 22 queries of TPC-H: `lake.sql`, plain Parquet and Iceberg, in one run and one session of Spark.

Run it with `make bench-sql` on an idle machine. DuckDB generates the data, and its queries are translated to Spark's
SQL. Every figure is the median of several runs, which alternate between the formats after one warm-up run.
"""

import argparse
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.benchmarks.bench_spark import DuckLakeOrch, Format, Iceberg, PlainParquet, Table, session
from tests.support.tpc_data import generate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help="1 is 6,000,000 rows in the largest table")
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    try:
        spark = session(folder, ["iceberg"])
        formats: list[Format] = [kind(spark, folder) for kind in (DuckLakeOrch, PlainParquet, Iceberg)]
        print(f"\nTPC-H at scale {given.scale:g}, Spark {spark.version}, medians of {given.times}\n", flush=True)
        generated = folder / "generated"
        generated.mkdir()
        queries = generate("tpch", given.scale, generated)
        names = [path.stem for path in sorted(generated.glob("*.parquet"))]
        for name in names:
            for table_format in formats:
                table_format.write(spark.read.parquet(f"{generated}/{name}.parquet").repartition(4), name)
        # Spark would find its own views before the tables of the lake.
        without_views = spark.newSession()

        def running(query: str) -> Callable[[Format], Callable[[], Any]]:
            def prepare(table_format: Format) -> Callable[[], Any]:
                if isinstance(table_format, DuckLakeOrch):
                    return lambda: table_format.lake.sql(without_views, query).collect()
                for name in names:
                    table_format.read(name).createOrReplaceTempView(name)
                return lambda: spark.sql(query).collect()

            return prepare

        table, total = Table(formats, given.times), Counter[str]()
        for number, query in sorted(queries.items()):
            total.update(table.line(f"query {number}", running(query)))
        table.show("all 22 queries", total)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
