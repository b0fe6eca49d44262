"""The definitions that Dagster loads: the pipeline, its lake, checks, schedules, a sensor, and maintenance."""

from pathlib import Path

import dagster as dg

from dagster_defs.pipeline import (
    ASSETS,
    checked_orders,
    customers,
    daily_revenue,
    orders,
    orders_are_clean,
    raw_orders,
)
from ducklake_orch.dagster import (
    DuckLakeFileResource,
    DuckLakeIOManager,
    SparkConfig,
    build_maintenance_definitions,
    ducklake_snapshot_sensor,
    with_table_names,
)

lake = DuckLakeFileResource(
    path=str(Path(__file__).with_name("ducklake.toml")),
    spark=SparkConfig(master="local[2]", conf={"spark.sql.shuffle.partitions": 2, "spark.ui.enabled": "false"}),
)
orders_of_a_day = dg.define_asset_job("orders_of_a_day", [raw_orders, orders, checked_orders])
defs = dg.Definitions.merge(
    dg.Definitions(
        assets=[*with_table_names(ASSETS, alias="shop"), checked_orders],
        asset_checks=[orders_are_clean],
        jobs=[
            orders_of_a_day,
            dg.define_asset_job("customers", [customers]),
            dg.define_asset_job("revenue", [daily_revenue]),
        ],
        schedules=[dg.build_schedule_from_partitioned_job(orders_of_a_day, hour_of_day=2)],
        sensors=[ducklake_snapshot_sensor([raw_orders])],
        resources={
            "lake": lake,
            "io_manager": DuckLakeIOManager(lake=lake),
            "after_checks": DuckLakeIOManager(lake=lake, publish="after_checks"),
        },
        # One process has one Spark session. With a process for each step, each would start its own.
        executor=dg.in_process_executor,
    ),
    build_maintenance_definitions("lake", checked_assets=ASSETS),
)
