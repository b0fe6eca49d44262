"""Jobs that tests run in other processes; environment variables configure the lake."""

import os
import signal
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-03-01")
LAKE = DuckLakeResource(
    name="lake", catalog=dg.EnvVar("LAKE_CATALOG"), storage=dg.EnvVar("LAKE_FILES"), create_if_missing=True
)


def kill_once(name: str) -> None:
    """Kill this process, unless an earlier one was killed under the same name."""
    mark = Path(f"{os.environ['KILLED_MARK']}-{name}")
    if not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


def is_killed(when: str, key: str) -> bool:
    """Whether a partition is among those to kill, which an environment variable lists."""
    return key in os.environ.get(when, "").split(",")


class KilledOnce(dg.IOManager):
    """Kills its process right after the COMMIT, before Dagster records the step's success.

    Without partitions it does so once; with partitions, once for each that `KILL_AFTER_COMMIT` lists.
    """

    def __init__(self, inner: dg.IOManager) -> None:
        self.inner = inner

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        self.inner.handle_output(context, obj)
        if not context.has_partition_key:
            kill_once("step")
        elif is_killed("KILL_AFTER_COMMIT", context.partition_key):
            kill_once(context.partition_key)

    def load_input(self, context: dg.InputContext) -> Any:
        return self.inner.load_input(context)


@dg.io_manager(required_resource_keys={"inner"})
def killed_once(context: dg.InitResourceContext) -> dg.IOManager:
    return KilledOnce(context.resources.inner)


@dg.asset(metadata={"write_mode": "append"}, io_manager_key="killed_once")
def events() -> pa.Table:
    return pa.table({"id": [1, 2]})


@dg.asset
def counted(events: pa.Table) -> pa.Table:
    return pa.table({"rows": [events.num_rows]})


def day_of(key: str, rows: int) -> pa.Table:
    """Return rows of a day, numbered within the day."""
    day = date.fromisoformat(key)
    return pa.table({"day": pa.array([day] * rows, pa.date32()), "n": list(range(rows))})


def rows_killing_once(table: pa.Table, name: str) -> pa.RecordBatchReader:
    """Return rows that kill the process while they are written the first time."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield from table.to_batches()
        kill_once(name)

    return pa.RecordBatchReader.from_batches(table.schema, batches())


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, io_manager_key="killed_once")
def killed_daily(context: dg.AssetExecutionContext) -> Any:
    rows = day_of(key := context.partition_key, 100)
    return rows_killing_once(rows, key) if is_killed("KILL_WHILE_WRITING", key) else rows


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def by_spark(context: dg.AssetExecutionContext) -> Any:
    from ducklake_orch.spark import local_session

    session = local_session("a step", master="local[1]", conf={"spark.driver.memory": "1g"})
    return session.sql(f"SELECT DATE '{context.partition_key}' AS day, CAST(id AS INT) AS n FROM range(100)")


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"})
def daily(context: dg.AssetExecutionContext) -> pa.Table:
    return day_of(context.partition_key, int(os.environ.get("ROWS", "100")))


def job(name: str) -> dg.JobDefinition:
    definitions = dg.Definitions(
        assets=[events, counted, daily, killed_daily, by_spark],
        jobs=[
            dg.define_asset_job("events", [events, counted]),
            *(
                dg.define_asset_job(definition.key.path[0], [definition])
                for definition in (daily, killed_daily, by_spark)
            ),
        ],
        resources={
            "io_manager": (manager := DuckLakeIOManager(lake=LAKE)),
            "inner": manager,
            "killed_once": killed_once,
        },
    )
    return definitions.resolve_job_def(name)


def events_job() -> dg.JobDefinition:
    return job("events")


def daily_job() -> dg.JobDefinition:
    return job("daily")


def killed_daily_job() -> dg.JobDefinition:
    return job("killed_daily")


def by_spark_job() -> dg.JobDefinition:
    return job("by_spark")
