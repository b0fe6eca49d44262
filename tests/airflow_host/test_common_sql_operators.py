"""The operators and sensors of Airflow's `common.sql` provider on a `ducklake` connection: the table in the docs."""

import inspect
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from airflow.providers.common.sql.operators import generic_transfer, sql
from airflow.providers.common.sql.operators.generic_transfer import GenericTransfer
from airflow.providers.common.sql.operators.sql import (
    BranchSQLOperator,
    SQLCheckOperator,
    SQLColumnCheckOperator,
    SQLExecuteQueryOperator,
    SQLInsertRowsOperator,
    SQLIntervalCheckOperator,
    SQLTableCheckOperator,
    SQLThresholdCheckOperator,
    SQLValueCheckOperator,
)
from airflow.providers.common.sql.sensors import sql as sensors
from airflow.providers.common.sql.sensors.sql import SqlSensor
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, BaseOperator, task

from ducklake_orch.airflow import DuckLakeHook
from tests.support.airflow_runs import result, run, states

TODAY = datetime(2025, 1, 8, tzinfo=UTC)
TABLE = "sales.orders"
COUNT = f"SELECT count(*) FROM {TABLE}"
PAGE = Path(__file__).parents[2] / "docs" / "airflow-sql.md"
BULK_LOAD: Any = getattr(sql, "SQLBulkLoadOperator", None)


class Case(NamedTuple):
    """A task, its state, and what a query of the lake then returns."""

    operator: Any
    arguments: Mapping[str, Any]
    state: str = "success"
    query: str = COUNT
    rows: Any = 5


def column(**checks: Any) -> dict[str, Any]:
    return {"table": TABLE, "column_mapping": {"n": checks}}


def transfer(**more: Any) -> dict[str, Any]:
    connections = {"source_conn_id": "ducklake_default", "destination_conn_id": "ducklake_default"}
    return {"sql": f"FROM {TABLE} ORDER BY n", "destination_table": "copied", **connections, **more}


