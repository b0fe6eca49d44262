"""Runs Airflow operators as a worker does, without Airflow's database."""

from typing import Any
from uuid import uuid4

import pyarrow as pa
from airflow.sdk import BaseOperator

from ducklake_orch.airflow import (
    DuckLakeHook,
    DuckLakeWriteOperator,
)

ROWS = pa.table({"day": ["2024-01-01", "2024-01-01", "2024-01-02"], "n": [1, 2, 3]})


class Ti:
    """The attributes of a running task instance that operators read."""

    def __init__(self, task_id: str, run_id: str = "run", try_number: int = 1, max_tries: int = 0) -> None:
        self.dag_id, self.task_id, self.run_id, self.map_index = "dag", task_id, run_id, -1
        self.try_number, self.max_tries, self.id = try_number, max_tries, uuid4()


def execute(
    operator: BaseOperator, run_id: str = "run", try_number: int = 1, cleared: bool = False, **context: Any
) -> Any:
    """Execute an operator as a worker does, without Airflow's database."""
    ti = Ti(operator.task_id, run_id, try_number, (operator.retries or 0) + (try_number if cleared else 0))
    whole: Any = {"ti": ti, **context}
    return operator.execute(whole)


def write(rows: Any = ROWS, **arguments: Any) -> DuckLakeWriteOperator:
    return DuckLakeWriteOperator(task_id="write", table="t", python_callable=lambda: rows, **arguments)


def stored(table: str = "t", columns: str = "n") -> list[Any]:
    return [row[0] for row in DuckLakeHook().get_records(f"SELECT {columns} FROM {table} ORDER BY ALL")]


def day(text: str, *numbers: int) -> pa.Table:
    return pa.table({"day": [text] * len(numbers), "n": list(numbers)})
