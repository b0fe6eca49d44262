"""The snapshot sensor observes changes made outside Dagster, and no others."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, ducklake_snapshot_sensor
from ducklake_orch.errors import ConfigError
from tests.support.refusals import refused

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01", timezone="Europe/Berlin")


class Watch:
    """A sensor and its cursor between ticks."""

    def __init__(
        self,
        sensor: dg.SensorDefinition,
        resource: DuckLakeResource,
        instance: dg.DagsterInstance,
        definitions: dg.Definitions | None = None,
    ) -> None:
        self.sensor = sensor
        self.definitions = definitions
        self.resource = resource
        self.instance = instance
        self.cursor: str | None = None

    def tick(self) -> Any:
        """Evaluate a tick and return its result, as the daemon does."""
        resources = {"lake": self.resource}
        with dg.build_sensor_context(
            self.instance, self.cursor, resources=resources, definitions=self.definitions
        ) as context:
            found = self.sensor.evaluate_tick(context)
        self.cursor = found.cursor
        return found

    def observed(self) -> list[tuple[str, str | None]]:
        found = self.tick()
        assert found.asset_events, found.skip_message
        return [(event.asset_key.to_user_string(), event.partition) for event in found.asset_events]

    def skipped(self) -> str:
        found = self.tick()
        assert not found.asset_events
        assert not found.run_requests
        return str(found.skip_message)


def watch(assets: Any, resource: DuckLakeResource, instance: dg.DagsterInstance, **options: Any) -> Watch:
    resource.lake().ensure_exists()
    watching = Watch(ducklake_snapshot_sensor(assets, **options), resource, instance)
    assert "starts at snapshot" in watching.skipped()
    return watching


def test_tables_changed_outside_dagster_are_observed(
    resource: DuckLakeResource, io_manager: DuckLakeIOManager, instance: dg.DagsterInstance
) -> None:
    @dg.asset
    def orders() -> pa.Table:
        return pa.table({"id": [1]})

    lake = resource.lake()
    watching = watch([orders, dg.AssetSpec(["sales", "x"], metadata={"table": "raw"})], resource, instance)
    assert "no snapshot after" in watching.skipped()
    dg.materialize([orders], resources={"io_manager": io_manager}, instance=instance)
    lake.write(pa.table({"id": [1]}), "another", mode="append")
    assert "from Dagster" in watching.skipped()

    lake.write(pa.table({"id": [1]}), "sales.raw", mode="append", commit=CommitInfo(author="ann"))
    found = watching.tick()
    (event,) = found.asset_events
    assert event.asset_key == dg.AssetKey(["sales", "x"])
    assert event.metadata["dagster/table_name"].value == "lake.sales.raw"
    assert event.metadata["ducklake/author"].value == "ann"
    snapshot = lake.snapshots(1)[0].snapshot_id
    assert (event.metadata["ducklake/snapshot_id"].value, event.tags) == (
        snapshot,
        {"dagster/data_version": str(snapshot)},
    )

    lake.execute(["UPDATE orders SET id = 2", "DELETE FROM sales.raw"]).raise_for_error()
    assert watching.observed() == [("orders", None), ("sales/x", None)]
    for n in range(6):
        lake.write(pa.table({"id": [n]}), "orders", mode="append")
    assert watching.observed() == [("orders", None)]
    lake.maintain(operations=["flush", "merge"]).raise_for_error()
    assert "from Dagster runs or change other tables" in watching.skipped()


@pytest.mark.parametrize("kind", ["date", "timestamp", "instant", "text"])
def test_changed_partitions_are_observed(kind: str, resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    first = datetime(2024, 1, 5, 23, 30)  # as an instant, it is already the sixth in Berlin
    moments = [first, first + timedelta(days=3), datetime(2030, 1, 1), None]
    columns = {
        "date": pa.array([moment and moment.date() for moment in moments], pa.date32()),
        "timestamp": pa.array(moments, pa.timestamp("us")),
        "instant": pa.array([moment and moment.replace(tzinfo=UTC) for moment in moments], pa.timestamp("us", "UTC")),
        "text": pa.array([moment and str(moment.date()) for moment in moments]),
    }
    watching = watch([dg.AssetSpec("t", partitions_def=DAILY, metadata={"partition_expr": "at"})], resource, instance)
    resource.lake().write(pa.table({"at": columns[kind]}), "t", mode="append")
    days = ["2024-01-06", "2024-01-09"] if kind == "instant" else ["2024-01-05", "2024-01-08"]
    assert watching.observed() == [("t", day) for day in days]


@pytest.mark.filterwarnings("ignore:Non-compliant tag keys:DeprecationWarning")  # raised in Dagster itself
def test_changed_partitions_request_runs_of_the_job(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    regions = dg.StaticPartitionsDefinition(["eu", "us"])
    both = dg.MultiPartitionsDefinition({"region": regions, "day": DAILY})
    spec = dg.AssetSpec("t", partitions_def=both, metadata={"partition_expr": {"region": "region", "day": "day"}})

    @dg.asset(deps=[spec], partitions_def=both)
    def report() -> None: ...

    job = dg.define_asset_job("report_job", [report])
    watching = watch([spec], resource, instance, job=job)
    watching.definitions = dg.Definitions([report, spec], jobs=[job], resources={"io_manager": dg.mem_io_manager})
    day = pa.array([date(2024, 1, 2)] * 3, pa.date32())
    resource.lake().write(pa.table({"region": ["eu", "us", "moon"], "day": day}), "t", mode="append")
    found = watching.tick()
    assert [request.partition_key for request in found.run_requests] == ["2024-01-02|eu", "2024-01-02|us"]
    assert len({request.run_key for request in found.run_requests}) == 2


def test_dynamic_partitions_are_observed(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    customers = dg.DynamicPartitionsDefinition(name="customers")
    instance.add_dynamic_partitions("customers", ["7"])
    spec = dg.AssetSpec("t", partitions_def=customers, metadata={"partition_expr": "id"})
    watching = watch([spec], resource, instance)
    resource.lake().write(pa.table({"id": [7, 8, None]}), "t", mode="append")
    assert watching.observed() == [("t", "7")]


def test_changes_of_a_future_partition_are_observed_once_it_exists(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    day = datetime.now(UTC).date()
    daily = dg.DailyPartitionsDefinition(str(day - timedelta(days=3)))
    customers = dg.DynamicPartitionsDefinition(name="customers")
    metadata = {"partition_expr": "day"}
    specs = [
        dg.AssetSpec("t", partitions_def=daily, metadata=metadata),
        dg.AssetSpec("c", partitions_def=customers, metadata={"partition_expr": "id"}),
        dg.AssetSpec("s", partitions_def=dg.StaticPartitionsDefinition(["a"]), metadata={"partition_expr": "id"}),
    ]
    watching = watch(specs, resource, instance)
    lake = resource.lake()
    days = pa.array([day, day - timedelta(days=1), day - timedelta(days=9)], pa.date32())
    lake.write(pa.table({"day": days}), "t", mode="append")
    written = lake.snapshots(1)[0].snapshot_id
    lake.write(pa.table({"id": [8]}), "c", mode="append")
    lake.write(pa.table({"id": ["never"]}), "s", mode="append")
    assert watching.observed() == [("t", str(day - timedelta(days=1)))]
    assert str(day - timedelta(days=9)) not in str(watching.cursor)  # no partition will ever contain this day
    assert "never" not in str(watching.cursor)
    assert watching.skipped()

    # The next day: the definition now includes that day.
    tomorrow = dg.DailyPartitionsDefinition(str(day - timedelta(days=3)), end_offset=1)
    specs[0] = dg.AssetSpec("t", partitions_def=tomorrow, metadata=metadata)
    watching.sensor = ducklake_snapshot_sensor(specs)
    instance.add_dynamic_partitions("customers", ["8"])
    found = watching.tick()
    assert [(event.asset_key.path, event.partition) for event in found.asset_events] == [
        (["t"], str(day)),
        (["c"], "8"),
    ]
    assert found.asset_events[0].metadata["ducklake/snapshot_id"].value == written
    assert "no snapshot after" in watching.skipped()
    assert watching.cursor == str(lake.snapshots(1)[0].snapshot_id)


def test_the_cursor_limits_the_number_of_waiting_keys(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    spec = dg.AssetSpec("t", partitions_def=dg.DynamicPartitionsDefinition(name="c"), metadata={"partition_expr": "id"})
    watching = watch([spec], resource, instance)
    resource.lake().write(pa.table({"id": list(range(1000))}), "t", mode="append")
    assert watching.skipped()
    assert len(str(watching.cursor)) < 5000


def test_dagster_writes_between_external_ones_are_not_observed(
    resource: DuckLakeResource, io_manager: DuckLakeIOManager, instance: dg.DagsterInstance
) -> None:
    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"day": pa.array([date.fromisoformat(context.partition_key)])})

    watching = watch([t], resource, instance)
    lake = resource.lake()
    lake.write(pa.table({"day": pa.array([date(2024, 1, 1)])}), "t", mode="append")
    dg.materialize([t], resources={"io_manager": io_manager}, partition_key="2024-01-02", instance=instance)
    lake.write(pa.table({"day": pa.array([date(2024, 1, 3)])}), "t", mode="append")
    assert watching.observed() == [("t", "2024-01-01"), ("t", "2024-01-03")]


def test_rows_without_a_partition_do_not_block_the_sensor(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    both = dg.MultiPartitionsDefinition({"region": dg.StaticPartitionsDefinition(["eu"]), "day": DAILY})
    spec = dg.AssetSpec("t", partitions_def=both, metadata={"partition_expr": {"region": "region", "day": "day"}})
    without_partition_expr = dg.AssetSpec("u", partitions_def=DAILY)
    watching = watch([without_partition_expr, spec], resource, instance)
    days = pa.array([date(2024, 1, 2)] * 2 + [date(9999, 12, 31)], pa.date32())
    rows = pa.table({"region": ["eu", "a|b", "eu"], "day": days})
    resource.lake().write(rows, "t", mode="append")
    resource.lake().write(rows, "u", mode="append")
    assert watching.observed() == [("u", None), ("t", "2024-01-02|eu")]
    assert "no snapshot after" in watching.skipped()


def test_the_sensor_survives_expired_history_and_a_recreated_lake(
    resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    spec = dg.AssetSpec("t", partitions_def=DAILY, metadata={"partition_expr": "day"})
    watching = watch([spec], resource, instance)
    lake = resource.lake()
    for n in range(3):
        lake.write(pa.table({"day": pa.array([date(2024, 1, 1 + n)])}), "t", mode="append")
    now = {"expire": {"older_than": 0, "retain_last": 1}, "force": True}
    lake.maintain(now, operations=["expire"]).raise_for_error()
    assert watching.observed() == [("t", None)]  # expired history no longer tells which partitions changed
    watching.cursor = "1000"
    assert "starts at snapshot" in watching.skipped()
    assert watching.cursor == str(lake.snapshots(1)[0].snapshot_id)


def test_each_tick_says_what_it_found(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    customers = dg.DynamicPartitionsDefinition(name="customers")
    specs = [dg.AssetSpec("t"), dg.AssetSpec("c", partitions_def=customers, metadata={"partition_expr": "id"})]
    instance.add_dynamic_partitions("customers", ["1", "2"])
    watching, lake = watch(specs, resource, instance), resource.lake()

    def newest() -> int:
        return lake.snapshots(1)[0].snapshot_id

    def reason() -> str:
        return str(watching.tick().skip_message)

    assert reason() == f"There is no snapshot after {newest()}."

    before = newest()
    lake.write(pa.table({"id": [1]}), "another", mode="append")
    lake.write(pa.table({"id": [1]}), "another", mode="append")
    assert reason() == (
        f"Snapshots {before + 1} to {newest()} change no rows, are from Dagster runs or change other tables."
    )
    lake.delete("another", "id = 1")
    assert reason() == f"Snapshot {newest()} changes no rows, is from a Dagster run or changes other tables."

    lake.write(pa.table({"id": [1]}), "t", mode="append")
    assert reason() == f"Observed `t`. Snapshot {newest()} changes rows of `t`."

    before = newest()
    lake.write(pa.table({"id": [1]}), "t", mode="append")
    lake.write(pa.table({"id": [1, 2]}), "c", mode="append")
    changed = f"Snapshots {before + 1} to {newest()} change rows of `t`, `c`."
    assert reason() == f"Observed `t`, 2 partitions of `c`. {changed}"

    lake.write(pa.table({"id": [3, 4, 5, 6, 7]}), "c", mode="append")
    waiting = "5 changed keys of `c` have no partition yet: 3, 4, 5, and 2 more."
    assert reason() == f"Snapshot {newest()} changes rows of `c`, but of no partition that exists. {waiting}"
    assert reason() == f"There is no snapshot after {newest()}. {waiting}"

    instance.add_dynamic_partitions("customers", ["3", "4", "5", "6"])
    observed = "Observed 4 partitions of `c`. 4 of the partitions did not exist when their rows changed."
    waiting = "1 changed key of `c` has no partition yet: 7."
    assert reason() == f"{observed} There is no snapshot after {newest()}. {waiting}"

    instance.add_dynamic_partitions("customers", ["7"])
    lake.write(pa.table({"id": [1]}), "c", mode="append")
    found = watching.tick()
    assert [event.partition for event in found.asset_events] == ["1", "7"]
    late = "1 of the partitions did not exist when their rows changed."
    assert found.skip_message == f"Observed 2 partitions of `c`. {late} Snapshot {newest()} changes rows of `c`."
    assert reason() == f"There is no snapshot after {newest()}."


def test_a_tick_says_why_it_requests_no_run(resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
    spec = dg.AssetSpec("t", partitions_def=DAILY)  # without `partition_expr`, the changed partitions are unknown

    @dg.asset(deps=[spec])
    def report() -> None: ...

    job = dg.define_asset_job("report_job", [report])
    watching = watch([spec], resource, instance, job=job)
    watching.definitions = dg.Definitions([report, spec], jobs=[job], resources={"io_manager": dg.mem_io_manager})
    resource.lake().write(pa.table({"id": [1]}), "t", mode="append")
    assert "The changed partitions are unknown, so no run is requested." in watching.skipped()


def test_a_sensor_needs_assets() -> None:
    refused(ConfigError, lambda: ducklake_snapshot_sensor([]), "no assets", "written outside Dagster")
