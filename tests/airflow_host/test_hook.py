"""The hook: used directly in tasks, and by Airflow's own SQL operators and sensors."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas
import polars
import pyarrow as pa
import pytest
from airflow.providers.common.sql.operators.sql import (
    SQLColumnCheckOperator,
    SQLExecuteQueryOperator,
    SQLTableCheckOperator,
)
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook
from ducklake_orch.errors import (
    ConfigError,
    DuckLakeOrchError,
    MaintenanceFloorError,
    ObjectNotFoundError,
    ReadOnlyError,
    UnsupportedStatementError,
)
from tests.support.airflow_connections import Connect
from tests.support.airflow_runs import run, states


def snapshot_ids(hook: DuckLakeHook) -> list[int]:
    return [snapshot.snapshot_id for snapshot in reversed(hook.snapshots())]


# --- one run, one transaction --------------------------------------------------------------------------------------


def test_statements_of_one_run_commit_one_snapshot(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run(["CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)", "INSERT INTO t VALUES (2)"])
    assert hook.get_records("SELECT * FROM t ORDER BY a") == [(1,), (2,)]
    assert snapshot_ids(hook) == [0, 1]


def test_a_script_commits_one_snapshot(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2);")
    assert snapshot_ids(hook) == [0, 1]


def test_an_error_rolls_back_the_whole_run(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (a INTEGER)")
    with pytest.raises(ObjectNotFoundError):
        hook.run(["INSERT INTO t VALUES (1)", "INSERT INTO nowhere VALUES (1)"])
    assert hook.get_first("SELECT count(*) FROM t") == (0,)
    assert snapshot_ids(hook) == [0, 1]


def test_autocommit_makes_each_statement_a_snapshot(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run(["CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1)"], autocommit=True)
    assert snapshot_ids(hook) == [0, 1, 2]


def test_a_write_after_a_read_sees_rows_committed_in_between(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t AS SELECT 1 AS a")
    with hook.get_conn() as connection:
        cursor = connection.cursor()
        assert cursor.execute("SELECT count(*) FROM t").fetchall() == [(1,)]
        DuckLakeHook().run("INSERT INTO t VALUES (2)")
        cursor.execute("INSERT INTO t SELECT count(*) FROM t")
        connection.commit()
    assert hook.get_records("SELECT a FROM t ORDER BY rowid") == [(1,), (2,), (2,)]


def test_explicit_transactions_are_respected(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("BEGIN; CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1); COMMIT", autocommit=True)
    hook.run("BEGIN; INSERT INTO t VALUES (1); ROLLBACK", autocommit=True)
    assert snapshot_ids(hook) == [0, 1]


def test_parameters_bind_by_position_and_by_name(conn_id: str) -> None:
    hook = DuckLakeHook()
    assert hook.get_first("SELECT ? + ?", parameters=[1, 2]) == (3,)
    assert hook.get_first("SELECT $b - $a", parameters={"a": 1, "b": 2}) == (1,)


def test_a_cursor_fetches_rows_incrementally(conn_id: str) -> None:
    with DuckLakeHook().get_conn() as connection:
        cursor = connection.cursor().execute("SELECT range FROM range(5)")
        assert [name for name, *_ in cursor.description or []] == ["range"]
        assert cursor.fetchone() == (0,)
        assert cursor.fetchmany(2) == [(1,), (2,)]
        assert list(cursor) == [(3,), (4,)]
        assert cursor.fetchone() is None


def test_a_snapshot_names_the_task_that_made_it(conn_id: str) -> None:
    with DAG("snapshots_name_tasks") as dag:

        @task
        def write() -> None:
            DuckLakeHook().run("CREATE TABLE t (a INTEGER)")

        write()
    done = run(dag)
    latest = DuckLakeHook().snapshots()[0]
    assert latest.author == "airflow"
    about = {"dag_id": dag.dag_id, "task_id": "write", "run_id": done.run_id, "map_index": -1, "try_number": 1}
    found = latest.extra["airflow"]
    # The report links to this page.
    assert f"/dags/{dag.dag_id}/runs/" in found.pop("url")
    assert found == about


def test_a_retried_task_repeats_no_transaction_and_its_tables_change_together(
    conn_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    attempts: list[int] = []
    rows = pa.table({"n": [1]})
    with DAG("transactions") as dag:

        @task(retries=2, retry_delay=timedelta(0))
        def write() -> None:
            attempts.append(1)
            with DuckLakeHook().transaction() as tx:
                tx.write(rows, "orders", mode="append")
                tx.write(rows, "totals", mode="append")
                if len(attempts) == 1:
                    raise RuntimeError("within the transaction")
            if len(attempts) == 2:
                raise RuntimeError("after the commit")

        write()
    done = run(dag)
    assert (states(done), len(attempts)) == ({"write": "success"}, 3)
    lake = DuckLakeHook().lake()
    assert lake.table("orders").count() == lake.table("totals").count() == 1
    last = lake.snapshots(1)[0]
    assert {change.partition(":")[0] for change in last.changes} == {"created_table", "inserted_into_table"}
    assert (last.author, last.message) == ("airflow", f"transaction, run {done.run_id}")
    assert f"wrote these rows as snapshot {last.snapshot_id}, so they were not written again" in capsys.readouterr().out


def test_a_transaction_without_a_key_is_repeated_with_its_task(conn_id: str) -> None:
    attempts: list[int] = []
    with DAG("repeated_transactions") as dag:

        @task(retries=1, retry_delay=timedelta(0))
        def write() -> None:
            attempts.append(1)
            with DuckLakeHook().transaction(idempotency_key=None) as tx:
                tx.write(pa.table({"n": [len(attempts)]}), "orders", mode="overwrite")
            if len(attempts) == 1:
                raise RuntimeError("after the commit")

        write()
    assert states(run(dag)) == {"write": "success"}
    assert DuckLakeHook().get_records("FROM orders") == [(2,)]


# --- guards --------------------------------------------------------------------------------------------------------


def test_maintenance_calls_below_the_retention_floor_are_refused(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (a INTEGER)")
    with pytest.raises(MaintenanceFloorError):
        hook.run("CALL ducklake_expire_snapshots('ducklake_default', older_than => now())")
    hook.run("CALL ducklake_expire_snapshots('ducklake_default', older_than => now() - INTERVAL 7 DAYS)")
    with pytest.raises(UnsupportedStatementError, match="autocommit"):
        hook.run(["INSERT INTO t VALUES (1)", "CALL ducklake_merge_adjacent_files('ducklake_default')"])


def test_using_a_lake_leaves_its_options_unchanged(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (a INTEGER)")
    before = hook.lake().options()
    hook.insert_rows("t", [(1,)])
    hook.get_df("SELECT * FROM t")
    hook.maintain()
    hook.test_connection()
    assert hook.lake().options() == before


def test_a_read_only_lake_refuses_writes(connect: Connect, conn_id: str, tmp_path: Path) -> None:
    DuckLakeHook().run("CREATE TABLE t (a INTEGER)")
    catalog = {"type": "sqlite", "path": str(tmp_path / "catalog.sqlite")}
    connect(extra={"catalog": catalog, "storage": str(tmp_path / "files"), "read_only": True})
    assert DuckLakeHook().get_records("SELECT * FROM t") == []
    with pytest.raises(ReadOnlyError):
        DuckLakeHook().run("INSERT INTO t VALUES (1)")


# --- rows and frames -----------------------------------------------------------------------------------------------

VALUES = (
    1,
    "it's",
    1.5,
    Decimal("2.50"),
    date(2024, 1, 2),
    datetime(2024, 1, 2, 3, tzinfo=UTC),
    b"\x00'",
    [1, 2],
    None,
)


def test_insert_rows_commits_once_unless_commit_every_is_set(conn_id: str) -> None:
    hook = DuckLakeHook()
    columns = "a INTEGER, b TEXT, c DOUBLE, d DECIMAL(9, 2), e DATE, f TIMESTAMPTZ, g BLOB, h INTEGER[], i TEXT"
    hook.run(f"CREATE TABLE t ({columns})")
    hook.insert_rows("t", [VALUES] * 3)
    assert snapshot_ids(hook) == [0, 1, 2]
    assert hook.get_records("SELECT * FROM t") == [(*VALUES[:7], [1, 2], None)] * 3
    hook.insert_rows("t", ((n, str(n)) for n in range(25)), target_fields=["a", "b"], commit_every=10)
    assert snapshot_ids(hook) == [0, 1, 2, 3, 4, 5]


def test_rows_replace_those_with_equal_keys(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t (id INTEGER, day DATE, b TEXT, c DOUBLE); INSERT INTO t VALUES (1, '2024-01-01', 'x', 1)")
    rows = [(1, "2024-01-01", "y"), (1, date(2024, 1, 2), None), (1, "2024-01-02", "last")]
    hook.insert_rows("t", rows, ["id", "day", "b"], replace=True, replace_index=["ID", "day"])
    assert hook.get_records("SELECT * FROM t ORDER BY ALL") == [
        (1, date(2024, 1, 1), "y", 1.0),
        (1, date(2024, 1, 2), "last", None),
    ]
    assert snapshot_ids(hook) == [0, 1, 2]
    hook.insert_rows("t", [(1, "2024-01-01")], ["id", "day"], replace=True, replace_index=["id", "day"])
    assert hook.get_first("SELECT count(*) FROM t") == (2,)
    with pytest.raises(ConfigError, match="replace_index"):
        hook.insert_rows("t", rows, ["id", "day", "b"], replace=True)
    with pytest.raises(ConfigError, match="no column `idd`"):
        hook.insert_rows("t", [(1,)], ["idd"], replace=True, replace_index="idd")
    refused: list[list[Any]] = [[(1, "2024-01-01"), (2,)], [("x", "2024-01-01")], [(None, "2024-01-01")]]
    for wrong in refused:
        with pytest.raises(DuckLakeOrchError):
            hook.insert_rows("t", wrong, ["id", "day"], replace=True, replace_index="id")


def test_queries_return_pandas_polars_and_chunked_frames(conn_id: str) -> None:
    hook = DuckLakeHook()
    hook.run("CREATE TABLE t AS SELECT range AS a FROM range(5)")
    assert isinstance(hook.get_df("SELECT * FROM t"), pandas.DataFrame)
    assert isinstance(hook.get_df("SELECT * FROM t", df_type="polars"), polars.DataFrame)
    chunks = hook.get_df_by_chunks("SELECT * FROM t ORDER BY a", chunksize=2)
    assert [list(chunk["a"]) for chunk in chunks] == [[0, 1], [2, 3], [4]]
    assert hook.get_table_schema("t") == [{"name": "a", "type": "BIGINT"}]


@pytest.mark.parametrize("kind", ["arrow", "pandas", "polars", "lazy", "reader", "duckdb"])
def test_a_table_is_read_as_each_kind_of_frame(conn_id: str, kind: str) -> None:
    hook = DuckLakeHook()
    hook.write(pa.table({"a": [1, 2, 3]}), "sales.t", mode="append")
    frame = hook.read("sales.t", kind, where="a > 1", columns=["a"])
    with duckdb.connect() as con:
        relation = frame if kind == "duckdb" else con.sql("FROM frame")
        assert sorted(relation.fetchall()) == [(2,), (3,)]


def test_an_unknown_kind_of_frame_is_refused(conn_id: str) -> None:
    with pytest.raises(ConfigError, match=r"`kind` = 'pands' is not a kind of frame. Did you mean `pandas`?"):
        DuckLakeHook().read("t", "pands")


# --- Airflow's own SQL operators -----------------------------------------------------------------------------------


def test_airflows_own_sql_operators_checks_and_sensors_work(conn_id: str) -> None:
    with DAG("sql_of_airflow") as dag:
        make = SQLExecuteQueryOperator(
            task_id="make",
            conn_id=conn_id,
            sql="CREATE TABLE t (a INTEGER, b TEXT); INSERT INTO t VALUES (1, 'x'), (2, NULL);",
            split_statements=True,
        )
        query = SQLExecuteQueryOperator(task_id="query", conn_id=conn_id, sql="SELECT * FROM t ORDER BY a")
        wait = SqlSensor(task_id="wait", conn_id=conn_id, sql="SELECT count(*) FROM t", poke_interval=1, timeout=10)
        column = SQLColumnCheckOperator(
            task_id="column",
            conn_id=conn_id,
            table="t",
            column_mapping={"a": {"min": {"equal_to": 1}, "null_check": {"equal_to": 0}}},
        )
        table = SQLTableCheckOperator(
            task_id="table", conn_id=conn_id, table="t", checks={"rows": {"check_statement": "count(*) = 2"}}
        )
        make >> [query, wait, column, table]
    done = run(dag)
    assert set(states(done).values()) == {"success"}
    assert snapshot_ids(DuckLakeHook()) == [0, 1]
