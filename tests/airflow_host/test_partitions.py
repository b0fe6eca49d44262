"""Which rows a run replaces: its partition key, data interval or logical date, applied to a column."""

from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook, DuckLakePartitionSensor
from tests.support.airflow_runs import run, states
from tests.support.airflow_tasks import day, execute, stored, write


def at(*times: str) -> pa.Table:
    return pa.table({"at": pa.array([datetime.fromisoformat(time) for time in times], pa.timestamp("us", "UTC"))})


# A run of a DAG with a cron string sets all three to one moment: its data interval is empty.
CRON = ("logical_date", "data_interval_start", "data_interval_end")


@pytest.mark.parametrize(
    ("options", "context", "inside", "outside"),
    [
        ({}, {"partition_key": "2024-03-31"}, "2024-03-31T23:59:59+00:00", "2024-04-01T00:00:00+00:00"),
        ({}, {"partition_key": "2024-03"}, "2024-03-31T23:59:59+00:00", "2024-04-01T00:00:00+00:00"),
        ({}, {"partition_key": "2024-W13"}, "2024-03-25T00:00:00+00:00", "2024-03-24T23:59:59+00:00"),
        ({}, {"partition_key": "2024-03-31T05"}, "2024-03-31T05:59:59+00:00", "2024-03-31T06:00:00+00:00"),
        (
            {"partition_window": "day"},
            {"partition_key": "2024-03-31T00:00:00"},
            "2024-03-31T23:59:59+00:00",
            "2024-04-01T00:00:00+00:00",
        ),
        (
            {"partition_timezone": "Europe/Berlin"},  # clocks go forward on this day: it has 23 hours
            {"partition_key": "2024-03-31"},
            "2024-03-31T21:59:59+00:00",
            "2024-03-31T22:00:00+00:00",
        ),
        (
            {"partition_format": "%d.%m.%Y"},
            {"partition_key": "31.03.2024"},
            "2024-03-31T12:00:00+00:00",
            "2024-03-30T12:00:00+00:00",
        ),
        (
            {"partition_window": "15 minutes"},
            {"partition_key": "2024-03-31T05:15:00"},
            "2024-03-31T05:29:59+00:00",
            "2024-03-31T05:30:00+00:00",
        ),
        (
            {},
            {
                "data_interval_start": datetime(2024, 3, 31, 5, tzinfo=UTC),
                "data_interval_end": datetime(2024, 3, 31, 6, tzinfo=UTC),
            },
            "2024-03-31T05:59:59+00:00",
            "2024-03-31T06:00:00+00:00",
        ),
        (
            {"partition_window": "day"},
            {"logical_date": datetime(2024, 3, 31, 5, tzinfo=UTC)},
            "2024-03-31T23:59:59+00:00",
            "2024-04-01T00:00:00+00:00",
        ),
        (
            {},
            {name: datetime(2024, 3, 31, tzinfo=UTC) for name in CRON},
            "2024-03-31T23:59:59+00:00",
            "2024-04-01T00:00:00+00:00",
        ),
        (
            {"partition_window": "hour"},
            {name: datetime(2024, 3, 31, 5, tzinfo=UTC) for name in CRON},
            "2024-03-31T05:59:59+00:00",
            "2024-03-31T06:00:00+00:00",
        ),
        (
            {"partition_window": "day"},
            {
                "data_interval_start": datetime(2024, 3, 31, 5, tzinfo=UTC),
                "data_interval_end": datetime(2024, 3, 31, 6, tzinfo=UTC),
            },
            "2024-03-31T00:00:00+00:00",
            "2024-04-01T00:00:00+00:00",
        ),
        (
            {"partition_window": "15 minutes"},
            {
                "data_interval_start": datetime(2024, 3, 31, 5, tzinfo=UTC),
                "data_interval_end": datetime(2024, 3, 31, 6, tzinfo=UTC),
            },
            "2024-03-31T05:14:59+00:00",
            "2024-03-31T05:15:00+00:00",
        ),
    ],
    ids=[
        "day",
        "month",
        "week",
        "hour",
        "moment",
        "zone",
        "format",
        "minutes",
        "data interval",
        "logical date",
        "midnight",
        "cron",
        "window over interval",
        "minutes over interval",
    ],
)
def test_a_time_key_covers_its_whole_window(
    conn_id: str, options: dict[str, Any], context: dict[str, Any], inside: str, outside: str
) -> None:
    execute(write(at(inside), partition_expr="at", **options), **context)
    assert len(stored(columns='"at"')) == 1
    with pytest.raises(AirflowFailException, match="1 row"):
        execute(write(at(outside), partition_expr="at", **options), run_id="other", **context)


