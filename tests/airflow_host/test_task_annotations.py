"""`@task.ducklake` where annotations are texts, as this import makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
from airflow.sdk import DAG, task

from tests.support.airflow_runs import run, states
from tests.support.airflow_tasks import stored

if TYPE_CHECKING:
    from polars import DataFrame


def test_string_annotations_choose_the_kind_of_input_frame(conn_id: str) -> None:
    with DAG("annotations_are_texts") as dag:

        @task.ducklake(table="t")
        def source() -> pa.Table:
            return pa.table({"a": [1]})

        @task.ducklake(table="kinds")
        def kinds(one: pd.DataFrame, several: list[pd.DataFrame], other: Any, number: DataFrame) -> pa.Table:
            found = [one, several[0], other, number]
            return pa.table({"kind": [f"{type(each).__module__.partition('.')[0]}" for each in found]})

        rows = source()
        kinds(rows, [rows], rows, 1)
    assert set(states(run(dag)).values()) == {"success"}
    assert stored("kinds", "kind") == ["builtins", "pandas", "pandas", "pyarrow"]


def test_an_unresolvable_annotation_fails_unless_read_names_the_kind(conn_id: str) -> None:
    with DAG("annotations_for_type_checkers") as dag:

        @task.ducklake(table="t")
        def source() -> pa.Table:
            return pa.table({"a": [1]})

        @task.ducklake(table="copy")
        def copy(rows: DataFrame) -> DataFrame:
            return rows

        @task.ducklake(table="told", read="polars")
        def told(rows: DataFrame) -> DataFrame:
            return rows

        rows = source()
        copy(rows)
        told(rows)
    assert states(run(dag)) == {"source": "success", "copy": "failed", "told": "success"}