COPIED: Any = {"query": "SELECT count(*), count(DISTINCT n), min(ds) FROM copied", "rows": (5, 5, date(2025, 1, 1))}
EMPTY_COPY = f"CREATE OR REPLACE TABLE copied AS FROM {TABLE} WHERE false"
SNAPSHOTS = "SELECT count(*) FROM ducklake_snapshots('ducklake_default')"
CASES = {
    "commands in one snapshot": Case(
        SQLExecuteQueryOperator,
        {"sql": f"DELETE FROM {TABLE}; INSERT INTO {TABLE} VALUES ('2025-01-08', 7, 'x')", "split_statements": True},
        query=f"SELECT any_value(n), ({SNAPSHOTS}) FROM {TABLE}",
        rows=(7, 3),
    ),
    "names in the schema of the operator": Case(
        SQLExecuteQueryOperator, {"sql": "DELETE FROM orders WHERE n > 1", "database": "sales"}, rows=1
    ),
    "a failed command rolls all back": Case(
        SQLExecuteQueryOperator,
        {"sql": [f"DELETE FROM {TABLE}", "INSERT INTO nowhere VALUES (1)"]},
        state="failed",
    ),
    "parameters by position": Case(
        SQLExecuteQueryOperator,
        {"sql": f"DELETE FROM {TABLE} WHERE n > ?", "parameters": [2]},
        rows=2,
    ),
    "parameters by name": Case(
        SQLExecuteQueryOperator,
        {"sql": f"DELETE FROM {TABLE} WHERE n > $most", "parameters": {"most": 3}},
        rows=3,
    ),
    "column checks that hold": Case(
        SQLColumnCheckOperator,
        column(min={"equal_to": 1}, max={"leq_to": 5}, null_check={"equal_to": 0}, unique_check={"equal_to": 0}),
    ),
    "a column check of a part": Case(
        SQLColumnCheckOperator,
        column(distinct_check={"equal_to": 3}) | {"partition_clause": "ds = '2025-01-08'"},
    ),
    "a column check that does not hold": Case(SQLColumnCheckOperator, column(max={"less_than": 5}), "failed"),
    "table checks that hold": Case(
        SQLTableCheckOperator,
        {
            "table": TABLE,
            "checks": {
                "rows": {"check_statement": "count(*) = 5"},
                "part": {"check_statement": "max(n) = 2", "partition_clause": "ds = '2025-01-01'"},
            },
        },
    ),
    "a table check that does not hold": Case(
        SQLTableCheckOperator, {"table": TABLE, "checks": {"rows": {"check_statement": "count(*) > 5"}}}, "failed"
    ),
    "a check that holds": Case(SQLCheckOperator, {"sql": f"SELECT count(*) = 5, min(n) FROM {TABLE}"}),
    "a check of a zero": Case(SQLCheckOperator, {"sql": f"SELECT count(*) FROM {TABLE} WHERE n > 5"}, "failed"),
    "a value": Case(SQLValueCheckOperator, {"sql": COUNT, "pass_value": 5}),
    "a value within tolerance": Case(SQLValueCheckOperator, {"sql": COUNT, "pass_value": 6, "tolerance": 0.2}),
    "another value": Case(SQLValueCheckOperator, {"sql": COUNT, "pass_value": 6}, "failed"),
    "an interval within its threshold": Case(
        SQLIntervalCheckOperator, {"table": TABLE, "metrics_thresholds": {"count(*)": 2, "max(n)": 3}}
    ),
    "an interval above its threshold": Case(
        SQLIntervalCheckOperator, {"table": TABLE, "metrics_thresholds": {"count(*)": 1.2}}, "failed"
    ),
    "a value between thresholds": Case(
        SQLThresholdCheckOperator,
        {"sql": COUNT, "min_threshold": 5, "max_threshold": f"SELECT max(n) FROM {TABLE}"},
    ),
    "a value above its threshold": Case(
        SQLThresholdCheckOperator, {"sql": COUNT, "min_threshold": 0, "max_threshold": 4}, "failed"
    ),
    "inserted tuples": Case(
        SQLInsertRowsOperator,
        {
            "table_name": "orders",
            "schema": "sales",
            "columns": ["ds", "n"],
            "rows": [(date(2025, 1, 9), 9), (None, float("nan"))],
        },
        query=f"SELECT count(*), count(n), max(n), max(ds), ({SNAPSHOTS}) FROM {TABLE}",
        rows=(7, 6, 9, date(2025, 1, 9), 3),
    ),
    "inserted between two operators": Case(
        SQLInsertRowsOperator,
        {
            "table_name": TABLE,
            "columns": ["n"],
            "rows": [(10,)],
            "preoperator": f"DELETE FROM {TABLE}",
            "postoperator": f"UPDATE {TABLE} SET note = 'new'",
        },
        query=f"SELECT n, note FROM {TABLE}",
        rows=(10, "new"),
    ),
    "no rows to insert": Case(SQLInsertRowsOperator, {"table_name": TABLE, "rows": []}, "skipped"),
    "inserted mappings": Case(
        SQLInsertRowsOperator,
        {"table_name": "orders", "database": "sales", "rows": [{"n": 8, "note": "h", "ds": date(2025, 1, 9)}]},
        query=f"SELECT ds, n, note FROM {TABLE} WHERE n = 8",
        rows=(date(2025, 1, 9), 8, "h"),
    ),
    "replaced rows": Case(
        SQLInsertRowsOperator,
        {
            "table_name": TABLE,
            "columns": ["n", "note"],
            "rows": [(5, "new"), (6, "added")],
            "insert_args": {"replace": True, "replace_index": "n"},
        },
        query=f"SELECT count(*), list(note ORDER BY n)[5:] FROM {TABLE}",
        rows=(6, ["new", "added"]),
    ),
    "replaced rows without keys": Case(
        SQLInsertRowsOperator,
        {"table_name": TABLE, "columns": ["n"], "rows": [(10,)], "insert_args": {"replace": True}},
        "failed",
    ),
    "a transfer": Case(GenericTransfer, transfer(preoperator=EMPTY_COPY), **COPIED),
    "a transfer in pages": Case(GenericTransfer, transfer(preoperator=EMPTY_COPY, page_size=2), **COPIED),
    "a sensor whose rows are there": Case(SqlSensor, {"sql": COUNT, "timeout": 5, "poke_interval": 1}),
    "a sensor that fails on a value": Case(
        SqlSensor, {"sql": COUNT, "failure": lambda value: value == 5, "timeout": 5, "poke_interval": 1}, "failed"
    ),
}
if BULK_LOAD is not None:
    loaded: Any = {"query": f"SELECT count(*), max(n), max(note) FROM {TABLE}", "rows": (7, 9, "z")}
    CASES["a bulk load"] = Case(BULK_LOAD, {"table": TABLE, "tmp_file": "orders.tsv"}, **loaded)


