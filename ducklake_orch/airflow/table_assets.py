"""The default outlets and inlets of tasks: the assets of the tables that they write and read."""

from collections.abc import Iterable, Mapping
from typing import Any

from airflow.sdk import Asset, XComArg
from airflow.sdk.bases.operator import get_merged_defaults
from airflow.sdk.definitions._internal.contextmanager import DagContext, TaskGroupContext

from ducklake_orch.airflow.assets import SCHEME, ducklake_asset
from ducklake_orch.airflow.hook import DEFAULT_CONN_ID


def assets_of_tables(tables: Iterable[Any], ducklake_conn_id: str) -> list[Asset]:
    """Return the assets of tables, except of those whose name is a template, because a DAG cannot know them."""
    named = [table for table in tables if isinstance(table, str) and "{{" not in f"{table}{ducklake_conn_id}"]
    return [ducklake_asset(table, lake=ducklake_conn_id) for table in dict.fromkeys(named)]


def assets_of_arguments(arguments: Any) -> list[Asset]:
    """Return the assets of the tables that other tasks write and pass on as arguments."""
    outlets = [outlet for operator, _ in XComArg.iter_xcom_references(arguments) for outlet in operator.outlets]
    tables = (outlet for outlet in outlets if isinstance(outlet, Asset) and outlet.uri.startswith(f"{SCHEME}://"))
    return list({table.uri: table for table in tables}.values())


def with_outlet(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a mapped task, with its table's asset as outlet unless they have outlets.

    A DAG has no operator of a mapped task that could set them.
    """
    given = dict(arguments)
    dag = given.get("dag") or DagContext.get_current()
    group = given.get("task_group") or TaskGroupContext.get_current(dag)
    defaults, _ = get_merged_defaults(dag, group, None, given.get("default_args"))
    conn_id = given.get("ducklake_conn_id", defaults.get("ducklake_conn_id", DEFAULT_CONN_ID))
    return {"outlets": assets_of_tables([given.get("table", defaults.get("table"))], conn_id)} | given
