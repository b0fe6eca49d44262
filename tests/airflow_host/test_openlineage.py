"""Lineage events for OpenLineage."""

from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, Asset, task

from ducklake_orch.airflow import DuckLakeHook, DuckLakeWriteOperator, ducklake_asset
from ducklake_orch.airflow.assets import convert_asset_to_openlineage
from tests.support.airflow_runs import run, states
from tests.support.airflow_tasks import execute

pytest.importorskip("airflow.providers.openlineage")


def write(**arguments: Any) -> DuckLakeWriteOperator:
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    return DuckLakeWriteOperator(task_id="write", table="sales.orders", python_callable=lambda: rows, **arguments)


def test_a_write_emits_a_dataset_with_schema_and_statistics(conn_id: str) -> None:
    operator = write()
    execute(operator)
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert lineage is not None
    (output,) = lineage.outputs
    assert (output.namespace, output.name) == ("ducklake://ducklake_default", "sales.orders")
    assert [(field.name, field.type) for field in output.facets["schema"].fields] == [
        ("id", "BIGINT"),
        ("name", "VARCHAR"),
    ]
    figures = output.outputFacets["outputStatistics"]
    assert (figures.rowCount, figures.fileCount) == (2, 1)
    assert lineage.inputs == []


def test_a_task_that_wrote_nothing_emits_no_lineage(conn_id: str) -> None:
    assert write().get_openlineage_facets_on_complete(None) is None


def test_an_asset_maps_to_the_dataset_of_its_table(conn_id: str) -> None:
    asset: Asset = ducklake_asset("sales.orders")
    found = convert_asset_to_openlineage(asset, None)
    assert (found.namespace, found.name) == ("ducklake://ducklake_default", "sales.orders")


def test_input_frames_become_input_datasets(conn_id: str) -> None:
    seen: list[Any] = []

    with DAG("lineage_of_frames") as dag:

        @task.ducklake(table="copy", on_success_callback=lambda context: seen.append(context["ti"].task))
        def copy(rows: pa.Table) -> pa.Table:
            return rows

        copy(write().output)
    assert states(run(dag))["copy"] == "success"
    lineage = seen[0].get_openlineage_facets_on_complete(None)
    assert [(dataset.name, len(dataset.facets["schema"].fields)) for dataset in lineage.inputs] == [("sales.orders", 2)]
    assert [output.name for output in lineage.outputs] == ["main.copy"]


def test_sql_of_airflows_own_operators_yields_lineage(conn_id: str) -> None:
    from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator

    execute(write())
    sql = "CREATE TABLE sales.names AS SELECT name FROM sales.orders"
    operator = SQLExecuteQueryOperator(task_id="sql", conn_id=conn_id, sql=sql)
    execute(operator)
    lineage = operator.get_openlineage_facets_on_complete(None)
    assert lineage is not None
    assert [dataset.name for dataset in lineage.inputs] == ["sales.orders"]
    assert [output.name for output in lineage.outputs] == ["sales.names"]
    assert {dataset.namespace for dataset in lineage.inputs + lineage.outputs} == {"ducklake://ducklake_default"}
    assert DuckLakeHook().get_openlineage_default_schema() == "main"
