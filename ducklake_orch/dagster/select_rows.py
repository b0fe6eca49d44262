"""Runs the SELECT of an SQL asset in a lake, with the partitions of the run as parameters."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import NamedTuple

import dagster as dg
import duckdb

from ducklake_orch.catalog.writing import Source
from ducklake_orch.config.nearest import nearest
from ducklake_orch.dagster.run_stage import find_run_stage
from ducklake_orch.dagster.select_file import SelectFile
from ducklake_orch.dagster.select_lineage import Copied, TableRef, copied_columns
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import TableName, folded, identifier, literal
from ducklake_orch.errors import ConfigError, DuckLakeOrchError
from ducklake_orch.lake import DuckLake

KEY = "partition_key"
# The limits of a time window: as times on the clock of the definition's zone, and as moments. The zone of the session
# stays UTC: in another zone, DuckDB 1.5.5 drops a condition like `day < TIMESTAMPTZ '…'` on a DATE if the column's
# statistics, which it converts as if the zone were UTC, seem to prove it.
_CLOCK = ("partition_start", "partition_end")
_MOMENTS = ("partition_start_utc", "partition_end_utc")


def refuse_unknown_parameters(file: SelectFile, partitions: dg.PartitionsDefinition | None) -> None:
    """Refuse parameters that the partitions of an asset do not provide.

    Raises:
        ConfigError: Names the first one, and the nearest parameter.
    """
    known = [] if partitions is None else [KEY]
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        known += [f"{KEY}_{folded(dimension.name)}" for dimension in partitions.partitions_defs]
    if _time_windows(partitions) is not None:
        known += [*_CLOCK, *_MOMENTS]
    for name in sorted(file.parameters):
        if name not in known:
            remedy = nearest(name, known) if known else "The asset has no partitions, and so no parameters."
            raise ConfigError(f"The file `{file.path}` has an unknown parameter `${name}`.", remedy=remedy)


def _time_windows(partitions: dg.PartitionsDefinition | None) -> dg.TimeWindowPartitionsDefinition | None:
    """Return the definition of the time windows of partitions, or of one of their dimensions."""
    definitions = [partitions]
    if isinstance(partitions, dg.MultiPartitionsDefinition):
        definitions = [dimension.partitions_def for dimension in partitions.partitions_defs]
    return next((found for found in definitions if isinstance(found, dg.TimeWindowPartitionsDefinition)), None)


class SelectedRows(NamedTuple):
    """The result of a SELECT.

    Attributes:
        rows: The rows, which are computed while they are read.
        copied: The columns that are copies of a table's column, with that column.
    """

    rows: duckdb.DuckDBPyRelation
    copied: Mapping[str, Copied]


@contextmanager
def selected_rows(
    lake: DuckLake, file: SelectFile, schema: str, context: dg.AssetExecutionContext, io_manager: str
) -> Iterator[SelectedRows]:
    """Run the SELECT of a file for a block, in which its rows can be read. It sees what other steps have staged.

    Args:
        lake: The lake.
        file: The file.
        schema: The schema of tables that are named without one.
        context: The context of the asset, which has the partitions.
        io_manager: The key of the IO manager that stores the rows.
    """
    query = file.with_values(_values(file, context) if file.parameters else {})
    with ExitStack() as stack:
        found = (find_run_stage(lake, context.run, context.instance, manager) for manager in (None, io_manager))
        staged = next((stage for stage in found if stage is not None), None)
        is_staged = staged is not None and staged.info.status == "open"
        if staged is not None and is_staged:
            names = [str(TableName(given or schema, table)) for given, table in sorted(file.tables, key=str)]
            lake = stack.enter_context(staged.stage.reader(*names))
        con = stack.enter_context(lake.connect(read_only=True))
        failure: DuckLakeOrchError | None = None
        try:
            if schema != "main" and any(given is None for given, _ in file.tables):
                con.execute(f"USE {identifier(lake.config.alias)}.{identifier(schema)}")
            rows = con.sql(query)
            copied = copied_columns(file.select, rows.columns, lambda ref: _columns(con, ref))
            is_kept = is_staged or dialect_of(lake.config).attached_by_one_process
            if is_kept:
                rows = _kept(rows)
        except duckdb.Error as error:
            failure = classify(error, lake.config, f"Running `{file.path}` failed")
        if failure is not None:
            raise failure
        if not is_kept:
            yield SelectedRows(rows, copied)
            return
    yield SelectedRows(rows, copied)


def _columns(con: duckdb.DuckDBPyConnection, ref: TableRef) -> list[str]:
    """Return the columns of a table or view."""
    return con.sql(f"FROM {'.'.join(identifier(name) for name in ref if name is not None)}").columns


def _kept(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the rows in a database of their own: a DuckDB catalog or a stage cannot be read while it is written."""
    source, memory = Source(rows), duckdb.connect()
    memory.register("source", source.reader())
    memory.execute(f"CREATE TABLE kept AS FROM {source.arriving('source')}")
    return memory.table("kept")


def _values(file: SelectFile, context: dg.AssetExecutionContext) -> Mapping[str, str]:
    """Return the values of the parameters that a file has, as SQL."""
    values: dict[str, str] = {}
    if file.parameters & {*_CLOCK, *_MOMENTS}:
        window = context.partition_time_window
        values |= {name: f"TIMESTAMPTZ {literal(time)}" for name, time in zip(_MOMENTS, window, strict=True)}
        values |= {name: _on_clock(file, name, time) for name, time in zip(_CLOCK, window, strict=True)}
    if file.parameters - {*_CLOCK, *_MOMENTS}:
        if len(context.partition_keys) > 1:
            raise ConfigError(
                f"The file `{file.path}` has the parameter `${KEY}`, but the run has {len(context.partition_keys)}"
                " partitions.",
                remedy=f"Start a run for each partition, or use `${_CLOCK[0]}` and `${_CLOCK[1]}` instead.",
            )
        key = context.partition_key
        values[KEY] = literal(key)
        if isinstance(key, dg.MultiPartitionKey):
            values |= {f"{KEY}_{folded(name)}": literal(part) for name, part in key.keys_by_dimension.items()}
    return values


def _on_clock(file: SelectFile, name: str, time: datetime) -> str:
    """Return the limit of a window as a time on the clock of its zone, as SQL."""
    if name in file.parameters and time.replace(fold=0).utcoffset() != time.replace(fold=1).utcoffset():
        raise ConfigError(
            f"`${name}` of `{file.path}` is {time.replace(tzinfo=None)}, which the clock of the zone shows twice.",
            remedy=f"Compare a TIMESTAMPTZ column with `${name}_utc`.",
        )
    return f"TIMESTAMP {literal(time.replace(tzinfo=None))}"
