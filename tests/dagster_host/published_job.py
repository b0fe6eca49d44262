"""A job that stages five tables, checks one of them, and publishes all. Environment variables configure it."""

import os
from pathlib import Path

import dagster as dg
import pyarrow as pa

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, ducklake_publication


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


@dg.asset(key_prefix="shop")
def orders() -> pa.Table:
    return numbers(1, 2, 3) if Path(os.environ["IS_GOOD"]).exists() else numbers(1, 2, -3)


@dg.multi_asset(outs={"customers": dg.AssetOut(key_prefix="shop"), "places": dg.AssetOut(key_prefix="shop")})
def dimensions() -> tuple[pa.Table, pa.Table]:
    return numbers(1), numbers(2)


@dg.asset(key_prefix="shop", metadata={"write_mode": "append"})
def events() -> pa.Table:
    return numbers(7)


@dg.asset(key_prefix="shop")
def totals(orders: pa.Table) -> pa.Table:
    return numbers(sum(orders.column("n").to_pylist()))


@dg.asset_check(asset=orders, blocking=True)
def orders_are_positive(orders: pa.Table) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=min(orders.column("n").to_pylist()) > 0)


published = ducklake_publication("published", [orders, dimensions, events, totals])


@dg.asset(deps=[published])
def report() -> None:
    """Reads what is published."""


lake = DuckLakeResource(
    name="lake", catalog=dg.EnvVar("LAKE_CATALOG"), storage=dg.EnvVar("LAKE_FILES"), create_if_missing=True
)
definitions = dg.Definitions(
    assets=[orders, dimensions, events, totals, published, report],
    asset_checks=[orders_are_positive],
    resources={"lake": lake, "io_manager": DuckLakeIOManager(lake=lake, publish="after_checks")},
    jobs=[dg.define_asset_job("five_tables", executor_def=dg.in_process_executor)],
)


def five_tables() -> dg.JobDefinition:
    return definitions.resolve_job_def("five_tables")
