"""`@task.ducklake` with string annotations, which the `__future__` import below produces."""

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
        def kinds(single: pd.DataFrame, several: list[pd.DataFrame], untyped: Any, number: DataFrame) -> pa.Table:
            values = [single, several[0], untyped, number]
            return pa.table({"kind": [f"{type(value).__module__.partition('.')[0]}" for value in values]})

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

        @task.ducklake(table="explicit", read="polars")
        def explicit(rows: DataFrame) -> DataFrame:
            return rows

        rows = source()
        copy(rows)
        explicit(rows)
    assert states(run(dag)) == {"source": "success", "copy": "failed", "explicit": "success"}