@pytest.fixture
def orders(conn_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DuckLakeHook:
    (tmp_path / "orders.tsv").write_text("2025-01-09\t9\tz\n2025-01-09\t\\N\ty\n")
    monkeypatch.chdir(tmp_path)
    hook = DuckLakeHook()
    rows = "('2025-01-01', 1, 'a'), ('2025-01-01', 2, 'b'), ('2025-01-08', 3, 'c'), ('2025-01-08', 4, 'd'),"
    columns = "ds DATE, n INTEGER, note VARCHAR"
    create = f"CREATE SCHEMA sales; CREATE TABLE {TABLE} ({columns});"
    hook.run(f"{create} INSERT INTO {TABLE} VALUES {rows} ('2025-01-08', 5, 'e')")
    return hook


@pytest.mark.parametrize("name", CASES)
def test_an_operator_of_common_sql_works_on_a_lake(orders: DuckLakeHook, name: str) -> None:
    case = CASES[name]
    connection = {} if case.operator is GenericTransfer else {"conn_id": "ducklake_default"}
    with DAG(re.sub(r"\W", "_", name)) as dag:
        case.operator(task_id="task", **connection, **case.arguments)
    assert states(run(dag, logical_date=TODAY)) == {"task": case.state}
    expected = case.rows if isinstance(case.rows, tuple) else (case.rows,)
    assert orders.get_first(case.query) == expected


@pytest.mark.parametrize(("condition", "followed", "skipped"), [("= 5", "yes", "no"), ("> 5", "no", "yes")])
def test_a_branch_follows_the_result_of_its_query(
    orders: DuckLakeHook, condition: str, followed: str, skipped: str
) -> None:
    query = f"SELECT count(*) {condition} FROM {TABLE}"
    branches: Any = {"follow_task_ids_if_true": ["yes"], "follow_task_ids_if_false": ["no"]}
    with DAG(f"branch_to_{followed}") as dag:
        branch = BranchSQLOperator(task_id="branch", conn_id="ducklake_default", sql=query, **branches)
        branch >> [EmptyOperator(task_id="yes"), EmptyOperator(task_id="no")]
    assert states(run(dag)) == {"branch": "success", followed: "success", skipped: "skipped"}


def test_a_query_returns_its_rows_to_the_next_task(orders: DuckLakeHook) -> None:
    with DAG("returned_rows") as dag:
        query = SQLExecuteQueryOperator(task_id="query", conn_id="ducklake_default", sql=f"FROM {TABLE} ORDER BY n")

        @task
        def first(rows: Any) -> str:
            return f"{len(rows)} rows, the first of {rows[0][0]:%d.%m.%Y}"

        first(query.output)
    assert result(run(dag), "first") == "5 rows, the first of 01.01.2025"


def test_the_table_in_the_docs_names_every_operator_and_sensor() -> None:
    offered = {
        name
        for module in (sql, generic_transfer, sensors)
        for name, member in inspect.getmembers(module, inspect.isclass)
        if member.__module__ == module.__name__ and issubclass(member, BaseOperator)
    }
    tested = {case.operator.__name__ for case in CASES.values()} | {"BranchSQLOperator"}
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text().partition("## Operators and sensors")[2], re.M))
    assert tested == offered - {"BaseSQLOperator"}
    assert documented >= tested
