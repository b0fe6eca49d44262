"""The hook: opens a lake in custom tasks and for Airflow's SQL operators, checks and sensors."""

from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowNotFoundException
from airflow.providers.common.sql.hooks.sql import DbApiHook
from airflow.sdk.log import mask_secret

from ducklake_orch.airflow.assets import SCHEME
from ducklake_orch.airflow.connection import LakeConnectionSettings, read_connection, secrets_of
from ducklake_orch.airflow.connection_check import check_connection
from ducklake_orch.airflow.dbapi import HookConnection
from ducklake_orch.airflow.sql_literals import sql_value
from ducklake_orch.airflow.task_run import Work
from ducklake_orch.airflow.task_spark import session_of
from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.redaction import spellings
from ducklake_orch.engine.quoting import identifier, table_name
from ducklake_orch.engine.scripts import redact
from ducklake_orch.errors import ConfigError, DataError, DuckLakeOrchError
from ducklake_orch.host_partitions.frame_kinds import check_kind, read_as
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo, ExecuteResult, Snapshot, WriteResult

if TYPE_CHECKING:
    from airflow.sdk import Connection
    from pyspark.sql import SparkSession

    from ducklake_orch.maintenance.health_report import HealthReport
    from ducklake_orch.maintenance.results import MaintenanceReport

DEFAULT_CONN_ID = "ducklake_default"


