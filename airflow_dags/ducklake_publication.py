"""A fact table and its summary, checked together and published in one snapshot.

After a failed check, nothing changes for readers. `ducklake-orch stages` lists what is staged.
"""

from typing import Any

from airflow.providers.common.sql.operators.sql import SQLColumnCheckOperator, SQLTableCheckOperator
from airflow.sdk import DAG, task

from ducklake_orch.airflow import DuckLakeHook, publication_task_group

with (
    DAG("ducklake_publication", schedule=None, catchup=False, tags=["ducklake"], doc_md=__doc__),
    publication_task_group("shop"),
):

    @task.ducklake(table="shop.sales")
    def sales() -> Any:
        """A thousand sales."""
        return DuckLakeHook().get_df(
            "SELECT range AS sale_id, range % 4 AS shop_id, range / 10 AS amount FROM range(1000)"
        )

    @task.ducklake(table="shop.totals", read="pandas")
    def totals(sales: Any) -> Any:
        """Sales of each shop."""
        return sales.groupby("shop_id", as_index=False).agg(sales=("sale_id", "count"), amount=("amount", "sum"))

    amounts = SQLColumnCheckOperator(
        task_id="amounts",
        conn_id="ducklake_default",
        table="shop.sales",
        column_mapping={"amount": {"min": {"geq_to": 0}, "null_check": {"equal_to": 0}}},
    )
    sums = SQLTableCheckOperator(
        task_id="sums",
        conn_id="ducklake_default",
        table="shop.totals",
        checks={"of_all_sales": {"check_statement": "sum(sales) = (SELECT count(*) FROM shop.sales)"}},
    )
    sold = sales()
    totals(sold) >> sums
    sold >> amounts
