"""A job whose outputs become visible together. Files in the folder $FLAGS make it fail, or change its rows."""

import os
from pathlib import Path

import dagster as dg
import pyarrow as pa

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, ducklake_publication
from tests.dagster_host.published_job import numbers


def flag(name: str) -> bool:
    return (Path(os.environ["FLAGS"]) / name).exists()


@dg.asset(metadata={"write_mode": "append"})
def events() -> pa.Table:
    return numbers(*([] if flag("no events") else [2] if flag("second") else [1]))


@dg.asset
def orders() -> pa.Table | None:
    return None if flag("no orders") else numbers(2 if flag("second") else 1)


@dg.asset(deps=[events, orders])
def totals() -> pa.Table:
    if flag("fails"):
        raise dg.Failure("The flag says so.")
    return numbers(2 if flag("second") else 1)


lake = DuckLakeResource(
    name="lake", catalog=dg.EnvVar("LAKE_CATALOG"), storage=dg.EnvVar("LAKE_FILES"), create_if_missing=True
)
published = ducklake_publication("published", [events, orders, totals])


def _job(assets: list[dg.AssetsDefinition], publish: str) -> dg.JobDefinition:
    return dg.Definitions(
        assets=assets,
        resources={"lake": lake, "io_manager": DuckLakeIOManager(lake=lake, publish=publish)},
        jobs=[dg.define_asset_job("whole_run", executor_def=dg.in_process_executor)],
    ).resolve_job_def("whole_run")


def whole_run() -> dg.JobDefinition:
    return _job([events, orders, totals], "run")


def after_checks() -> dg.JobDefinition:
    return _job([events, orders, totals, published], "after_checks")
