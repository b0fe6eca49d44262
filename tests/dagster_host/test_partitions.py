"""Partitioned assets: each run replaces exactly the rows of its partitions, in one snapshot."""

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import central, failure_of, materialize_range, metadata_of

DAILY = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-11")


def table_rows(resource: DuckLakeResource, table: str) -> list[tuple[Any, ...]]:
    found = resource.lake().read(table).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def days_of(context: Any, value: int) -> pa.Table:
    """Return a row for each partition of a run."""
    days = [date.fromisoformat(key) for key in context.partition_keys]
    return pa.table({"day": pa.array(days, pa.date32()), "value": [value] * len(days)})


@central
def test_static_partitions_replace_only_their_rows(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    versions = iter([1, 2, 3])

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["eu", "it's"]), metadata={"partition_expr": "region"})
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"region": [context.partition_key], "version": [next(versions)]})

    for key in ("eu", "it's", "eu"):
        result = dg.materialize([sales], resources={"io_manager": io_manager}, partition_key=key)
        assert metadata_of(result, "sales", key)["dagster/partition_row_count"] == 1
    assert table_rows(resource, "sales") == [("eu", 3), ("it's", 2)]
    lake = resource.lake()
    assert [column.partition for column in lake.table("sales").schema()] == ["identity", None]
    assert len(lake.snapshots()) == 4  # one from the creation of the lake, and one per run


