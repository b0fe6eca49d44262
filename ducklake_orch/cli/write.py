"""`ducklake-orch write`: writes a query or Parquet files to a table with Spark. `spark-submit` can run it, too."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ducklake_orch.cli.authorship import Author, Message, commit_info
from ducklake_orch.cli.completion import (
    DISTRIBUTIONS,
    ENGINES,
    MODES,
    OUTSIDE,
    SCHEMA_EVOLUTION,
    STRATEGIES,
    listed,
    one_of,
)
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show
from ducklake_orch.cli.pipes import pipes
from ducklake_orch.cli.still_running import still_running
from ducklake_orch.engine.quoting import table_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DATA, _HOW, _MERGE = "Data", "Write options", "Merge options"


def write(
    options: LakeOptions,
    table: Annotated[str, typer.Argument(help="`table` or `schema.table`.")],
    mode: Annotated[str, typer.Option(help=f"{listed(MODES)}.", autocompletion=one_of(MODES))],
    query: Annotated[
        str | None, typer.Option("--sql", help="A query in Spark's SQL.", rich_help_panel=_DATA, show_default=False)
    ] = None,
    parquet: Annotated[
        list[str] | None,
        typer.Option(help="Parquet files or folders; repeat for more.", rich_help_panel=_DATA, show_default=False),
    ] = None,
    partition_by: Annotated[
        list[str] | None,
        typer.Option(help="A key of a new table, such as `day(ts)`; repeat for more.", rich_help_panel=_HOW),
    ] = None,
    sort_by: Annotated[
        list[str] | None, typer.Option(help="A sort key of a new table; repeat for more.", rich_help_panel=_HOW)
    ] = None,
    key: Annotated[
        list[str] | None,
        typer.Option(help="A column that identifies the rows of `merge`; repeat for more.", rich_help_panel=_HOW),
    ] = None,
    strategy: Annotated[
        str | None,
        typer.Option(
            help=f"How `merge` merges: {listed(STRATEGIES)}. By default `upsert`.",
            autocompletion=one_of(STRATEGIES),
            rich_help_panel=_MERGE,
        ),
    ] = None,
    merge_key: Annotated[
        list[str] | None,
        typer.Option(help="A further column whose rows `delete-insert` or `scd2` replace.", rich_help_panel=_MERGE),
    ] = None,
    boundary: Annotated[
        str | None,
        typer.Option(help="For `scd2`, when the data became valid: a time or a column.", rich_help_panel=_MERGE),
    ] = None,
    retire_absent: Annotated[
        bool | None,
        typer.Option(help="For `scd2`, whether rows end that the data do not have.", rich_help_panel=_MERGE),
    ] = None,
    hard_delete: Annotated[
        str | None, typer.Option(help="The column that marks rows to delete.", rich_help_panel=_MERGE)
    ] = None,
    deduplicate_by: Annotated[
        list[str] | None,
        typer.Option(
            help="Of rows with the same keys, take the first in this order, such as `changed_at DESC`.",
            rich_help_panel=_MERGE,
        ),
    ] = None,
    where: Annotated[
        str | None, typer.Option(help="Condition of the rows that `replace_where` replaces.", rich_help_panel=_HOW)
    ] = None,
    outside: Annotated[
        str,
        typer.Option(
            help=f"Data rows that do not meet --where: {listed(OUTSIDE)}.",
            autocompletion=one_of(OUTSIDE),
            rich_help_panel=_HOW,
        ),
    ] = "error",
    schema_evolution: Annotated[
        str,
        typer.Option(
            help=f"{listed(SCHEMA_EVOLUTION)}.", autocompletion=one_of(SCHEMA_EVOLUTION), rich_help_panel=_HOW
        ),
    ] = "error",
    engine: Annotated[
        str, typer.Option(help=f"{listed(ENGINES)}.", autocompletion=one_of(ENGINES), rich_help_panel=_HOW)
    ] = "auto",
    distribution: Annotated[
        str, typer.Option(help=f"{listed(DISTRIBUTIONS)}.", autocompletion=one_of(DISTRIBUTIONS), rich_help_panel=_HOW)
    ] = "auto",
    expect_snapshot: Annotated[
        int | None, typer.Option(help="Refuse if the replaced rows changed after this snapshot.", rich_help_panel=_HOW)
    ] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="Key that all attempts at the same work share.", rich_help_panel=_HOW)
    ] = None,
    author: Author = None,
    message: Message = None,
) -> None:
    """Write a query or Parquet files to a table with Spark; with --json, the result is one JSON document."""
    from ducklake_orch.spark import local_session

    if (query is None) == (not parquet):
        raise typer.BadParameter("Give either --sql or --parquet.")
    lake = options.open()
    still_running.stop()  # Spark shows its own progress
    with pipes() as dagster:
        commit = dagster.commit if dagster and author is message is None else commit_info(author, message)
        if dagster and idempotency_key is None:
            idempotency_key = dagster.idempotency_key(str(table_name(table)), mode, query, parquet, key, where)
        result = lake.write(
            _frame(local_session("ducklake-orch write"), query, parquet or []),
            table,
            mode=mode,
            keys=key or None,
            strategy=strategy,
            merge_key=merge_key or None,
            boundary=boundary,
            retire_absent=retire_absent,
            hard_delete=hard_delete,
            deduplicate_by=deduplicate_by or None,
            partition_by=partition_by or None,
            sort_by=sort_by or None,
            where=where,
            outside=outside,
            schema_evolution=schema_evolution,
            engine=engine,
            distribution=distribution,
            expect_snapshot=expect_snapshot,
            idempotency_key=idempotency_key,
            commit=commit,
        )
        if dagster:
            dagster.report(lake, table_name(table), result)
    if options.json:
        print_json(result)
    else:
        show(str(result))


def _frame(spark: "SparkSession", query: str | None, parquet: list[str]) -> "DataFrame":
    from ducklake_orch.errors import StatementError

    refusal: Any
    try:
        return spark.sql(query) if query is not None else spark.read.parquet(*parquet)
    except Exception as error:
        if not type(error).__module__.startswith("pyspark"):
            raise
        refusal = StatementError(f"Spark cannot read the input: {str(error).partition(chr(10) + 'JVM')[0].strip()}")
    raise refusal
