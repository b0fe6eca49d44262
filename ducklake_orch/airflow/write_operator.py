"""Operators that write a frame, a query or files to a table of a lake."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from ducklake_orch.airflow.assets import report
from ducklake_orch.airflow.base_operator import LakeOperator
from ducklake_orch.airflow.hook import DEFAULT_CONN_ID, DuckLakeHook
from ducklake_orch.airflow.lineage import lineage
from ducklake_orch.airflow.run_partition import Keys, Partitioning, given_keys
from ducklake_orch.airflow.run_stage import KEY, STAGE, STAGE_ID
from ducklake_orch.airflow.table_assets import assets_of_tables, with_outlet
from ducklake_orch.airflow.table_write import Writing, reference
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.airflow.task_spark import TaskSpark
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

# Arguments that functions get in addition to the context's variables, if they have such parameters.
GIVEN = ("spark", "partition_keys")


class TableWriter(LakeOperator):
    """Writes a frame to a table in one snapshot, once over all attempts of the task.

    The task returns a JSON reference to the rows: where they are and what the write did. A retried task that was killed
    or failed never appends twice. A cleared task that replaces rows replaces them again.

    Args:
        table: `table` or `schema.table`.
        mode: `append`, `merge`, `overwrite_partitions`, `replace_where`, `error`, `ignore`, or the default `overwrite`,
            which replaces the rows of the run's partitions, or all rows of an unpartitioned table.
        ducklake_conn_id: The connection to the lake.
        partition_expr: The column that holds the partition key, or an expression in DuckDB's SQL; for several
            dimensions a mapping from each dimension to one.
        partition_key: One key or several; by default the run's, else those of the writes that triggered it, else its
            data interval or logical date. A key of several dimensions joins their keys with `|`, sorted by the names of
            the dimensions.
        partition_window: The length of a key that is a time: `day`, `hour`, `15 minutes`; by default the precision of
            its text, or the data interval. A logical date means its day; for a column of times, only at midnight.
        partition_format: The format of such a key, for example `%Y%m%d`.
        partition_timezone: The zone of such keys.
        keys: The key columns of mode `merge`.
        merge_options: Further arguments of `DuckLake.merge`, such as `{"strategy": "scd2", "boundary": "{{ ds }}"}`.
        where: The condition of mode `replace_where`.
        outside: `drop` leaves out rows that are not of the replaced partitions or do not match `where`; `error` fails.
        partition_by: The partitioning of a new table; by default its partition keys.
        sort_by: Sort keys of a new table.
        schema_evolution: `error`, `add` or `promote`.
        idempotency_key: A key to use instead of the task's.
        stage: The name of a stage to add the rows to, instead of writing them; `publication_task_group` sets it.
        stage_ttl: How long a stage that the task begins is kept.
        **kwargs: Arguments of every operator; `outlets` is the table's asset by default, unless there is a stage.
    """

    template_fields = (
        *LakeOperator.template_fields,
        "table",
        "mode",
        "partition_key",
        "keys",
        "merge_options",
        "where",
        "idempotency_key",
        "stage",
    )

    def __init__(
        self,
        *,
        table: str,
        mode: str | None = None,
        ducklake_conn_id: str = DEFAULT_CONN_ID,
        partition_expr: str | Mapping[str, str] | None = None,
        partition_key: Keys = None,
        partition_window: str | None = None,
        partition_format: str | None = None,
        partition_timezone: str = "UTC",
        keys: Sequence[str] | None = None,
        merge_options: Mapping[str, Any] | None = None,
        where: str | None = None,
        outside: str = "error",
        partition_by: Sequence[str] | None = None,
        sort_by: Sequence[str] | None = None,
        schema_evolution: str = "error",
        idempotency_key: str | None = None,
        stage: str | None = None,
        stage_ttl: str = "7 days",
        **kwargs: Any,
    ) -> None:
        super().__init__(ducklake_conn_id=ducklake_conn_id, **kwargs)
        self.table = table
        self.mode = mode
        self.partition_expr = partition_expr
        self.partition_key = partition_key
        self._has_key = partition_key is not None
        self.partition_window = partition_window
        self.partition_format = partition_format
        self.partition_timezone = partition_timezone
        self.keys = keys
        if taken := next((name for name in ("keys", "mode") if name in (merge_options or {})), None):
            raise ConfigError(f"`merge_options` has `{taken}`.", remedy=f"Give it as an argument: `{taken}=…`.")
        self.merge_options = merge_options
        self.where = where
        self.outside = outside
        self.partition_by = partition_by
        self.sort_by = sort_by
        self.schema_evolution = schema_evolution
        self.idempotency_key = idempotency_key
        self.stage = stage
        self.stage_ttl = stage_ttl
        # Reported to OpenLineage after the task.
        self._read: list[str] = []
        self._written: dict[str, Any] | None = None
        if "outlets" not in kwargs and stage is None and not self.is_mapped_copy():
            self.outlets = assets_of_tables([table], ducklake_conn_id)

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Return the operator to expand over several values. Its outlet, too, is the table's asset by default."""
        return super().partial(**with_outlet(kwargs))

    def frame(self, context: Mapping[str, Any], spark: TaskSpark) -> Any:
        """Return the rows to write."""
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the table."""
        work = Work.of(context)
        with self.working(f"`{self.table}` was not written"), TaskSpark(lambda: self.hook.connected.spark) as spark:
            self._spark = spark
            self._refuse_run_without_column(context)
            stage = self.hook.staging if self.stage is not None else None
            part = self._partitioning.slice(f"Task `{work.task_id}`", self._keys(), context)
            keys = part.texts if part is not None else []
            rows = self.frame({**context, "partition_keys": keys}, spark)
            if stage is not None:
                return self._writing.add_to(stage, self.hook, rows, part, work)
            written = self._writing.write(self.hook, rows, part, work)
            report(context, self.outlets, written, keys)
            self._written = written
            return written

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> "OperatorLineage[Any, Any] | None":
        """Return for OpenLineage what the task read and wrote."""
        return lineage(self.hook, self._read, self._written) if self._written is not None else None

    @cached_property
    def hook(self) -> DuckLakeHook:
        """The hook of the connection and the stage."""
        return DuckLakeHook(ducklake_conn_id=self.ducklake_conn_id, stage=self.stage, stage_ttl=self.stage_ttl)

    def _keys(self) -> Keys:
        """Return the keys of the task; None if it takes those of its run."""
        return given_keys(self.partition_key, self._has_key)

    @property
    def _partitioning(self) -> Partitioning:
        return Partitioning(self.partition_expr, self.partition_window, self.partition_format, self.partition_timezone)

    @property
    def _writing(self) -> Writing:
        more = {
            **(self.merge_options or {}),
            "keys": self.keys,
            "where": self.where,
            "outside": self.outside,
            "partition_by": self.partition_by,
            "sort_by": self.sort_by,
            "schema_evolution": self.schema_evolution,
        }
        return Writing(str(self.table), self.mode, self._partitioning, self.idempotency_key, more)

    def _refuse_run_without_column(self, context: Context) -> None:
        """Refuse to replace a whole table by the rows of one partition."""
        key = context.get("partition_key")
        if key and self.partition_expr is None and self.mode is None:
            raise ConfigError(
                f"The run has the partition key {key!r}, but task `{self.task_id}` does not name its column.",
                remedy='Add partition_expr="<column>", or mode="overwrite" to replace all rows of the table.',
            )


class DuckLakeWriteOperator(TableWriter):
    """Writes the result of a function, the result of a Spark SQL query, or existing files.

    Args:
        python_callable: A function that returns a frame. It gets the context's variables that it has parameters for,
            the session as `spark`, and `partition_keys`, the partitions whose rows it must return.
        op_kwargs: Further arguments of the function.
        sql: A query in Spark SQL, which reads the tables in `views`.
        views: The tables of the lake that the query reads, by their names in `sql`. Their assets are the task's
            `inlets` by default.
        files: Parquet files or patterns to add. The files become the lake's own. The mode must be `append`, which is
            then the default.
        **kwargs: Arguments of `TableWriter`.
    """

    template_fields = (*TableWriter.template_fields, "op_kwargs", "sql", "views", "files")
    template_ext = (".sql",)
    template_fields_renderers = {"sql": "sql", "op_kwargs": "py", "views": "json"}  # noqa: RUF012 - as Airflow has it
    shallow_copy_attrs = ("python_callable",)

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        sql: str | None = None,
        views: Mapping[str, str] | None = None,
        files: str | Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.python_callable = python_callable
        self.op_kwargs = op_kwargs
        self.sql = sql
        self.views = views
        self.files = files
        if "inlets" not in kwargs and isinstance(views, Mapping) and not self.is_mapped_copy():
            self.inlets = assets_of_tables(views.values(), self.ducklake_conn_id)

    def execute(self, context: Context) -> dict[str, Any]:
        """Write the table."""
        with self.working(f"`{self.table}` was not written"):
            sources = {"python_callable": self.python_callable, "sql": self.sql, "files": self.files}
            given = [name for name, value in sources.items() if value is not None]
            if len(given) != 1:
                raise ConfigError(
                    f"Task `{self.task_id}` has {' and '.join(given) or 'nothing to write'}.",
                    remedy=f"Give one of {', '.join(sources)}.",
                )
        if self.files is not None:
            return self._add_files(context, self.files)
        return super().execute(context)

    def frame(self, context: Mapping[str, Any], spark: TaskSpark) -> Any:
        """Return the result of the function or of the query."""
        if self.python_callable is not None:
            given = {**context, **(self.op_kwargs or {})}
            return call(self.python_callable, [], given, spark)
        session, lake = spark.session(), self.hook.lake()
        # All views read one snapshot, so that they are consistent with each other.
        at: dict[str, Any] = {}
        if self.stage is not None:
            at = {"stage": self.hook.staging.name}
        elif self.views:
            at = {"snapshot": lake.snapshots(limit=1)[0].snapshot_id}
        for name, table in (self.views or {}).items():
            lake.read(table, session, **at).createOrReplaceTempView(name)
            self._read.append(table)
        return session.sql(str(self.sql))

    def _add_files(self, context: Context, files: str | Sequence[str]) -> dict[str, Any]:
        work, hook = Work.of(context), self.hook
        with self.working(f"Files were not added to `{self.table}`"):
            if self.mode not in (None, "append"):
                raise ConfigError(f"Files are always appended, but `mode` is {self.mode!r}.", remedy="Omit `mode`.")
            key = self.idempotency_key or work.idempotency_key(self.table)
            if self.stage is not None:
                found = hook.staging.info()
                result = hook.staging.add_files(self.table, files, idempotency_key=key)
                return reference(hook, result, None, None) | {STAGE: found.name, STAGE_ID: found.stage_id, KEY: key}
            info = work.commit_info(f"files for {self.table}")
            written = reference(
                hook, hook.lake().add_files(self.table, files, idempotency_key=key, commit=info), None, None
            )
            report(context, self.outlets, written, [])
            self._written = written
            return written


def call(function: Callable[..., Any], arguments: Sequence[Any], given: Mapping[str, Any], spark: TaskSpark) -> Any:
    """Call a function with the given values that it has parameters for, and with the session if it has `spark`."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        chosen = dict(given)
    else:
        chosen = {name: value for name, value in given.items() if name in parameters}
    if "spark" in parameters:
        chosen["spark"] = spark.session()
    return function(*arguments, **chosen)
