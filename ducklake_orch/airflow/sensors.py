"""Sensors that wait until rows of a table have changed, or until a partition has rows."""

import logging
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import BaseSensorOperator, Context, PokeReturnValue

from ducklake_orch.airflow.hook import DEFAULT_CONN_ID, DuckLakeHook
from ducklake_orch.airflow.latest_change import is_newer, latest_change, previous_start
from ducklake_orch.airflow.run_partition import Keys, Partitioning, given_keys
from ducklake_orch.airflow.task_run import failures
from ducklake_orch.airflow.triggers import DuckLakeSnapshotTrigger
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import ConfigError, ObjectNotFoundError, TransientError
from ducklake_orch.host_partitions import condition, partition_columns
from ducklake_orch.lake import DuckLake

log = logging.getLogger("ducklake_orch")


class LakeSensor(BaseSensorOperator):
    """The base of sensors that wait for a state of a lake.

    Args:
        ducklake_conn_id: The connection to the lake.
        deferrable: Wait in the triggerer, without occupying a worker.
        wait_when_down: Keep waiting while the lake does not answer; else the task fails and can be retried.
        **kwargs: Arguments of every sensor.
    """

    template_fields: tuple[str, ...] = ("ducklake_conn_id",)
    ui_color = "#fff4bd"

    def __init__(
        self,
        *,
        ducklake_conn_id: str = DEFAULT_CONN_ID,
        deferrable: bool = False,
        wait_when_down: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ducklake_conn_id = ducklake_conn_id
        self.deferrable = deferrable
        self.wait_when_down = wait_when_down

    @property
    def hook(self) -> DuckLakeHook:
        """The hook of the connection."""
        return DuckLakeHook(ducklake_conn_id=self.ducklake_conn_id)

    def look(self, context: Context) -> dict[str, Any] | None:
        """Check the lake once: return the sensor's result if the state is reached, else None."""
        raise NotImplementedError

    def trigger(self, context: Context) -> DuckLakeSnapshotTrigger:
        """Return a trigger that fires when the lake should be checked again."""
        raise NotImplementedError

    def poke(self, context: Context) -> PokeReturnValue:
        """Check the lake once."""
        found: dict[str, Any] | None = None
        with failures(f"`{self.task_id}` cannot wait"):
            try:
                found = self.look(context)
            except TransientError as error:
                if not self.wait_when_down:
                    raise
                log.warning("the lake of `%s` does not answer; the sensor retries: %s", self.ducklake_conn_id, error)
        return PokeReturnValue(is_done=found is not None, xcom_value=found)

    def execute(self, context: Context) -> Any:
        """Wait, in the worker or in the triggerer."""
        if not self.deferrable:
            return super().execute(context)
        return self.look_again(context)

    def look_again(self, context: Context, event: Mapping[str, Any] | None = None) -> Any:
        """Check the lake after the trigger has fired, and defer again if the state is not reached.

        Args:
            context: The context of the task.
            event: The event of the trigger.
        """
        found = self.poke(context)
        if found.is_done:
            return found.xcom_value
        begun: datetime | None = getattr(context["ti"], "start_date", None)
        left = timedelta(seconds=self._seconds(self.timeout)) - (datetime.now(UTC) - begun if begun else timedelta(0))
        self.defer(trigger=self.trigger(context), method_name="look_again", timeout=max(left, timedelta(seconds=1)))

    @staticmethod
    def _seconds(value: Any) -> float:
        return value.total_seconds() if isinstance(value, timedelta) else float(value)


class DuckLakeSnapshotSensor(LakeSensor):
    """Waits until rows of a table have changed. Compaction does not change rows.

    Args:
        table: `table` or `schema.table`; without a table, every snapshot of the lake counts.
        since: A snapshot id or a time in ISO 8601: only later changes count. By default the start of this DAG's last
            successful run, so that the first run waits only for rows to exist.
        **kwargs: Arguments of `LakeSensor`.
    """

    template_fields = (*LakeSensor.template_fields, "table", "since")

    def __init__(self, *, table: str | None = None, since: int | str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.since = since

    def look(self, context: Context) -> dict[str, Any] | None:
        """Return the change, if there is one."""
        change = latest_change(self.hook.lake(), self.table)
        if not is_newer(change, *self._since(context)):
            return None
        return change.payload(ducklake_conn_id=self.ducklake_conn_id, table=self.table) if change else None

    def trigger(self, context: Context) -> DuckLakeSnapshotTrigger:
        """Return a trigger that fires for a change."""
        after, since = self._since(context)
        # Without `after` and `since`, the trigger would report only changes from now on.
        return _trigger(self, self.table, 0 if since is None and after is None else after, since)

    def _since(self, context: Context) -> tuple[int | None, datetime | None]:
        since = self.since
        if since in (None, "", "None"):
            return None, previous_start(context)
        if isinstance(since, int) or str(since).isdigit():
            return int(str(since)), None
        try:
            time = datetime.fromisoformat(str(since))
        except ValueError:
            time = None
        if time is None or time.tzinfo is None:
            raise ConfigError(
                f"`since` = {since!r} is neither a snapshot id nor a time with a zone.",
                remedy="Write 42, or 2024-05-20T06:00:00+00:00.",
            )
        return None, time


class DuckLakePartitionSensor(LakeSensor):
    """Waits until a partition of a table has rows.

    Args:
        table: `table` or `schema.table`.
        partition_expr: The column that holds the partition's key, as in `DuckLakeWriteOperator`.
        partition_key: The key; by default the run's, else those of the writes that triggered it, else its data
            interval or logical date.
        partition_window: The length of a key that is a time.
        partition_format: The format of such a key.
        partition_timezone: The zone of such keys.
        where: A condition in DuckDB's SQL for the rows that count; instead of a partition, or in addition to it.
        min_rows: The minimum number of such rows.
        **kwargs: Arguments of `LakeSensor`.
    """

    template_fields = (*LakeSensor.template_fields, "table", "partition_key", "where", "min_rows")

    def __init__(
        self,
        *,
        table: str,
        partition_expr: str | Mapping[str, str] | None = None,
        partition_key: Keys = None,
        partition_window: str | None = None,
        partition_format: str | None = None,
        partition_timezone: str = "UTC",
        where: str | None = None,
        min_rows: int | str = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.partition_expr = partition_expr
        self.partition_key = partition_key
        self._has_key = partition_key is not None
        self.partition_window = partition_window
        self.partition_format = partition_format
        self.partition_timezone = partition_timezone
        self.where = where
        self.min_rows = min_rows
        # The snapshot of the table's change at the last check; 0 for none, also if the lake did not answer.
        self._seen = 0

    def look(self, context: Context) -> dict[str, Any] | None:
        """Return the number of rows if there are enough."""
        lake = self.hook.lake()
        # Read before the rows are counted, so that a write during the count triggers another check.
        change = latest_change(lake, self.table)
        self._seen = change.snapshot_id if change else 0
        where, keys = self._condition(context, lake)
        if where is None or change is None:
            return None
        count = f"SELECT count(*) AS n FROM {table_name(self.table).sql(lake.config.alias)} WHERE {where}"
        result = lake.execute(count, read_only=True).raise_for_error()
        rows = int(result.rows[0]["n"])
        about = {"ducklake_conn_id": self.ducklake_conn_id, "table": self.table, "partition_keys": keys}
        return change.payload(rows=rows, **about) if rows >= int(self.min_rows) else None

    def trigger(self, context: Context) -> DuckLakeSnapshotTrigger:
        """Return a trigger that fires for the next change of the table after the last check."""
        return _trigger(self, self.table, self._seen, None)

    def _condition(self, context: Context, lake: DuckLake) -> tuple[str | None, list[str]]:
        """Return the condition of the rows that count, None while the table does not exist, and the keys."""
        what = f"Sensor `{self.task_id}`"
        partitioning = Partitioning(
            self.partition_expr, self.partition_window, self.partition_format, self.partition_timezone
        )
        part = partitioning.slice(what, given_keys(self.partition_key, self._has_key), context)
        try:
            types = {column.name: column.type for column in lake.table(self.table).schema()}
        except ObjectNotFoundError:
            return None, []
        terms = [f"({self.where})"] if self.where else []
        if part is not None:
            columns = partition_columns(what, part.dimensions, self.partition_expr, types)
            partitioning.check(what, part, columns)
            terms.append(f"({condition(part, columns)})")
        return " AND ".join(terms) or "true", part.texts if part else []


def _trigger(
    sensor: LakeSensor, table: str | None, after: int | None, since: datetime | None
) -> DuckLakeSnapshotTrigger:
    return DuckLakeSnapshotTrigger(
        ducklake_conn_id=sensor.ducklake_conn_id,
        table=table,
        after=after,
        since=since.isoformat() if since is not None else None,
        poke_interval=LakeSensor._seconds(sensor.poke_interval),
    )
