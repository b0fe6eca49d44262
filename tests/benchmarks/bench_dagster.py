"""The overhead of the IO manager over a write, and a backfill compared with other IO managers on the same frames.

Run it with `make bench-dagster`. Everything runs in one process, alternating between the packages.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
from dagster_deltalake import DeltaLakePyarrowIOManager, LocalConfig
from dagster_duckdb_pandas import DuckDBPandasIOManager

from ducklake_orch import DuckLake
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource

FIRST = date(2026, 1, 1)
OURS, DELTA, DUCKDB = "DuckLakeIOManager", "dagster-deltalake", "dagster-duckdb-pandas"
DAYS = dg.DailyPartitionsDefinition(FIRST.isoformat())


def frame(key: str, rows: int) -> pa.Table:
    """Return the rows of a day."""
    day = pa.array([date.fromisoformat(key)] * rows, pa.date32())
    return pa.table({"day": day, "id": pa.array(range(rows), pa.int64()), "v": pa.array([0.5] * rows)})


def asset_of(rows: int) -> dg.AssetsDefinition:
    """Return an asset that produces these frames."""

    @dg.asset(key=["bench", "days"], partitions_def=DAYS, metadata={"partition_expr": "day"})
    def days(context: dg.AssetExecutionContext) -> pa.Table:
        return frame(context.partition_key, rows)

    return days


def pandas_asset_of(rows: int) -> dg.AssetsDefinition:
    """Return an asset that produces the same frames for an IO manager of pandas frames."""

    @dg.asset(key=["bench", "days"], partitions_def=DAYS, metadata={"partition_expr": "day"})
    def days(context: dg.AssetExecutionContext) -> pd.DataFrame:
        found = frame(context.partition_key, rows).to_pandas()
        found["day"] = pd.to_datetime(found["day"])  # it compares with timestamps
        return found

    return days


def backfill(asset: dg.AssetsDefinition, io_manager: Any, keys: Sequence[str]) -> list[float]:
    """Materialize partitions sequentially, and return the seconds of each."""
    taken = []
    with dg.DagsterInstance.ephemeral() as instance:
        for key in keys:
            started = time.perf_counter()
            resources = {"io_manager": io_manager}
            result = dg.materialize([asset], partition_key=key, resources=resources, instance=instance)
            taken.append(time.perf_counter() - started)
            assert result.success
    return taken


class NoIOManager(dg.IOManager):
    """Stores nothing, to measure the cost of a run alone."""

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Do nothing."""

    def load_input(self, context: dg.InputContext) -> Any:
        """Refuse, because no asset reads."""
        raise NotImplementedError


def written(lake: DuckLake, rows: int, keys: Sequence[str]) -> list[float]:
    """Write the same frames without Dagster, and return the seconds of each."""
    taken = []
    for key in keys:
        rows_of_day, started = frame(key, rows), time.perf_counter()
        where = f"day >= DATE '{key}' AND day < DATE '{date.fromisoformat(key) + timedelta(1)}'"
        lake.write(rows_of_day, "bench.plain", mode="replace_where", where=where, partition_by=["day"])
        taken.append(time.perf_counter() - started)
    return taken


def measure(rows: int, keys: Sequence[str], folder: Path) -> None:
    """Print a line: seconds of each variant, the overhead of the IO manager, and the ratios to the others."""
    asset, pandas_asset = asset_of(rows), pandas_asset_of(rows)
    lake = DuckLakeResource(
        name="lake", catalog=f"sqlite:///{folder}/lake.sqlite", storage=f"{folder}/files", create_if_missing=True
    )
    duckdb = DuckDBPandasIOManager(database=f"{folder}/other.duckdb")
    delta = DeltaLakePyarrowIOManager(root_uri=f"{folder}/delta", storage_options=LocalConfig())
    ways: dict[str, Callable[[Sequence[str]], list[float]]] = {
        "no IO manager": lambda partition_keys: backfill(asset, NoIOManager(), partition_keys),
        "lake.write": lambda partition_keys: written(lake.lake(), rows, partition_keys),
        OURS: lambda partition_keys: backfill(asset, DuckLakeIOManager(lake=lake), partition_keys),
        DELTA: lambda partition_keys: backfill(asset, delta, partition_keys),
        DUCKDB: lambda partition_keys: backfill(pandas_asset, duckdb, partition_keys),
    }
    for way in ways.values():  # warm-up
        way(keys[:1])
    durations: dict[str, list[float]] = {name: [] for name in ways}
    for start in range(1, len(keys), 5):
        for name, way in ways.items():
            durations[name] += way(keys[start : start + 5])
    medians = [statistics.median(durations[name]) for name in ways]
    nothing, write, ours = medians[:3]
    shown = [f"{median:.3f} s" for median in medians]
    shown.append(f"{1000 * (ours - write - nothing):.0f} ms")
    shown += [f"{sum(durations[OURS]) / sum(durations[other]):.2f}" for other in (DELTA, DUCKDB)]
    print(f"| a partition of {rows:,} rows, one of {len(keys) - 1} | {' | '.join(shown)} |", flush=True)


def main() -> None:
    """Read the arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=30)
    parser.add_argument("--rows", nargs="+", type=int, default=[1_000, 1_000_000])
    given = parser.parse_args()
    keys = [(FIRST + timedelta(number)).isoformat() for number in range(given.partitions + 1)]
    head = ["no IO manager", "lake.write", OURS, DELTA, DUCKDB, "added", f"ours / {DELTA}", f"ours / {DUCKDB}"]
    print(f"| Work | {' | '.join(head)} |")
    print("|---" * (len(head) + 1) + "|", flush=True)
    for rows in given.rows:
        with tempfile.TemporaryDirectory() as folder:
            measure(rows, keys, Path(folder))


if __name__ == "__main__":
    main()
