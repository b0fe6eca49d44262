"""The hook: opens a lake in custom tasks and for Airflow's SQL operators, checks and sensors."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from ducklake_orch.airflow.connection import LakeConnectionSettings, is_extra_key, read_connection, secrets_of
from ducklake_orch.airflow.connection_check import check_connection
from ducklake_orch.airflow.run_stage import begun_stage, existing_stage
from ducklake_orch.airflow.sql_hook import SqlHook
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.airflow.task_spark import session_of
from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.config.redaction import spellings
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.frame_kinds import check_kind, read_as
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import ExecuteResult, Snapshot, TransactionResult, WriteResult

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from pyspark.sql import SparkSession

    from ducklake_orch.facade.stage import Stage
    from ducklake_orch.facade.transaction import Transaction
    from ducklake_orch.maintenance.health_report import HealthReport
    from ducklake_orch.maintenance.results import MaintenanceReport

DEFAULT_CONN_ID = "ducklake_default"


class DuckLakeHook(SqlHook):
    """Opens the lake of a connection.

    `lake()` returns the `DuckLake` with all its methods. `write`, `transaction` and `execute` work for the running
    task: their snapshots name the task. With `write` and `transaction`, all its attempts together write once.
    `run`, `get_records`, `get_first`, `get_df` and `insert_rows` are the methods of every SQL hook: each `run` is one
    transaction and one snapshot.

    Args:
        ducklake_conn_id: The connection.
        schema: The lake's schema of table names without a schema; `main` by default. `database` means the same.
        stage: The name of a stage. `write` and `transaction` stage in it; `read` and SQL see what is staged.
        stage_ttl: How long a stage that the hook begins is kept.
        log_sql: Whether to log the statements of `run`.
        connection: The connection itself, instead of its id.
    """

    conn_name_attr = "ducklake_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "ducklake"
    hook_name = "DuckLake"
    ducklake_conn_id: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Airflow's own operators also pass the extra of the connection to the hook.
        given = [name for name in kwargs if not is_extra_key(name)]
        known = ("ducklake_conn_id", "schema", "database", "stage", "stage_ttl", "log_sql", "logger_name", "connection")
        refuse_unknown("DuckLakeHook", given, known)
        self._stage_ttl = kwargs.pop("stage_ttl", "7 days")
        super().__init__(*args, **kwargs)

    # --- the lake ------------------------------------------------------------------------------------------------

    @cached_property
    def connected(self) -> LakeConnectionSettings:
        """The lake and Spark settings of the connection. Reading them masks their secrets in logs."""
        connected = read_connection(self._connection or self._find(self.get_conn_id()), self._find)
        for secret in secrets_of(connected):
            for form in spellings(secret):
                mask_secret(form)
        return connected

    def lake(self) -> DuckLake:
        """Return the lake."""
        return self.connected.lake

    def existing_lake(self) -> DuckLake:
        """Return the lake. Create it first if it does not exist and its configuration allows that."""
        lake = self.lake()
        lake.ensure_exists()
        return lake

    def spark(self) -> "SparkSession":
        """Return the running Spark session, else a new one for the connection, which the caller must stop."""
        return session_of(self.connected.spark)[0]

    def read(
        self,
        table: str,
        kind: str = "arrow",
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        snapshot: int | None = None,
    ) -> Any:
        """Read a table at one snapshot.

        Args:
            table: `table` or `schema.table`.
            kind: `arrow`, `spark`, `pandas`, `polars`, `lazy`, `reader` or `duckdb`.
            columns: Names of the columns to return; by default all.
            where: A condition in DuckDB's SQL.
            snapshot: The snapshot to read; by default the latest.
        """
        check_kind(kind, "`kind`")
        selection: dict[str, Any] = {"columns": columns, "where": where, "snapshot": snapshot}
        if self.stage is not None and snapshot is None:
            found = existing_stage(self.lake(), self.stage)
            selection |= {"snapshot": found.snapshot_id} if found.snapshot_id is not None else {"stage": found.name}
        return read_as(self.lake(), kind, self._name(table), self.spark, **selection)

    def write(self, data: Any, table: str, *, mode: str, **more: Any) -> WriteResult:
        """Write data to a table, as `DuckLake.write` does. All attempts of a task share an idempotency key.

        Args:
            data: A Spark DataFrame, a pyarrow.Table, a pandas or Polars frame, and so on.
            table: `table` or `schema.table`.
            mode: What happens to the existing rows.
            **more: Further arguments of `DuckLake.write`.
        """
        if (work := Work.running()) is not None:
            more.setdefault("idempotency_key", work.idempotency_key(self._name(table)))
            more.setdefault("commit", work.commit_info(f"{mode} to {table}"))
        if self.stage is not None:
            more.pop("commit", None)  # that of the publication names what it publishes
            return self.staging.write(data, self._name(table), mode=mode, **more)
        result = self.lake().write(data, self._name(table), mode=mode, **more)
        if result.replayed:
            self.log.warning(replayed(result))
        return result

    @contextmanager
    def transaction(self, **options: Any) -> "Iterator[Transaction]":
        """Change several tables in one snapshot, as `DuckLake.transaction` does. All attempts of a task commit once.

        Args:
            **options: Arguments of `DuckLake.transaction`. With `idempotency_key=None`, a cleared task repeats it.
        """
        if (work := Work.running()) is not None:
            options.setdefault("idempotency_key", work.idempotency_key("a transaction"))
            options.setdefault("commit", work.commit_info("transaction"))
        if self.stage is not None:
            options.pop("commit", None)
        with (self.lake() if self.stage is None else self.staging).transaction(**options) as transaction:
            yield transaction
        if transaction.result is not None and transaction.result.replayed:
            self.log.warning(replayed(transaction.result))

    @cached_property
    def staging(self) -> "Stage":
        """The stage that the hook writes to, which is begun if there is none."""
        work = Work.running()
        author = f"airflow dag {work.dag_id}, run {work.run_id}" if work is not None else None
        return begun_stage(self.lake(), str(self.stage), self._stage_ttl, author)

    def idempotency_key(self, table: str) -> str:
        """Return the key of the task's next write to a table, for a write by another process.

        All attempts of a task have the same keys.

        Args:
            table: `table` or `schema.table`.
        """
        work = Work.running()
        if work is None:
            raise ConfigError(
                "No task is running, so there is no idempotency key.", remedy="Call `idempotency_key` in a task."
            )
        return work.idempotency_key(self._name(table))

    def execute(self, commands: str | Sequence[str], **more: Any) -> ExecuteResult:
        """Run SQL commands and report each of them, as `DuckLake.execute` does."""
        if self.schema is not None:
            raise ConfigError(
                f"`execute` has no default schema, but the hook has `schema` = {self.schema!r}.",
                remedy=f"Use `run`, or a hook without `schema` and names such as `{self.schema}.orders`.",
            )
        self._refuse_stage("execute")
        more.setdefault("commit", self._commit_info())
        return self.lake().execute(commands, **more)

    def maintain(self, policy: Any = None, **more: Any) -> "MaintenanceReport":
        """Maintain the lake, as `DuckLake.maintain` does."""
        return self.existing_lake().maintain(policy, **more)

    def health(self, policy: Any = None) -> "HealthReport":
        """Return the health of the lake and of its tables."""
        return self.existing_lake().health(policy)

    def snapshots(self, limit: int | None = None) -> list[Snapshot]:
        """List the lake's snapshots, newest first."""
        return self.lake().snapshots(limit)

    def test_connection(self) -> tuple[bool, str]:  # type: ignore[override]  # the signature that Airflow calls
        """Open the lake for reading, and return success and a message."""
        return check_connection(self.get_conn_id(), self.lake)

    def _find(self, conn_id: str) -> "Connection":
        try:
            connection: Connection = self.get_connection(conn_id)
            return connection
        except (AirflowNotFoundException, ImportError) as error:
            # Outside a task, Airflow 3.1 raises an ImportError for SUPERVISOR_COMMS, which only a worker has.
            if isinstance(error, ImportError) and "SUPERVISOR_COMMS" not in str(error):
                raise
            failure = ConfigError(
                f"There is no connection `{conn_id}`.",
                remedy=f"airflow connections add {conn_id} --conn-type ducklake --conn-extra '{{…}}'",
            )
        raise failure


def replayed(result: WriteResult | TransactionResult) -> str:
    """Return a message that a write was not repeated, and how to repeat it on purpose."""
    what = result.table if isinstance(result, WriteResult) else "Transaction"
    return (
        f"{what}: an earlier attempt of this task wrote these rows as snapshot {result.snapshot_id}, so they"
        " were not written again. To write them once more, start a new run, or give another `idempotency_key`."
    )
