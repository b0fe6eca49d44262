"""`DuckLakeExecuteOperator`: its result, and which commands run again on a retry or when a task is cleared."""

import signal
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG

from ducklake_orch.airflow import DuckLakeExecuteOperator, DuckLakeHook
from tests.airflow_host.task_processes import killed_at
from tests.support.airflow_runs import result, run
from tests.support.airflow_tasks import execute, stored


def test_the_result_reports_each_command(conn_id: str) -> None:
    with DAG("commands") as dag:
        DuckLakeExecuteOperator(
            task_id="sql",
            commands=[
                "CREATE TABLE t (a INTEGER)",
                "INSERT INTO t VALUES ({{ 6 * 7 }}), ($b)",
                "SELECT * FROM t ORDER BY a",
            ],
            parameters={"b": 43},
        )
    found = result(run(dag), "sql")
    assert (found["schema_version"], found["status"], found["executed"]) == (1, "ok", 3)
    assert found["commands"][1]["affected_rows"] == 2
    assert found["commands"][2]["rows"] == [{"a": 42}, {"a": 43}]
    assert found["lake"]["latest_snapshot"] == 2


def test_a_failing_command_fails_the_task(conn_id: str) -> None:
    with pytest.raises(AirflowFailException, match="nowhere"):
        execute(DuckLakeExecuteOperator(task_id="sql", command="CREATE TABLE a (b INT); SELECT * FROM nowhere"))
    assert DuckLakeHook().lake().exists("a")


APPENDING = "INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)"


def sql(command: str, **options: Any) -> DuckLakeExecuteOperator:
    return DuckLakeExecuteOperator(task_id="sql", command=command, **options)


def make_table(*rows: int) -> None:
    DuckLakeHook().write(pa.table({"a": pa.array(rows, pa.int32())}), "t", mode="append")


@pytest.mark.parametrize(("command", "atomic"), [(APPENDING, True), ("SELECT 1; INSERT INTO t VALUES (1), (2)", False)])
@pytest.mark.parametrize("cleared", [False, True])
def test_a_retried_or_cleared_append_runs_once(
    conn_id: str, caplog: pytest.LogCaptureFixture, command: str, atomic: bool, cleared: bool
) -> None:
    make_table()
    operator = sql(command, atomic=atomic)
    execute(operator)
    again = execute(operator, try_number=2, cleared=cleared)
    assert (again["replayed"], again["snapshot"]) == (True, 2)
    assert "as snapshot 2, so they were not run again. To run them once more, start a new run, or change" in caplog.text
    assert stored(columns="a") == [1, 2]
    execute(operator, run_id="another")
    assert stored(columns="a") == [1, 1, 2, 2]


@pytest.mark.parametrize(
    "command",
    [
        "DELETE FROM t; INSERT INTO t SELECT * FROM source",
        "CREATE OR REPLACE TABLE t AS FROM source",
        "TRUNCATE main.t; INSERT INTO T BY NAME FROM source",
        "DROP TABLE IF EXISTS t; CREATE TABLE t AS FROM source; INSERT INTO t SELECT 0 WHERE false",
    ],
)
def test_a_replacing_command_reruns_when_cleared_but_not_when_retried(conn_id: str, command: str) -> None:
    make_table()
    DuckLakeHook().run("CREATE TABLE source AS SELECT 1 AS a")
    execute(sql(command, atomic=True))
    DuckLakeHook().run("UPDATE source SET a = 7")
    assert execute(sql(command, atomic=True, retries=3), try_number=2)["replayed"]
    assert stored(columns="a") == [1]
    assert not execute(sql(command, atomic=True, retries=3), try_number=3, cleared=True)["replayed"]
    assert stored(columns="a") == [7]


@pytest.mark.parametrize(
    "command",
    [
        "DELETE FROM other; INSERT INTO t VALUES (1)",
        "CREATE TABLE IF NOT EXISTS t (a INTEGER); INSERT INTO t VALUES (1)",
        "DROP SCHEMA IF EXISTS nothing; INSERT INTO t VALUES (1)",
        "UPDATE t SET a = a + 1",
    ],
)
def test_a_cleared_command_that_does_not_replace_its_table_is_replayed(conn_id: str, command: str) -> None:
    make_table(0)
    DuckLakeHook().run("CREATE TABLE other (a INTEGER)")
    execute(sql(command, atomic=True))
    done = stored(columns="a")
    assert execute(sql(command, atomic=True), try_number=2, cleared=True)["replayed"]
    assert stored(columns="a") == done


def test_changed_commands_or_parameters_run_again(conn_id: str) -> None:
    make_table()
    execute(sql("INSERT INTO t VALUES (1)", atomic=True))
    execute(sql("INSERT INTO t VALUES (2)", atomic=True), try_number=2, cleared=True)
    execute(sql("INSERT INTO t VALUES ($n)", parameters={"n": 3}), try_number=3, cleared=True)
    execute(sql("INSERT INTO t VALUES ($n)", parameters={"n": 4}), try_number=4, cleared=True)
    assert stored(columns="a") == [1, 2, 3, 4]


def test_an_insert_killed_after_its_commit_is_replayed_by_the_retry(conn_id: str) -> None:
    make_table()
    command = "INSERT INTO t VALUES (1)"
    assert killed_at("commit.after", command) == -signal.SIGKILL
    assert stored(columns="a") == [1]
    assert execute(sql(command), try_number=2)["replayed"]
    assert killed_at("commit.before", command, "another") == -signal.SIGKILL
    assert not execute(sql(command), try_number=2, run_id="another")["replayed"]
    assert stored(columns="a") == [1, 1]


def test_a_task_needs_exactly_one_source_of_commands(conn_id: str) -> None:
    both: list[dict[str, Any]] = [{}, {"command": "SELECT 1", "commands": ["SELECT 2"]}]
    for given in both:
        with pytest.raises(AirflowFailException, match="give one of"):
            execute(DuckLakeExecuteOperator(task_id="sql", **given))