def test_rows_of_other_partitions_are_left_out_if_the_task_says_so(conn_id: str) -> None:
    for key, numbers in (("2024-01-01", [1, 2]), ("2024-01-02", [1, 2, 3])):
        execute(write(partition_expr="day", partition_key=key, outside="drop"), run_id=key)
        assert stored() == numbers


@pytest.mark.parametrize("value", [date(2024, 3, 31), "2024-03-31"], ids=["date", "text"])
def test_a_logical_date_selects_its_day_in_date_and_text_columns(conn_id: str, value: Any) -> None:
    moment = dict.fromkeys(CRON, datetime(2024, 3, 31, 5, 30, tzinfo=UTC))
    for number in range(2):
        execute(write(pa.table({"day": [value], "n": [1]}), partition_expr="day"), run_id=f"run {number}", **moment)
    assert stored() == [1]


def test_multi_dimensional_keys_follow_the_order_of_dimension_names(conn_id: str) -> None:
    rows = pa.table({"day": ["2024-01-01"], "region": ["eu"]})
    operator = write(rows, partition_expr={"region": "region", "date": "day"})
    assert execute(operator, partition_key="2024-01-01|eu")["partition_keys"] == ["2024-01-01|eu"]
    assert DuckLakeHook().lake().table("t").partitions()[0].values == {"day": "2024-01-01", "region": "eu"}


@pytest.mark.parametrize(
    ("options", "context", "message"),
    [
        ({"partition_key": "x"}, {}, 'Add partition_expr="<column>"'),
        ({}, {"partition_key": "2024-01-01"}, 'partition_expr="<column>", or mode="overwrite"'),
        ({"partition_expr": "day"}, {}, 'give the task `partition_key="…"`'),
        ({"partition_expr": {"a": "day", "b": "n"}}, {"partition_key": "x"}, "has 1 parts, not 2"),
        ({"partition_expr": "nope"}, {"partition_key": "x"}, "is not valid for this table"),
        ({"partition_expr": "at"}, {"partition_key": "2024-01-01T00:00:00"}, 'partition_window="day"'),
        ({"partition_expr": "at"}, dict.fromkeys(CRON, datetime(2024, 1, 1, 5, tzinfo=UTC)), 'partition_window="day"'),
        ({"partition_expr": "at", "partition_window": "dy"}, {"partition_key": "x"}, "Did you mean `day`?"),
        ({"partition_expr": "at", "partition_timezone": "Mars"}, {"partition_key": "x"}, "is not a time zone"),
        ({"mode": "apend"}, {}, "Did you mean `append`?"),
        ({"mode": "replace_where"}, {}, "where"),
    ],
)
def test_invalid_partition_arguments_fail_without_a_retry(
    conn_id: str, options: dict[str, Any], context: dict[str, Any], message: str
) -> None:
    rows = at("2024-01-01T00:00:00+00:00").append_column("day", [["2024-01-01"]]).append_column("n", [[1]])
    with pytest.raises(AirflowFailException) as refused:
        execute(write(rows, **options), **context)
    assert message in str(refused.value)


@pytest.mark.parametrize("key", ["", " ", "None", [], ["2024-01-01", "None"]])
def test_a_partition_key_that_renders_empty_is_refused(conn_id: str, key: Any) -> None:
    operator = write(day("2024-01-01", 1), partition_expr="day", partition_key=key)
    with pytest.raises(AirflowFailException, match="omit `partition_key`"):
        execute(operator, partition_key="2024-01-01")
    sensor = DuckLakePartitionSensor(task_id="wait", table="t", partition_expr="day", partition_key=key)
    with pytest.raises(AirflowFailException, match="omit `partition_key`"):
        execute(sensor, partition_key="2024-01-01")


def test_a_partition_key_of_none_from_another_task_is_refused(conn_id: str) -> None:
    with DAG("keys_from_tasks", render_template_as_native_obj=True) as dag:

        @task
        def choose() -> None:
            return None

        write(day("2024-01-01", 1), partition_expr="day", partition_key=choose())
    assert states(run(dag))["write"] == "failed"
    assert not DuckLakeHook().lake().exists("t")


@pytest.mark.parametrize("schedule", ["@hourly", "0 * * * *"])
def test_each_cron_run_replaces_only_its_window(conn_id: str, schedule: str) -> None:
    def hourly(window: str | None) -> DAG:
        with DAG(f"every_hour_{window}", schedule=schedule, start_date=datetime(2024, 1, 1, tzinfo=UTC)) as dag:

            @task.ducklake(table="t", partition_expr="at", partition_window=window)
            def write(logical_date: datetime) -> pa.Table:
                return at(logical_date.isoformat())

            write()
        return dag

    times = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (1, 2, 3)]
    for time in times:
        assert states(run(hourly("hour"), logical_date=time)) == {"write": "success"}
    assert stored(columns='"at"') == times
    assert states(run(hourly(None), logical_date=times[0])) == {"write": "failed"}
    assert stored(columns='"at"') == times
