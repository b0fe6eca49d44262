"""Run a statement in Spark's SQL on tables of lakes: `run_sql`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import ConfigError, UnsupportedStatementError
from ducklake_orch.spark.sql.run_query import Args, run_query
from ducklake_orch.spark.sql.statement import Node, parse_statement
from ducklake_orch.spark.sql.table_lookup import TableLookup

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_orch.facade.lake_base import LakeBase

# The call that does what a statement means, by its kind in the parse tree.
_CALLS = {
    "Insert": 'lake.write(lake.sql(spark, "SELECT …"), "table", mode="append")',
    "Update": 'lake.update("table", {"column": "expression"}, "condition")',
    "Delete": 'lake.delete("table", "condition")',
    "Merge": 'lake.merge(source, "table", keys=["key"])',
    "TruncateTable": 'lake.truncate("table")',
    "Create": 'lake.create_table("table", schema)',
    "Drop": 'lake.drop_table("table")',
}


def run_sql(
    lake: "LakeBase",
    spark: "SparkSession",
    text: str,
    args: Args,
    lakes: "Mapping[str, LakeBase]",
    frames: Mapping[str, Any],
    prepare: Callable[[TableName], None] | None = None,
) -> "DataFrame":
    """Run a statement.

    Args:
        lake: The lake of names without a lake.
        spark: The session, classic or Connect.
        text: The statement.
        args: Its parameters.
        lakes: Further lakes, by the names that the statement uses.
        frames: Frames that the statement can name.
        prepare: Called with each table that the statement may read, before it is looked up.
    """
    names = {lake.config.name: lake, **lakes}
    if len({folded(name) for name in names}) < len(names):
        raise ConfigError("Two lakes have the same name in the statement.", remedy="Rename one in `lakes`.")
    statement = parse_statement(text, frames)
    if not isinstance(statement.tree, exp.Query | exp.Values):
        raise UnsupportedStatementError("`sql` runs queries only.", remedy=_call_instead(statement.tree))
    lookup = TableLookup(spark, lake, names, frames, prepare)
    return run_query(lookup, statement, args)


def _call_instead(tree: Node) -> str:
    call = _CALLS.get(type(tree).__name__)
    return "Run the statement in DuckDB's SQL, by `lake.execute`." if call is None else f"Call `{call}`."
