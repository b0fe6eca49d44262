"""Record runs of maintenance in a ducklake-orch table in the catalog, and allow one run at a time: `only_runner`."""

import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import Metadata, MetadataTransaction, OwnTable, text
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classified, run
from ducklake_orch.engine.instances import start_instance
from ducklake_orch.engine.locks import LOCK_ALIAS, Check, Queue
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import LakeLockedError, MaintenanceRunningError
from ducklake_orch.results import Result

TABLE = OwnTable(
    "ducklake_orch_runs",
    "run_id VARCHAR(64) NOT NULL PRIMARY KEY, host VARCHAR(255) NOT NULL, process BIGINT NOT NULL,"
    " started_at BIGINT NOT NULL, ended_at BIGINT, status VARCHAR(16) NOT NULL, summary TEXT",
)
_LOCK, _PURPOSE = "maintenance", "recording a maintenance run"
RUNNING = "running"
# Runs are recorded for 90 days.
_KEPT_US = 90 * 86400 * 1_000_000
# The number of runs that are searched for earlier results.
_SEARCHED_RUNS = 1000
_COLUMNS = "run_id, host, process, started_at, ended_at, status, summary"


@dataclass(frozen=True)
class MaintenanceRun(Result):
    """A run of maintenance.

    Attributes:
        ended_at: When it ended; None while it runs, or if its process died.
        status: `running`, or how it ended.
        summary: The figures of the run: `totals`, those of each of its `operations`, what was `predicted` and what was
            the `outcome` (bytes of cost, bytes that reads save a day, seconds), and the tables that were `left` for
            the next run.
    """

    run_id: str
    host: str
    process: int
    started_at: datetime
    ended_at: datetime | None
    status: str
    summary: dict[str, Any]

    @property
    def owner(self) -> str:
        """The process that runs it, and since when."""
        age = int((datetime.now(UTC) - self.started_at).total_seconds())
        return f"process {self.process} on {self.host}, since {self.started_at:%Y-%m-%d %H:%M:%S} UTC ({age} s)"


def last_run(metadata: Metadata) -> MaintenanceRun | None:
    """Return the latest run, if there is one."""
    return next(iter(latest_runs(metadata, 1)), None)


def known_orphans(metadata: Metadata) -> Mapping[str, int]:
    """Return the orphaned files that the last run with an orphan search left; other runs do not search."""
    return next((found for run in latest_runs(metadata, _SEARCHED_RUNS) if (found := run.summary.get("orphans"))), {})


def latest_runs(metadata: Metadata, limit: int) -> list[MaintenanceRun]:
    """Return runs, the latest first."""
    if not TABLE.table_exists(metadata):
        return []
    name = metadata.dialect.table(TABLE.name)
    columns = metadata.dialect.texts(_COLUMNS.split(", "))
    sql = f"select {columns} from {name} order by started_at desc limit {limit}"
    return [_run([text(cell) for cell in row]) for row in metadata.rows(metadata.dialect.query(sql))]


def _run(row: Sequence[str | None]) -> MaintenanceRun:
    run_id, host, process, started, ended, status, summary = row
    times = [None if time is None else datetime.fromtimestamp(int(time) / 1e6, UTC) for time in (started, ended)]
    return MaintenanceRun(
        run_id or "",
        host or "",
        int(process or 0),
        times[0] or datetime.now(UTC),
        times[1],
        status or "",
        json.loads(summary or "{}"),
    )


@contextmanager
def only_runner(config: LakeConfig) -> Iterator[Check]:
    """Hold the maintenance lock of a lake for a block; yield a function that raises if the lock was lost.

    If the holder dies, the operating system or the server releases the lock at once.

    Raises:
        MaintenanceRunningError: When another process holds it; the message names the process and since when.
    """
    with ExitStack() as held:
        queue = _maintenance_lock(config, held)
        try:
            with classified(config, "Taking the maintenance lock failed"):
                still_held = held.enter_context(queue.hold("maintenance", 0))
        except LakeLockedError as error:
            failure = _running(config, error)
        else:
            yield still_held
            return
    raise failure


def _maintenance_lock(config: LakeConfig, held: ExitStack) -> Queue:
    """Return the maintenance lock; on a server it has its own connection."""
    dialect = dialect_of(config)

    def connect() -> duckdb.DuckDBPyConnection:
        instance = start_instance(config)
        held.callback(instance.close, config)
        attach = dialect.metadata_attach(LOCK_ALIAS, read_only=False)
        run(instance.root, attach, config, f"Opening the lock of lake `{config.name}` failed")
        instance.queue_attached = True
        return instance.root

    return dialect.named_lock(connect, _LOCK)


def _running(config: LakeConfig, error: LakeLockedError) -> MaintenanceRunningError:
    with planning(config, "Reading the latest maintenance run", reads=True) as metadata:
        last = last_run(metadata)
    owner = last.owner if last is not None and last.status == RUNNING else error.message
    return MaintenanceRunningError(
        f"Maintenance of lake `{config.name}` is already running: {owner}.",
        remedy="Wait for that run; if its process dies, the lock is released.",
    )


def note_begin(config: LakeConfig, run_id: str) -> None:
    """Record the start of a run; delete the oldest records, and mark runs that never ended as died."""

    def work(transaction: MetadataTransaction) -> None:
        now = transaction.dialect.now_sql()
        transaction.change(TABLE.name, f"UPDATE {{}} SET status = 'died' WHERE status = '{RUNNING}'")
        # The answer to an earlier attempt may have been lost.
        condition = f"started_at < {now} - {_KEPT_US} OR run_id = {literal(run_id)}"
        transaction.change(TABLE.name, f"DELETE FROM {{}} WHERE {condition}")
        owner = ", ".join(map(literal, (run_id, socket.gethostname()[:200], os.getpid())))
        values = f"{owner}, {now}, NULL, {literal(RUNNING)}, NULL"
        transaction.change(TABLE.name, f"INSERT INTO {{}} ({_COLUMNS}) VALUES ({values})")

    TABLE.write(config, _PURPOSE, work)


def note_end(config: LakeConfig, run_id: str, status: str, summary: Mapping[str, Any]) -> None:
    """Record the end of a run."""
    summary_sql = dialect_of(config).text_literal(json.dumps(summary))

    def work(transaction: MetadataTransaction) -> None:
        values = f"ended_at = {transaction.dialect.now_sql()}, status = {literal(status)}, summary = {summary_sql}"
        transaction.change(TABLE.name, f"UPDATE {{}} SET {values} WHERE run_id = {literal(run_id)}")

    TABLE.write(config, _PURPOSE, work)