@central
def test_replace_where_replaces_only_matching_rows_of_the_partition(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    frames = [[("eu", 1), ("us", 1)], [("eu", 2)], [("us", 3)]]

    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day", "write_mode": "replace_where"})
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        found = frames.pop(0)
        if found[0] != ("eu", 1):
            context.add_output_metadata({"where": "region = 'eu' OR region = 'fr' -- of Europe"})
        day = [date.fromisoformat(context.partition_key)] * len(found)
        return pa.table(
            {"day": day, "region": [region for region, _ in found], "version": [version for _, version in found]}
        )

    def run() -> dg.ExecuteInProcessResult:
        resources = {"io_manager": io_manager}
        return dg.materialize([sales], resources=resources, partition_key="2024-01-02", raise_on_error=False)

    first, second, third = run(), run(), run()
    assert metadata_of(first, "sales", "2024-01-02")["dagster/partition_row_count"] == 2
    assert metadata_of(second, "sales", "2024-01-02")["dagster/partition_row_count"] == 2
    assert "region = 'eu'" in failure_of(third).user_failure_data.description
    assert failure_of(third).user_failure_data.description.endswith("\nducklake-orch explain rows-outside")
    day = date(2024, 1, 2)
    assert table_rows(resource, "sales") == [(day, "eu", 2), (day, "us", 1)]


def test_where_without_mode_replace_where_is_refused(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day", "where": "value = 1"})
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        return days_of(context, 1)

    resources = {"io_manager": io_manager}
    result = dg.materialize([sales], resources=resources, partition_key="2024-01-02", raise_on_error=False)
    assert '"write_mode": "replace_where"' in failure_of(result).user_failure_data.description
    assert not resource.lake().exists("sales")


def test_dynamic_partitions_replace_only_their_rows(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    @dg.asset(partitions_def=dg.DynamicPartitionsDefinition(name="customers"), metadata={"partition_expr": "customer"})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"customer": [int(context.partition_key)]})

    instance.add_dynamic_partitions("customers", ["7", "12"])
    for key in ("7", "12", "7"):
        dg.materialize([orders], resources={"io_manager": io_manager}, partition_key=key, instance=instance)
    assert table_rows(resource, "orders") == [(7,), (12,)]


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
@central
def test_a_partition_range_commits_one_snapshot_with_counts_per_partition(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    versions = iter([1, 2])

    @dg.asset(
        partitions_def=DAILY,
        metadata={"partition_expr": "day"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        return days_of(context, next(versions))

    materialize_range([daily], "2024-01-01", "2024-01-05", resources={"io_manager": io_manager})
    before = resource.lake().snapshots(1)[0].snapshot_id
    result = materialize_range([daily], "2024-01-02", "2024-01-03", resources={"io_manager": io_manager})
    assert [value for _, value in table_rows(resource, "daily")] == [1, 2, 2, 1, 1]
    for key in ("2024-01-02", "2024-01-03"):
        metadata = metadata_of(result, "daily", key)
        assert metadata["dagster/partition_row_count"] == 1
        assert metadata["ducklake/snapshot_id"] == before + 1


@central
def test_rows_of_other_partitions_abort_the_write(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def daily() -> pa.Table:
        return pa.table({"day": [date(2024, 1, 1), date(2024, 1, 2)]})

    options: dict[str, Any] = {"resources": {"io_manager": io_manager}, "raise_on_error": False}
    failure = failure_of(dg.materialize([daily], partition_key="2024-01-01", **options))
    assert "2024-01-02" in failure.user_failure_data.description
    assert not resource.lake().exists("daily")


@central
def test_an_empty_frame_clears_its_partition(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    empty = False

    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        return days_of(context, 1).slice(0, 0 if empty else None)

    for key in ("2024-01-01", "2024-01-02"):
        dg.materialize([daily], resources={"io_manager": io_manager}, partition_key=key)
    empty = True
    result = dg.materialize([daily], resources={"io_manager": io_manager}, partition_key="2024-01-01")
    assert metadata_of(result, "daily", "2024-01-01")["dagster/partition_row_count"] == 0
    assert table_rows(resource, "daily") == [(date(2024, 1, 2), 1)]


@central
def test_hourly_partitions_stay_apart_across_a_clock_change(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    hourly = dg.HourlyPartitionsDefinition("2024-11-03-00:00", timezone="America/New_York")

    @dg.asset(partitions_def=hourly, metadata={"partition_expr": "at"})
    def events(context: dg.AssetExecutionContext) -> pa.Table:
        start = context.partition_time_window.start.astimezone(UTC)
        return pa.table({"at": pa.array([start + timedelta(minutes=30)], pa.timestamp("us", "UTC"))})

    keys = hourly.get_partition_keys(current_time=datetime(2024, 11, 3, 8, tzinfo=UTC))
    assert len(keys) == 4  # midnight, one o'clock twice, and two o'clock
    for key in [*keys, keys[1]]:
        assert dg.materialize([events], resources={"io_manager": io_manager}, partition_key=key).success
    assert len(table_rows(resource, "events")) == 4


BERLIN = "Europe/Berlin"  # clocks go forward on 2024-03-31 and back on 2024-10-27
MONTHS = dg.MonthlyPartitionsDefinition("2024-01-01", timezone=BERLIN)
TWICE = dg.TimeWindowPartitionsDefinition(
    start="2024-01-31", cron_schedule="0 0 15,31 * *", fmt="%Y-%m-%d", timezone=BERLIN
)
MONDAYS = dg.WeeklyPartitionsDefinition("2024-01-01", timezone=BERLIN, day_offset=1)
# Kind of column, definition, partition key (the first day), and the day after the last.
WINDOWS = [
    ("instant", dg.WeeklyPartitionsDefinition("2024-01-07", timezone=BERLIN), "2024-03-31", "2024-04-07"),
    ("timestamp", MONDAYS, "2024-10-21", "2024-10-28"),
    ("date", MONTHS, "2024-03-01", "2024-04-01"),
    ("timestamp", MONTHS, "2024-02-01", "2024-03-01"),
    ("date", TWICE, "2024-03-31", "2024-04-15"),
    ("instant", TWICE, "2024-04-15", "2024-05-15"),  # April has no 31st
]


@pytest.mark.parametrize(("kind", "definition", "key", "after"), WINDOWS)
def test_weekly_monthly_and_custom_windows_replace_only_their_rows(
    kind: str,
    definition: dg.TimeWindowPartitionsDefinition,
    key: str,
    after: str,
    io_manager: DuckLakeIOManager,
    resource: DuckLakeResource,
) -> None:
    zone = ZoneInfo(BERLIN)
    begin, end = (datetime.fromisoformat(day).replace(tzinfo=zone) for day in (key, after))
    last = timedelta(days=1) if kind == "date" else timedelta(microseconds=1)
    moments = {"before": begin - last, "first": begin, "last": end - last, "after": end}

    def table(*names: str) -> pa.Table:
        found = [moments[name] for name in names]
        columns = {
            "date": [moment.date() for moment in found],
            "timestamp": [moment.replace(tzinfo=None) for moment in found],
            "instant": [moment.astimezone(UTC) for moment in found],
        }
        return pa.table({"at": columns[kind], "name": names})

    @dg.asset(partitions_def=definition, metadata={"partition_expr": "at"})
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        return rows.pop(0)

    def run(key: str) -> dg.ExecuteInProcessResult:
        return dg.materialize([t], resources={"io_manager": io_manager}, partition_key=key, raise_on_error=False)

    keys = definition.get_partition_keys(end)
    neighbours = keys[keys.index(key) - 1], definition.get_next_partition_key(key)
    rows = [table("first"), table("before"), table("after"), table("first", "last")]
    for partition_key in (key, *neighbours, key):
        assert partition_key is not None
        assert run(partition_key).success
    lake = resource.lake()
    assert sorted(row["name"] for row in lake.read("t").to_pylist()) == ["after", "before", "first", "last"]
    for outside in ("before", "after"):
        rows.append(table(outside))
        assert '`outside` = "drop" leaves such rows out' in failure_of(run(key)).user_failure_data.description
    assert len(lake.snapshots()) == 5


def test_rows_of_other_partitions_are_left_out_if_the_asset_says_so(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    regions = dg.StaticPartitionsDefinition(["eu", "us"])

    @dg.asset(partitions_def=regions, metadata={"partition_expr": "region", "ducklake/outside": "drop"})
    def t() -> pa.Table:
        return pa.table({"region": ["eu", "us", "us"]})

    for key, rows in (("eu", 1), ("us", 2)):
        result = dg.materialize([t], resources={"io_manager": io_manager}, partition_key=key)
        (event,) = result.asset_materializations_for_node("t")
        assert event.metadata["dagster/partition_row_count"].value == rows
    assert resource.lake().table("t").count() == 3


def test_a_monthly_partition_is_written_to_one_file(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    months = dg.MonthlyPartitionsDefinition("2024-01-01")

    @dg.asset(partitions_def=months, metadata={"partition_expr": "day"})
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        start, end = context.partition_time_window
        return pa.table({"day": [(start + timedelta(days=n)).date() for n in range((end - start).days)]})

    lake = resource.lake()
    for key in ("2024-01-01", "2024-02-01", "2024-01-01"):
        result = dg.materialize([t], resources={"io_manager": io_manager}, partition_key=key)
        assert metadata_of(result, "t", key)["ducklake/files_added"] == 1
    assert metadata_of(result, "t", key)["ducklake/files_removed"] == 1
    assert len(lake.table("t").files()) == 2
    assert lake.table("t").count() == 31 + 29


@central
def test_multi_dimensional_partitions_are_read_by_one_dimension(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    both = dg.MultiPartitionsDefinition({"region": dg.StaticPartitionsDefinition(["eu", "us"]), "day": DAILY})
    seen: list[Any] = []

    @dg.asset(partitions_def=both, metadata={"partition_expr": {"region": "region", "day": "day"}})
    def sales(context: dg.AssetExecutionContext) -> pa.Table:
        keys = context.partition_key.keys_by_dimension
        day = pa.array([date.fromisoformat(keys["day"])], pa.date32())
        return pa.table({"region": [keys["region"]], "day": day, "value": [1]})

    @dg.asset(partitions_def=DAILY)
    def per_day(sales: pa.Table) -> None:
        seen.append(sorted(zip(sales["region"].to_pylist(), sales["day"].to_pylist(), strict=True)))

    resources = {"io_manager": io_manager}
    for day in ("2024-01-01", "2024-01-02"):
        for region in ("eu", "us", "eu"):
            key = dg.MultiPartitionKey({"day": day, "region": region})
            assert dg.materialize([sales], resources=resources, partition_key=key).success
    assert len(table_rows(resource, "sales")) == 4
    dg.materialize([sales.to_source_asset(), per_day], resources=resources, partition_key="2024-01-02")
    assert seen == [[("eu", date(2024, 1, 2)), ("us", date(2024, 1, 2))]]


def test_an_asset_reads_its_own_previous_partition(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)

    @dg.asset(
        partitions_def=DAILY,
        metadata={"partition_expr": "day"},
        ins={"running": dg.AssetIn(partition_mapping=before)},
    )
    def running(context: dg.AssetExecutionContext, running: pa.Table) -> pa.Table:
        return days_of(context, (running["value"][0].as_py() if running.num_rows else 0) + 1)

    for key in ("2024-01-01", "2024-01-02", "2024-01-03", "2024-01-03"):
        assert dg.materialize([running], resources={"io_manager": io_manager}, partition_key=key).success
    assert [value for _, value in table_rows(resource, "running")] == [1, 2, 3]


def test_an_unpartitioned_asset_reads_all_partitions(io_manager: DuckLakeIOManager) -> None:
    seen: list[int] = []

    @dg.asset(partitions_def=DAILY, metadata={"partition_expr": "day"})
    def daily(context: dg.AssetExecutionContext) -> pa.Table:
        return days_of(context, 1)

    @dg.asset
    def every(daily: pa.Table) -> None:
        seen.append(daily.num_rows)

    for key in ("2024-01-01", "2024-01-10"):
        dg.materialize([daily], resources={"io_manager": io_manager}, partition_key=key)
    dg.materialize([daily.to_source_asset(), every], resources={"io_manager": io_manager})
    assert seen == [2]


@pytest.mark.parametrize(
    ("metadata", "words"),
    [({}, '"partition_expr": "<column>"'), ({"partition_expr": "dya"}, "day"), ({"partition_expr": "x"}, "DOUBLE")],
)
def test_a_missing_or_invalid_partition_expr_is_explained(
    metadata: dict[str, Any], words: str, io_manager: DuckLakeIOManager
) -> None:
    @dg.asset(partitions_def=DAILY, metadata=metadata, retry_policy=dg.RetryPolicy(max_retries=2))
    def daily() -> pa.Table:
        return pa.table({"day": [date(2024, 1, 1)], "x": [0.5]})

    options: dict[str, Any] = {"resources": {"io_manager": io_manager}, "raise_on_error": False}
    failure = failure_of(dg.materialize([daily], partition_key="2024-01-01", **options))
    assert words in failure.user_failure_data.description
