"""Run a statement in Spark's SQL on tables of lakes: `run_sql`."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import ConfigError
from ducklake_orch.spark.sql.call_statement import CallStatement
from ducklake_orch.spark.sql.clauses import altered_layout_of
from ducklake_orch.spark.sql.ddl_statement import DdlStatement
from ducklake_orch.spark.sql.run_query import Args, run_query
from ducklake_orch.spark.sql.show_statement import ShowStatement
from ducklake_orch.spark.sql.statement import Statement, is_command, parse_statement
from ducklake_orch.spark.sql.statement_scope import StatementScope
from ducklake_orch.spark.sql.table_lookup import TableLookup
from ducklake_orch.spark.sql.write_statement import WriteStatement

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ducklake_orch.facade.lake_base import LakeBase


def run_sql(
    lake: "LakeBase",
    spark: "SparkSession",
    text: str,
    args: Args,
    lakes: "Mapping[str, LakeBase]",
    frames: Mapping[str, Any],
    prepare: Callable[[TableName], None] | None = None,
    verbs: Callable[[str], Any] | None = None,
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
        verbs: Returns the object whose verbs change the lake of a name; by default the lake itself.
    """
    names = {lake.config.name: lake, **lakes}
    if len({folded(name) for name in names}) < len(names):
        raise ConfigError("Two lakes have the same name in the statement.", remedy="Rename one in `lakes`.")
    # sqlglot does not parse PARTITION FIELD and WRITE ORDERED BY.
    is_layout = altered_layout_of(text) is not None
    statement = Statement(text, exp.Command(this="ALTER"), (), False) if is_layout else parse_statement(text, frames)
    lookup = TableLookup(spark, lake, names, frames, prepare)
    if isinstance(statement.tree, exp.Query | exp.Values):
        return run_query(lookup, statement, args)
    scope = StatementScope(lookup, statement, args, verbs or names.__getitem__)
    if isinstance(statement.tree, exp.Describe) or is_command(statement.tree, "SHOW"):
        return ShowStatement(scope).run()
    if is_command(statement.tree, "CALL"):
        return CallStatement(scope).run()
    defines = isinstance(statement.tree, exp.Create | exp.Drop | exp.Alter | exp.Comment | exp.Command)
    return scope.result(DdlStatement(scope).run() if defines else WriteStatement(scope).run())
