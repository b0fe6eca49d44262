"""Asset-triggered runs take their partitions from the events of the writes that triggered them."""

from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook, DuckLakeWriteOperator, ducklake_asset
from tests.support.airflow_runs import result, run, states


def produce(name: str, rows: dict[str, int], **options: Any) -> None:
    """Write a table in a run, which emits an asset event."""
    frame = pa.table({"day": list(rows), "n": list(rows.values())})
    with DAG(name) as dag:
        DuckLakeWriteOperator(task_id="write", table="source", python_callable=lambda: frame, **options)
    assert states(run(dag)) == {"write": "success"}


def consume(producers: str) -> Any:
    """Run a DAG as if asset events of the table had triggered it."""
    with DAG(f"consumer_of_{producers}", schedule=[ducklake_asset("source")]) as dag:

        @task
        def triggered(dag_run: Any) -> None:
            attach(producers, dag_run.dag_id, dag_run.run_id)

        @task.ducklake(table="target", partition_expr="day")
        def consume(partition_keys: list[str]) -> pa.Table:
            wanted = ", ".join(f"'{key}'" for key in partition_keys)
            return DuckLakeHook().lake().read("source", where=f"day IN ({wanted})")

        triggered() >> consume()
    done = run(dag, logical_date=None)
    assert done.logical_date is None
    return done


def attach(producers: str, dag_id: str, run_id: str) -> None:
    """Attach asset events of the table to a run, as the scheduler does."""
    from airflow.models import DagRun
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with create_session() as session:
        events = session.query(AssetEvent).filter(AssetEvent.source_dag_id.like(f"{producers}%")).all()
        assert events
        found = session.query(DagRun).filter_by(dag_id=dag_id, run_id=run_id).one()
        found.consumed_asset_events.extend(events)


def test_an_asset_triggered_run_covers_the_written_partitions(conn_id: str) -> None:
    DuckLakeHook().write(pa.table({"day": ["a", "b", "c"], "n": [-1, -2, -3]}), "target", mode="append")
    produce("days_1", {"a": 1}, partition_expr="day", partition_key="a")
    produce("days_2", {"b": 2, "a": 3}, partition_expr="day", partition_key=["a", "b"])
    done = consume("days")
    assert set(states(done).values()) == {"success"}
    assert result(done, "consume")["partition_keys"] == ["a", "b"]
    assert DuckLakeHook().get_records("FROM target ORDER BY ALL") == [("a", 3), ("b", 2), ("c", -3)]


@pytest.mark.parametrize("partitions", [0, 101])
def test_a_triggering_write_without_listed_partitions_fails_the_run(conn_id: str, partitions: int) -> None:
    rows = {f"{n:03}": n for n in range(101)}
    options = {"partition_expr": "day", "partition_key": [*rows]} if partitions else {}
    produce(f"whole_{partitions}", rows, **options)
    assert states(consume(f"whole_{partitions}"))["consume"] == "failed"
    assert not DuckLakeHook().lake().exists("target")