class DuckLakeHook(DbApiHook):
    """Opens the lake of a connection.

    `lake()` returns the `DuckLake` with all its methods. `write` and `execute` work for the running task: their
    snapshots name the task, and all its attempts together write once. `run`, `get_records`, `get_first`, `get_df` and
    `insert_rows` are the methods of every SQL hook: each `run` is one transaction and one snapshot.

    Args:
        ducklake_conn_id: The connection.
    """

    conn_name_attr = "ducklake_conn_id"
    default_conn_name = DEFAULT_CONN_ID
    conn_type = "ducklake"
    hook_name = "DuckLake"
    supports_autocommit = True
    _placeholder = "?"
    ducklake_conn_id: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Airflow's own operators also pass the extra of the connection to the hook: the fields of the lake.
        known = ("ducklake_conn_id", "schema", "log_sql", "logger_name", "database", *LakeConfig.model_fields)
        refuse_unknown("DuckLakeHook", kwargs, known)
        super().__init__(*args, **kwargs)

    # --- the lake ------------------------------------------------------------------------------------------------

    @cached_property
    def connected(self) -> LakeConnectionSettings:
        """The lake and Spark settings of the connection. Reading them masks their secrets in logs."""
        connected = read_connection(self._find(self.get_conn_id()), self._find)
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
        return read_as(self.lake(), kind, table, self.spark, columns=columns, where=where, snapshot=snapshot)

    def write(self, data: Any, table: str, *, mode: str, **more: Any) -> WriteResult:
        """Write data to a table, as `DuckLake.write` does. All attempts of a task share an idempotency key.

        Args:
            data: A Spark DataFrame, a pyarrow.Table, a pandas or Polars frame, and so on.
            table: `table` or `schema.table`.
            mode: What happens to the existing rows.
            **more: Further arguments of `DuckLake.write`.
        """
        if (work := Work.running()) is not None:
            more.setdefault("idempotency_key", work.idempotency_key(str(table_name(table))))
            more.setdefault("commit", work.commit_info(f"{mode} to {table}"))
        result = self.lake().write(data, table, mode=mode, **more)
        if result.replayed:
            self.log.warning(replayed(result))
        return result

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
        return work.idempotency_key(str(table_name(table)))

    def execute(self, commands: str | Sequence[str], **more: Any) -> ExecuteResult:
        """Run SQL commands and report each of them, as `DuckLake.execute` does."""
        more.setdefault("commit", self._commit_info("execute"))
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

    # --- as a SQL hook -------------------------------------------------------------------------------------------

    def get_conn(self) -> HookConnection:
        """Open a connection to the lake. Its writes wait for the catalog's lock."""
        return HookConnection(self.lake().config, self._commit_info("sql"))

    def insert_rows(
        self,
        table: str,
        rows: Iterable[Sequence[Any]],
        target_fields: Iterable[str] | None = None,
        commit_every: int = 1000,
        replace: bool = False,
        **ignored: Any,
    ) -> None:
        """Insert rows with one statement and one snapshot for each `commit_every` rows; 0 inserts all rows in one.

        None, NaN and pandas' missing values become NULL. A value that no column can hold is refused.

        Args:
            table: `table` or `schema.table`.
            rows: The rows.
            target_fields: The columns of the rows; by default all columns of the table.
            commit_every: The number of rows in one snapshot.
            replace: Refused if true, because a lake has no keys.
            **ignored: Arguments of other hooks (`executemany`, `fast_executemany`, `autocommit`), which have no effect.
        """
        known = ("table", "rows", "target_fields", "commit_every", "replace", *_OTHER_HOOKS_ARGUMENTS)
        refuse_unknown("`insert_rows`", ignored, known)
        if replace:
            raise ConfigError("DuckLake has no keys, so `replace` cannot match rows.", remedy=_MERGE)
        fields = f" ({', '.join(identifier(name) for name in target_fields)})" if target_fields else ""
        insert = f"INSERT INTO {table_name(table).sql(self.lake().config.alias)}{fields} VALUES "
        pending: list[str] = []
        for number, row in enumerate(rows):
            try:
                pending.append(f"({', '.join(map(sql_value, row))})")
            except DuckLakeOrchError as error:
                raise DataError(f"Row {number} for `{table}`: {error.message}", remedy=error.remedy) from error
            if len(pending) == commit_every:
                self._insert(insert, pending)
        self._insert(insert, pending)

    def get_df(self, sql: str | list[str], parameters: Any = None, *, df_type: str = "pandas", **more: Any) -> Any:
        """Run a query and return a pandas or Polars frame."""
        refuse_unknown("`get_df`", more, ("sql", "parameters", "df_type"))
        check_kind(df_type, "`df_type`")
        with self.get_conn() as connection:
            for statement in [sql] if isinstance(sql, str) else sql:
                rows = connection.run(statement, parameters)
            return rows.frame(df_type)

    def get_df_by_chunks(
        self, sql: str | list[str], parameters: Any = None, *, chunksize: int, df_type: str = "pandas", **more: Any
    ) -> Generator[Any, None, None]:
        """Run a query and yield frames of at most `chunksize` rows."""
        refuse_unknown("`get_df_by_chunks`", more, ("sql", "parameters", "chunksize", "df_type"))
        whole = self.get_df(sql, parameters, df_type=df_type)
        for first in range(0, len(whole), chunksize):
            yield whole[first : first + chunksize]

    def get_table_schema(self, table_name: str, schema: str | None = None) -> list[dict[str, str]]:
        """Return the names and types of a table's columns."""
        columns = self.lake().table(f"{schema}.{table_name}" if schema else table_name).schema()
        return [{"name": column.name, "type": column.type} for column in columns]

    def get_sqlalchemy_engine(self, engine_kwargs: Any = None) -> Any:
        """Return None, as SQLAlchemy has no DuckLake dialect. OpenLineage, the caller, then uses its default one."""
        return None

    def get_openlineage_database_info(self, connection: Any) -> Any:
        """Return OpenLineage's names of the tables in SQL, which are the names of their assets."""
        from airflow.providers.openlineage.sqlparser import DatabaseInfo

        columns = ["table_schema", "table_name", "column_name", "ordinal_position", "data_type"]
        authority = self.get_conn_id().lower()
        return DatabaseInfo(scheme=SCHEME, authority=authority, database=None, information_schema_columns=columns)

    def get_openlineage_database_dialect(self, _: Any) -> str:
        """Return the dialect of the SQL."""
        return "duckdb"

    def get_openlineage_default_schema(self) -> str:
        """Return the schema of table names without a schema."""
        return "main"

    def _run_command(self, cur: Any, sql_statement: str, parameters: Any) -> None:
        if self.log_sql:
            self.log.info("Running statement: %s", redact(sql_statement, self.lake().config.scrubber))
        logging, self.log_sql = self.log_sql, False  # Airflow would log the secrets of CREATE SECRET
        try:
            super()._run_command(cur, sql_statement, parameters)
        finally:
            self.log_sql = logging

    def _insert(self, insert: str, pending: list[str]) -> None:
        if pending:
            with self.get_conn() as connection:
                connection.run(insert + ", ".join(pending), None)
                connection.commit()
            pending.clear()

    def _commit_info(self, what: str) -> CommitInfo:
        work = Work.running()
        return work.commit_info(what) if work is not None else CommitInfo(author="airflow")

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


_OTHER_HOOKS_ARGUMENTS = ("executemany", "fast_executemany", "autocommit")
_MERGE = "Write mode `merge` with `keys=…`, or MERGE INTO in SQL, keeps rows unique."


def replayed(result: WriteResult) -> str:
    """Return a message that a write was not repeated, and how to repeat it on purpose."""
    return (
        f"{result.table}: an earlier attempt of this task wrote these rows as snapshot {result.snapshot_id}, so they"
        " were not written again. To write them once more, start a new run, or give another `idempotency_key`."
    )
