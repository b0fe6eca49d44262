"""`DuckLakeWriteOperator`: which rows it replaces, retries and replays, asset events and asset URIs."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG, Asset

from ducklake_orch.airflow import (
    DuckLakeHook,
    DuckLakeWriteOperator,
    ducklake_asset,
    read_reference,
    retry_policy,
)
from ducklake_orch.errors import CommitConflictError, ConfigError, DataError
from tests.support.airflow_runs import result, run, states
from tests.support.airflow_tasks import ROWS, day, execute, stored, write

# --- replaced rows -------------------------------------------------------------------------------------------------


def test_the_functions_result_replaces_the_table(conn_id: str) -> None:
    with DAG("write_a_table") as dag:
        DuckLakeWriteOperator(
            task_id="write",
            table="sales.orders",
            python_callable=lambda first, task: pa.table({"n": [first], "by_task": [task.task_id]}),
            op_kwargs={"first": "{{ 40 + 2 }}"},
        )
    written = result(run(dag), "write")
    assert stored("sales.orders", "n || by_task") == ["42write"]
    assert written["schema_version"] == 1
    assert (written["table"], written["mode"], written["rows_written"]) == ("sales.orders", "overwrite", 1)
    assert (written["ducklake_conn_id"], written["snapshot_id"], written["where"]) == (conn_id, 1, None)


def test_a_run_replaces_only_its_partition(conn_id: str) -> None:
    execute(write(ROWS))
    for key in ("2024-01-02", "2024-01-03"):
        written = execute(write(day(key, 9), partition_expr="day"), partition_key=key)
        assert written["partition_keys"] == [key]
        assert written["mode"] == "replace_where"
    assert stored() == [1, 2, 9, 9]


def test_the_tasks_partition_key_overrides_the_runs(conn_id: str) -> None:
    operator = write(day("2024-01-02", 1), partition_expr="day", partition_key="2024-01-02")
    assert execute(operator, partition_key="2024-01-01")["partition_keys"] == ["2024-01-02"]


def test_rows_of_another_partition_abort_the_write(conn_id: str) -> None:
    with pytest.raises(AirflowFailException, match="2024-01-01"):
        execute(write(ROWS, partition_expr="day"), partition_key="2024-01-02")
    assert not DuckLakeHook().lake().exists("t")


def test_replace_where_replaces_only_matching_rows_of_the_partition(conn_id: str) -> None:
    existing = pa.table({"day": ["1", "1", "2"], "region": ["eu", "us", "eu"], "n": [1, 2, 3]})
    execute(write(existing))

    def eu(region: str) -> DuckLakeWriteOperator:
        rows = pa.table({"day": ["1"], "region": [region], "n": [10]})
        where = "region = 'eu' OR region = 'fr' -- of Europe"
        return write(rows, mode="replace_where", where=where, partition_expr="day", partition_key="1")

    assert execute(eu("eu"))["rows_removed"] == 1
    assert stored() == [2, 3, 10]
    with pytest.raises(AirflowFailException, match="1 row"):
        execute(eu("us"), run_id="another")
    with pytest.raises(AirflowFailException, match='Add mode="replace_where"'):
        execute(write(existing, where="region = 'eu'", partition_expr="day", partition_key="1"))
    assert stored() == [2, 3, 10]


def test_an_empty_frame_clears_the_partition(conn_id: str) -> None:
    execute(write(ROWS))
    written = execute(write(ROWS.slice(0, 0), partition_expr="day"), partition_key="2024-01-01")
    assert (written["rows_written"], written["rows_removed"]) == (0, 2)
    assert stored() == [3]


@pytest.mark.parametrize(
    ("make", "columns"),
    [
        (lambda: pd.DataFrame({"day": ["x"], "n": [1]}).iloc[0:0], ["day", "n"]),
        (lambda: pd.DataFrame([]), []),
        (lambda: ROWS.schema.empty_table().set_column(0, "day", pa.nulls(0)).to_reader(), ["day", "n"]),
    ],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_an_empty_frame_without_types_creates_no_table(
    make: Callable[[], Any], columns: list[str], partitioned: bool, conn_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = {"partition_expr": "day", "partition_key": "2024-01-01"} if partitioned else {}
    written = execute(write(make(), **options))
    assert "Task `write` returned a frame without rows for `main.t`, which does not exist." in caplog.text
    assert (written["rows_written"], written["snapshot_id"]) == (0, 0)
    assert not DuckLakeHook().lake().exists("t")
    for kind in ("pandas", "polars", "arrow"):
        rows = read_reference(written, kind)
        assert (len(rows), list(rows.column_names if kind == "arrow" else rows.columns)) == (0, columns)
    execute(write(ROWS))
    assert execute(write(make(), **options), run_id="another")["rows_removed"] == (2 if partitioned else 3)
    assert stored() == ([3] if partitioned else [])


def test_a_function_that_returns_none_fails_the_task(conn_id: str) -> None:
    with pytest.raises(AirflowFailException, match="Return a frame"):
        execute(write(None))


def test_a_task_needs_exactly_one_source_of_rows(conn_id: str) -> None:
    with pytest.raises(AirflowFailException, match="has nothing to write"):
        execute(DuckLakeWriteOperator(task_id="write", table="t"))
    with pytest.raises(AirflowFailException, match="python_callable and sql"):
        execute(write(sql="SELECT 1"))


def test_a_merge_matches_rows_by_keys(conn_id: str) -> None:
    execute(write(pa.table({"id": [1, 2], "n": [1, 2]}), mode="merge", keys=["id"]))
    execute(write(pa.table({"id": [2, 3], "n": [20, 30]}), mode="merge", keys=["id"]))
    assert stored() == [1, 20, 30]


def test_a_merge_keeps_the_history_of_rows(conn_id: str) -> None:
    with DAG("history") as dag:
        DuckLakeWriteOperator(
            task_id="write",
            table="t",
            mode="merge",
            keys=["id"],
            merge_options={"strategy": "scd2", "boundary": "{{ params.day }}"},
            python_callable=lambda day: pa.table({"id": [1], "n": [day]}),
            op_kwargs={"day": "{{ params.day }}"},
            params={"day": "2024-01-01"},
        )
    run(dag)
    with DuckLakeHook().lake().connect() as con:
        con.execute("FROM t")
        assert con.fetchall() == [(1, "2024-01-01", date(2024, 1, 1), None)]
    operator = write(
        pa.table({"id": [1], "n": ["new"]}),
        mode="merge",
        keys=["id"],
        merge_options={"strategy": "scd2", "boundary": "2024-01-02"},
    )
    execute(operator)
    assert execute(operator, try_number=2)["replayed"]
    assert stored("t", "n, valid_to") == ["2024-01-01", "new"]


def test_parquet_files_are_added_to_the_table_once(conn_id: str, tmp_path: Any) -> None:
    import pyarrow.parquet as parquet

    execute(write(ROWS))
    parquet.write_table(ROWS, tmp_path / "more.parquet")
    operator = DuckLakeWriteOperator(task_id="add", table="t", files=str(tmp_path / "*.parquet"))
    assert execute(operator)["rows_written"] == 3
    assert execute(operator, try_number=2)["replayed"]
    assert stored() == [1, 1, 2, 2, 3, 3]


# --- retries and replays -------------------------------------------------------------------------------------------


def test_a_retried_append_writes_no_row_twice(conn_id: str, caplog: pytest.LogCaptureFixture) -> None:
    execute(write(mode="append"))
    again = execute(write(mode="append"), try_number=2)
    assert (again["replayed"], again["snapshot_id"]) == (True, 1)
    assert "as snapshot 1, so they were not written again. To write them once more, start a new run" in caplog.text
    assert stored() == [1, 2, 3]
    execute(write(mode="append"), run_id="another")
    execute(write(mode="append", idempotency_key="once more"), try_number=3)
    assert stored() == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_a_retried_replacement_takes_effect_again(conn_id: str) -> None:
    execute(write(day("2024-01-01", 1), partition_expr="day"), partition_key="2024-01-01")
    corrected = write(day("2024-01-01", 7), partition_expr="day")
    assert not execute(corrected, try_number=2, partition_key="2024-01-01")["replayed"]
    assert stored() == [7]


def test_two_appends_in_one_function_both_take_effect(conn_id: str) -> None:
    def append(**_: Any) -> pa.Table:
        for _number in range(2):
            DuckLakeHook().write(ROWS, "own", mode="append")
        return ROWS

    with DAG("two_appends") as dag:
        DuckLakeWriteOperator(task_id="write", table="t", python_callable=append)
    run(dag)
    assert len(stored("own")) == 6


@pytest.mark.parametrize(
    ("error", "tries"), [(CommitConflictError("a concurrent commit"), 3), (DataError("a column is missing"), 1)]
)
def test_transient_errors_are_retried_and_terminal_ones_are_not(conn_id: str, error: Exception, tries: int) -> None:
    seen: list[int] = []

    def fails() -> pa.Table:
        seen.append(1)
        if len(seen) < 3:
            raise error
        return ROWS

    with DAG(f"tries_{tries}") as dag:
        DuckLakeWriteOperator(
            task_id="write",
            table="t",
            python_callable=fails,
            retries=5,
            retry_delay=timedelta(0),
            **({"retry_policy": None} if retry_policy() else {}),  # without its delay of 15 s
        )
    done = run(dag)
    assert len(seen) == tries
    assert states(done) == {"write": "success" if tries == 3 else "failed"}


def test_the_retry_policy_tells_transient_terminal_and_foreign_errors_apart(conn_id: str) -> None:
    policy = getattr(write(), "retry_policy", None)
    if policy is None:
        pytest.skip("retry policies need Airflow 3.3")
    with DAG("mapped_policies"):
        mapped = DuckLakeWriteOperator.partial(task_id="write", table="t").expand(partition_key=["a", "b"])
    assert mapped.retry_policy.rules == policy.rules
    soon = policy.evaluate(CommitConflictError("a concurrent commit"), 1, 3)
    assert (soon.action.value, soon.retry_delay) == ("retry", timedelta(seconds=15))
    assert policy.evaluate(ConfigError("wrong"), 1, 3).action.value == "fail"
    assert policy.evaluate(ValueError("from user code"), 1, 3).action.value == "default"


# --- asset events and URIs -----------------------------------------------------------------------------------------


def test_the_asset_event_describes_the_write(conn_id: str) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    with DAG("events") as dag:
        DuckLakeWriteOperator(
            task_id="write",
            table="sales.orders",
            python_callable=lambda: day("2024-01-01", 1, 2),
            partition_expr="day",
            partition_key="2024-01-01",
        )
    done = run(dag)
    assert states(done) == {"write": "success"}
    with create_session() as session:
        events = session.query(AssetEvent).filter_by(source_dag_id="events").all()
        (event,) = [asset_event for asset_event in events if asset_event.source_run_id == done.run_id]
        assert event.asset.uri == "ducklake://ducklake_default/sales/orders"
        metadata = {name: event.extra[f"ducklake/{name}"] for name in ("table", "snapshot_id", "rows_written")}
        assert metadata == {"table": "sales.orders", "snapshot_id": 1, "rows_written": 2}
        assert event.extra["ducklake/partition_keys"] == ["2024-01-01"]
        assert getattr(event, "partition_key", "2024-01-01") == "2024-01-01"


@pytest.mark.parametrize("lake", ["ducklake_default", "prod"])
def test_only_the_tables_own_asset_event_carries_write_metadata(conn_id: str, lake: str) -> None:
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    others = [ducklake_asset("sales.t"), ducklake_asset("other"), Asset("x://y")]
    with DAG(f"events_of_{lake}") as dag:
        write(outlets=[ducklake_asset('"T"', lake=lake), *others])
    assert states(run(dag)) == {"write": "success"}
    with create_session() as session:
        events = session.query(AssetEvent).filter_by(source_dag_id=f"events_of_{lake}").all()
        metadata = {event.asset.uri for event in events if event.extra.get("ducklake/snapshot_id")}
        assert metadata == {f"ducklake://{lake}/main/T"}
        assert len(events) == 4


def test_outlets_default_to_the_tables_asset(conn_id: str) -> None:
    assert write().outlets == [ducklake_asset("t")]
    assert write(outlets=[Asset("x://y")]).outlets == [Asset("x://y")]
    assert DuckLakeWriteOperator(task_id="w", table="{{ params.t }}", sql="SELECT 1").outlets == []


@pytest.mark.parametrize(
    ("given", "uri"),
    [
        (lambda: ducklake_asset("orders"), "ducklake://ducklake_default/main/orders"),
        (lambda: ducklake_asset('sales."a.b c"', lake="Prod"), "ducklake://prod/sales/a.b%20c"),
        (lambda: Asset("ducklake://PROD/sales/orders/"), "ducklake://prod/sales/orders"),
    ],
)
def test_asset_uris_are_normalized(given: Callable[[], Asset], uri: str) -> None:
    assert given().uri == uri


def test_a_uri_without_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="names no table"):
        Asset("ducklake://prod")
