"""The IO manager: stores outputs as tables of a lake, and reads tables as inputs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ducklake_orch.config.nearest import nearest
from ducklake_orch.dagster import event_metadata
from ducklake_orch.dagster.configuration import Resource
from ducklake_orch.dagster.event_metadata import failures
from ducklake_orch.dagster.frame_lineage import frame_lineage
from ducklake_orch.dagster.input_read import InputRead
from ducklake_orch.dagster.io_context import may_be_none, slice_of, wanted_frames
from ducklake_orch.dagster.metadata_settings import WRITE_OPTIONS, refuse_misspelt
from ducklake_orch.dagster.output_run import commit_info, has_step, idempotency_key, known
from ducklake_orch.dagster.resource import LakeResource
from ducklake_orch.dagster.run_stage import PUBLISH, RunStage, find_run_stage, open_run_stage
from ducklake_orch.dagster.table_names import (
    DEFAULT_SCHEMA,
    TableNames,
    at_run_time,
    definition_of,
    described,
    described_input,
)
from ducklake_orch.dagster.table_owners import refuse_other_owners, stored_with
from ducklake_orch.dagster.table_properties import TableProperties, descriptions_in
from ducklake_orch.dagster.whole_run import has_staged_all
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import (
    CommitConflictError,
    ConfigError,
    DataError,
    ObjectNotFoundError,
    SnapshotChangedError,
)
from ducklake_orch.host_partitions import (
    PartitionColumn,
    Slice,
    condition,
    conjunction,
    partition_transforms,
    written_columns,
)
from ducklake_orch.host_partitions.empty_frames import latest_snapshot, not_created, typed
from ducklake_orch.host_partitions.frame_kinds import can_repeat, readable_twice, types_of
from ducklake_orch.host_partitions.metadata_keys import table_address
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo, StageInfo, WriteResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPLACE_WHERE = '"write_mode": "replace_where"'


class DuckLakeIOManager(Resource, dg.ConfigurableIOManagerFactory):  # type: ignore[type-arg]  # of LakeIOManager
    """Stores the outputs of assets and ops in a lake, and loads them as inputs.

    The last part of an asset's key names the table. Its schema is `schema` in the asset's metadata, else `schema` of
    the IO manager, else the part of the key before the table. `partition_expr` in the metadata of a partitioned asset
    names the column that holds its keys. One materialization replaces exactly the rows of its partitions, in one
    snapshot.

    Further metadata of an asset are settings of the write, such as `write_mode`, `merge_keys` and `comment`. Output
    metadata at run time can set all of them except the table's name. Metadata of an input can set `columns`, `where`,
    `snapshot` and `as_of`. A misspelt setting is an error.

    Outputs can be Spark, pandas, Polars and Arrow frames and DuckDB relations. An input has the type of its annotation;
    `Optional[…]`, `list[…]` and `dict[str, …]` of a frame are possible, too.
    """

    lake: dg.ResourceDependency[LakeResource]
    schema_: str = Field(
        default=DEFAULT_SCHEMA,
        alias="schema",
        description="Schema of all assets whose metadata name none; with `main`, the keys of assets name schemas.",
    )
    schema_prefix: str = Field(default="", description="Begins the name of every schema, such as `dev_alice_`.")
    publish: str = Field(
        default="immediately",
        description="When readers see outputs: `immediately`; all of a `run` together; or `after_checks`, when the"
        " asset of `ducklake_publication` runs.",
    )
    stage_ttl: str = Field(
        default="7 days", description="How long outputs wait to be published, after which maintenance discards them."
    )

    @property
    def table_names(self) -> TableNames:
        """The rule that names tables. While definitions load, a field can still be an environment variable."""
        schema, prefix = (
            field.get_value() if isinstance(field, dg.EnvVar) else field for field in (self.schema_, self.schema_prefix)
        )
        return TableNames(schema or DEFAULT_SCHEMA, prefix or "")

    def create_io_manager(self, context: dg.InitResourceContext) -> dg.IOManager:
        """Return the IO manager of a run."""
        if self.publish not in PUBLISH:
            raise ConfigError(f"`publish` = {self.publish!r} is unknown.", remedy=nearest(self.publish, PUBLISH))
        return LakeIOManager(self.lake, self.table_names, self.publish, self.stage_ttl)


class LakeIOManager(dg.IOManager):
    """The IO manager of a run.

    Args:
        resource: The lake.
        names: The rule that names tables.
        publish: When readers see outputs.
        stage_ttl: How long outputs wait to be published.
    """

    def __init__(
        self, resource: LakeResource, names: TableNames, publish: str = "immediately", stage_ttl: str = "7 days"
    ) -> None:
        self._resource = resource
        self._names = names
        self._publish = publish
        self._stage_ttl = stage_ttl

    def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
        """Write an output as one snapshot."""
        what, part = described(context), slice_of(context)
        table = self._names.of(context, definition_of(context))
        details: dict[str, Any] = {"table": str(table)}
        with failures(f"{what} was not written to `{table}`", details):
            lake, settings = self._resource.lake(), at_run_time(context)
            output = _Output(context, lake, table, part, settings, details)
            is_staged = self._publish != "immediately" and has_step(context) and context.has_asset_key
            if obj is None:
                _refuse_none(context)
                context.log.warning(f"{what} returned None: `{table}` stays as it is.")
                if is_staged:
                    self._stage(output, None)
                return
            refuse_misspelt(what, settings)
            unowned_at = refuse_other_owners(context, lake, table, settings, self._names)
            if is_staged:
                self._stage(output, obj)
                return
            data = readable_twice(obj)
            rows = typed(data, output.stored_types)
            if rows is None:
                context.log.warning(not_created(what, table, data))
                output.report_nothing()
                return
            is_new = not output.set_options()
            try:
                result = output.write(rows, unowned_at)
            except SnapshotChangedError as error:  # another asset wrote (refused below), or another run of this asset
                refuse_other_owners(context, lake, table, settings, self._names)
                if not can_repeat(rows):
                    message = f"Another run wrote `{table}`, and the rows of this one can be read only once."
                    raise CommitConflictError(message, remedy="Run the step again.") from error
                result = output.write(rows)
            output.set_properties(is_new)
            output.report(result, frame_lineage(context, lake, obj, self._names, settings))

    def _stage(self, output: "_Output", obj: Any) -> None:
        """Add an output to the stage of its run, and publish the stage if a run is published as soon as it is whole."""
        context, step = output.context, output.context.step_context
        manager = self._own_stage(context)
        staged = open_run_stage(output.lake, step.dagster_run, step.instance, manager, self._stage_ttl)
        key = idempotency_key(context, output.part)
        staged.refuse_late(described(context), key)
        is_new = obj is not None and not output.set_options()
        with staged.stage.writing(str(output.table), output.mode, key) as tx:
            in_stage = replace(output, lake=tx.reader(str(output.table)), write_to=tx.write, stage=staged.info)
            data = None if obj is None else readable_twice(obj)
            rows = None if obj is None else typed(data, in_stage.stored_types)
            if rows is not None:
                result = in_stage.write(rows)
                if is_new:
                    in_stage.set_options()
                lineage = frame_lineage(context, output.lake, obj, self._names, output.settings)
                in_stage.report(replace(result, snapshot_id=in_stage.lake.snapshots(1)[0].snapshot_id), lineage)
            else:
                if obj is not None:
                    context.log.warning(not_created(described(context), output.table, data))
                in_stage.report_nothing()
        if tx.result is not None and tx.result.replayed:
            staged.mark(output.table, key)
        if self._publish == "run" and has_staged_all(context, staged, self._names):
            staged.publish("all outputs", step.job_def.asset_layer.asset_graph, context.log)

    def load_input(self, context: dg.InputContext) -> Any:
        """Read an input: the partitions that are mapped to it, or the whole table."""
        upstream = context.upstream_output
        settings = definition_of(upstream if upstream is not None else context)
        table, given = self._names.of(context, settings), definition_of(context)
        with failures(f"{described_input(context)} was not read from `{table}`", {"table": str(table)}):
            refuse_misspelt(described_input(context), given, of_input=True)
            wanted, lake = wanted_frames(context), self._resource.lake()
            read = InputRead(context, lake, table, settings.get("partition_expr"), given, self._session)
            if (staged := self._staged(context, lake, table)) is None:
                return read.frames(wanted)
            with staged.stage.reader(str(table)) as in_stage:
                return replace(read, lake=in_stage).frames(wanted)

    def _own_stage(self, context: dg.OutputContext | dg.InputContext) -> str | None:
        """Return the key of the IO manager if it publishes its outputs by itself: it must publish no others."""
        return stored_with(context) if self._publish == "run" else None

    def _staged(self, context: dg.InputContext, lake: DuckLake, table: TableName) -> RunStage | None:
        """Return the stage of the run if it has the table: an input gets what other steps of the run have staged."""
        step = known(context, "step_context")
        if self._publish == "immediately" or step is None or not context.has_asset_key:
            return None
        manager = self._own_stage(context)
        staged = find_run_stage(lake, step.dagster_run, step.instance, manager)
        return staged if staged is not None and staged.has(table) else None

    def _session(self) -> "SparkSession":
        """Return the Spark session. Callers ask only when they need one, so that none is started in vain."""
        return self._resource.spark_session


def _refuse_none(context: dg.OutputContext) -> None:
    """Refuse None as an output, unless its annotation allows it."""
    if not may_be_none(context):
        raise ConfigError(
            f"{described(context)} returned None.",
            remedy="Return a frame. Annotate an asset that never stores anything with `-> None`, and one that"
            " sometimes stores nothing with `Optional[…]` of a frame.",
        )


@dataclass
class _Output:
    """The write of one output."""

    context: dg.OutputContext
    lake: DuckLake
    table: TableName
    part: Slice | None
    settings: Mapping[str, Any]
    details: dict[str, Any]
    columns: Mapping[str, PartitionColumn] | None = None
    write_to: "Callable[..., WriteResult] | None" = None
    stage: StageInfo | None = None

    @property
    def mode(self) -> str:
        """The write mode in the settings."""
        return str(self.settings.get("write_mode", "overwrite"))

    def write(self, data: Any, expect_snapshot: int | None = None) -> WriteResult:
        """Write the frame. Refuse it if the rows that it replaces have changed since `expect_snapshot`."""
        mode = self.mode
        options = {name: self.settings[key] for key, name in WRITE_OPTIONS.items() if key in self.settings}
        if self.part is not None:
            what, expression, stored = (
                described(self.context),
                self.settings.get("partition_expr"),
                self.stored_types(),
            )
            self.columns = written_columns(what, self.part.dimensions, expression, stored, lambda: types_of(data))
            if not stored:
                options.setdefault("partition_by", partition_transforms(self.part, self.columns))
        where = self._replaced(mode)
        options |= {"mode": "replace_where" if where is not None else mode, "where": where}
        try:
            if self.write_to is not None:
                return self.write_to(data, str(self.table), **options)
            return self.lake.write(
                data,
                str(self.table),
                expect_snapshot=expect_snapshot,
                idempotency_key=idempotency_key(self.context, self.part),
                commit=self._commit(),
                **options,
            )
        except DataError:
            self.details["schema_difference"] = event_metadata.difference(types_of(data), self.stored_types())
            raise

    def _commit(self) -> CommitInfo:
        commit = commit_info(self.context, described(self.context), self.part)
        author, message = self.settings.get("commit_author"), self.settings.get("commit_message")
        return replace(commit, author=author or commit.author, message=message or commit.message)

    def set_options(self) -> bool:
        """Set the table's options before the write, so that they hold for it. Return whether the table exists."""
        return TableProperties(self.lake, self.table, self.settings).set_options()

    def set_properties(self, is_new: bool) -> None:
        """Set the table's comments, unless it already has them, and the options of a new table."""
        properties = TableProperties(self.lake, self.table, self.settings)
        properties.set_comments(self._commit(), self.context.log)
        if is_new:
            properties.set_options()

    def report_nothing(self) -> None:
        """Add the figures of an output that is empty and created no table to the event log."""
        metadata: dict[str, Any] = {
            "dagster/table_name": table_address(self.lake, self.table),
            "ducklake/rows_written": 0,
            "ducklake/snapshot_id": latest_snapshot(self.lake),
            "dagster/row_count" if self.part is None else "dagster/partition_row_count": 0,
        }
        if self.part is not None:
            metadata |= event_metadata.partition_keys(self.part)
        self.context.add_output_metadata(self._with_stage(metadata))

    def _with_stage(self, metadata: dict[str, Any]) -> dict[str, Any]:
        return metadata if self.stage is None else event_metadata.staged(metadata, self.table, self.stage)

    def report(self, result: WriteResult, lineage: dg.TableColumnLineage | None) -> None:
        """Add the figures of the write to the event log.

        Args:
            result: The write.
            lineage: The column lineage that the frame shows; one in the settings replaces it.
        """
        metadata = event_metadata.write_metadata(self.lake, self.table, result, descriptions_in(self.settings))
        metadata = self._with_stage(metadata)
        if (lineage := self.settings.get(event_metadata.LINEAGE, lineage)) is not None:
            metadata[event_metadata.LINEAGE] = lineage
        where = None
        if self.part is not None and self.columns is not None:
            where = condition(self.part, self.columns)
            metadata |= event_metadata.partition_keys(self.part)
            counts = self._counts(result, self.part, self.columns)
            if len(counts) == 1:
                metadata["dagster/partition_row_count"] = next(iter(counts.values()))
            elif has_step(self.context):
                for key, rows in counts.items():
                    self.context.step_context.add_asset_metadata(
                        metadata={"dagster/partition_row_count": rows},
                        asset_key=self.context.asset_key,
                        partition_key=key,
                    )
        else:
            metadata["dagster/row_count"] = self.lake.table(str(self.table)).count(snapshot=result.snapshot_id)
        if shown := self.settings.get("preview"):
            metadata["ducklake/preview"] = event_metadata.preview(
                self.lake, self.table, result.snapshot_id, where, 5 if shown is True else int(shown)
            )
        self.context.add_output_metadata(metadata)

    def _replaced(self, mode: str) -> str | None:
        """Return the condition of the rows that the output replaces; None if the write mode alone decides."""
        where = self.settings.get("where")
        if where is not None and "write_mode" not in self.settings:
            raise ConfigError("`where` alone replaces nothing.", remedy="Add this to the metadata: " + _REPLACE_WHERE)
        if mode not in ("overwrite", "replace_where"):
            return None
        partitions = condition(self.part, self.columns) if self.part is not None and self.columns is not None else None
        if mode == "overwrite":
            return partitions
        if where is None and partitions is not None:
            return partitions
        if not isinstance(where, str):
            raise ConfigError("`write_mode` = 'replace_where' needs `where`.", remedy="Add `where` to the metadata.")
        return conjunction(partitions, where)

    def stored_types(self) -> dict[str, str]:
        """Return the types of the table's columns by name; none if it does not exist."""
        try:
            return {column.name: column.type for column in self.lake.table(str(self.table)).schema()}
        except ObjectNotFoundError:
            return {}

    def _counts(self, result: WriteResult, part: Slice, columns: Mapping[str, PartitionColumn]) -> dict[str, int]:
        is_whole = result.mode == "replace_where" and self.settings.get("where") is None
        if len(part.cells) == 1 and is_whole and not result.replayed:
            return {part.texts[0]: result.rows_written}
        return event_metadata.rows_per_partition(self.lake, self.table, result.snapshot_id, part, columns)
