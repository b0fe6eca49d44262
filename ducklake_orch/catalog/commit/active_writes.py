"""Record the lease of each long write in a ducklake-orch table, so that maintenance keeps what running writes need.

Most writes need no lease, because maintenance keeps everything younger than an hour. A background thread of this
process regularly checks the running writes. It records a lease for each one that has taken longer than a minute, and
renews it. The lease of a killed writer lapses.
"""

import hashlib
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import duckdb

from ducklake_orch.catalog.commit.recording import recording_of
from ducklake_orch.catalog.metadata import Metadata, MetadataTransaction, OwnTable, text
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import DuckLakeOrchError

log = logging.getLogger("ducklake_orch")
LEASES = OwnTable(
    "ducklake_orch_writers",
    "write_id VARCHAR(64) NOT NULL PRIMARY KEY, snapshot_id BIGINT NOT NULL, started_at BIGINT NOT NULL,"
    " lapses_at BIGINT NOT NULL, host VARCHAR(255) NOT NULL, process BIGINT NOT NULL, purpose TEXT",
)
# In seconds: how often the thread checks the running writes, the age at which a write gets a lease, and how often the
# lease is renewed.
_CHECK_S, _BRIEF_S, _RENEW_S = 20.0, 60.0, 300.0
# In seconds: a lease lapses this long after its last renewal. A write that one process starts and another ends has no
# process to renew its lease, so that lease is longer.
_LAPSE_S, _HANDED_OVER_S = 1800.0, 86400.0
# In seconds: the lease of a stream lapses when it has been silent for this long.
_STREAM_SILENT_S = 7 * 86400.0
# The beginning of the ids of the leases of a stage, and of the writes that staged in it. They outlast the writes, whose
# own leases end with them.
_STAGE, _STAGED = "stage-", "staged-"
_STREAM = "stream-"
# Hosts' clocks differ: a file that seems to be retired shortly before a write began may have been retired after that.
_CLOCKS_DIFFER = timedelta(minutes=10)


@dataclass(frozen=True)
class RunningWrite:
    """A write with a lease that has not lapsed.

    Attributes:
        write_id: Identity of the write.
        snapshot_id: The snapshot that it was planned on.
        started_at: When it began, by the catalog's clock.
        owner: For messages: its purpose, the process and host that run it, and when it began.
        is_staged: Whether it has ended, and its files belong to a stage, which has a lease, too.
        is_stream: Whether it is a stream, which still has to deliver the changes since the snapshot.
    """

    write_id: str
    snapshot_id: int
    started_at: datetime
    owner: str
    is_staged: bool = False
    is_stream: bool = False


@dataclass(frozen=True)
class Leases:
    """The running writes of a lake, and what maintenance must keep for them."""

    writes: Sequence[RunningWrite] = ()

    @property
    def oldest(self) -> RunningWrite | None:
        """The write that was planned on the oldest snapshot."""
        return min(self.writes, key=lambda write: write.snapshot_id, default=None)

    @property
    def needed_from(self) -> int | None:
        """The first snapshot that must be retained; None if there are no running writes."""
        return None if self.oldest is None else self.oldest.snapshot_id

    @property
    def needed_since(self) -> datetime | None:
        """Running writes may still read files that were retired at this time or later.

        A stream reads only files of snapshots that are retained for it.
        """
        return min((write.started_at - _CLOCKS_DIFFER for write in self.writes if not write.is_stream), default=None)

    @property
    def write_ids(self) -> frozenset[str]:
        """The ids of the running writes, which are part of the names of the files that they write."""
        return frozenset(write.write_id for write in self.writes)


def read_leases(metadata: Metadata) -> Leases:
    """Return the running writes, without those whose lease has lapsed."""
    if not LEASES.table_exists(metadata):
        return Leases()
    config = metadata.config
    columns = dialect_of(config).texts(("write_id", "snapshot_id", "started_at", "host", "process", "purpose"))
    sql = f"select {columns} from {dialect_of(config).table(LEASES.name)} where lapses_at > {_now(config)}"
    rows = [[text(cell) or "" for cell in row] for row in metadata.rows(dialect_of(config).query(sql))]
    return Leases([_running(*row) for row in rows])


def _running(write_id: str, snapshot: str, started: str, host: str, process: str, purpose: str) -> RunningWrite:
    at = datetime.fromtimestamp(int(started) / 1e6, UTC)
    owner = f"{purpose}, by process {process} on {host} since {at:%Y-%m-%d %H:%M:%S} UTC"
    own_id = write_id.removeprefix(_STAGED).removeprefix(_STAGE)
    return RunningWrite(own_id, int(snapshot), at, owner, write_id.startswith(_STAGED), write_id.startswith(_STREAM))


@contextmanager
def leased(config: LakeConfig, write: Write, snapshot: int, parts: Sequence[str] = ()) -> Iterator[None]:
    """Protect what a write needs from maintenance, for the duration of a block that does not hold the lake's lock.

    A write in the draft of a transaction becomes a part of the transaction, whose lease protects its files to the end.

    Args:
        config: The lake.
        write: The write.
        snapshot: The snapshot that it was planned on.
        parts: The ids of writes whose files the write commits; it can grow.
    """
    if (draft := recording_of(config)) is not None:
        draft.write_ids.append(write.write_id)
        yield
        return
    running = _Running(config, write, snapshot, parts)
    _WATCH.add(running)
    try:
        yield
    finally:
        _WATCH.remove(running)
        running.end()


def record_lease(config: LakeConfig, write: Write, snapshot: int) -> None:
    """Record a lease until `remove_lease`, or for a day, for a write that one process begins and another ends."""
    try:
        _record_lease(config, write, snapshot, [], time.monotonic(), _HANDED_OVER_S)
    except (duckdb.Error, DuckLakeOrchError) as error:
        _log_failure(config, write, error)


def remove_lease(config: LakeConfig, write: Write, parts: Sequence[str] = ()) -> None:
    """Delete the lease of a write."""

    def delete(transaction: MetadataTransaction) -> None:
        _end_leases(transaction, _literals([write.write_id, *parts]))

    try:
        LEASES.write(config, f"deleting the lease of {write.purpose}", delete)
    except (duckdb.Error, DuckLakeOrchError) as error:
        _log_failure(config, write, error)


def _record_lease(
    config: LakeConfig, write: Write, snapshot: int, parts: Sequence[str], started: float, seconds: float
) -> None:
    # Use the catalog's clock: hosts' clocks differ, and a lease must not lapse because of that.
    now, ids = _now(config), _literals([write.write_id, *parts])
    began, lapses = f"{now} - {int((time.monotonic() - started) * 1e6)}", f"{now} + {int(seconds * 1e6)}"

    def record(transaction: MetadataTransaction) -> None:
        _replace_leases(transaction, ids, [literal(snapshot), began, lapses], write.purpose)

    LEASES.write(config, f"recording the lease of {write.purpose}", record)


def lease_stream(config: LakeConfig, name: str, table: str, snapshot: int) -> bool:
    """Record the lease of a stream, or renew it: maintenance keeps the snapshots from this one on.

    Returns:
        Whether it is recorded.
    """
    write_id = f"{_STREAM}{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    write = Write(f"stream `{name}` of `{table}`", write_id=write_id)
    try:
        _record_lease(config, write, snapshot, [], time.monotonic(), _STREAM_SILENT_S)
    except (duckdb.Error, DuckLakeOrchError) as error:
        _log_failure(config, write, error)
        return False
    return True


def lease_stage(
    transaction: MetadataTransaction,
    stage_id: str,
    write_ids: Sequence[str],
    snapshot: int,
    began: datetime,
    lapses: datetime,
    purpose: str,
) -> None:
    """Record the lease of a stage and of writes that staged in it, in a transaction that also writes other rows."""
    values = [literal(snapshot), *(str(int(at.timestamp() * 1e6)) for at in (began, lapses))]
    _replace_leases(transaction, _of_stage(stage_id, write_ids), values, purpose)


def end_stage_leases(transaction: MetadataTransaction, stage_id: str, write_ids: Sequence[str]) -> None:
    """Delete the leases of a stage, in a transaction that also writes other rows."""
    _end_leases(transaction, _of_stage(stage_id, write_ids))


def _of_stage(stage_id: str, write_ids: Sequence[str]) -> list[str]:
    return _literals([f"{_STAGE}{stage_id}", *(f"{_STAGED}{write_id}" for write_id in write_ids)])


def _end_leases(transaction: MetadataTransaction, ids: Sequence[str]) -> None:
    transaction.change(LEASES.name, f"DELETE FROM {{}} WHERE write_id IN ({', '.join(ids)})")


def _replace_leases(transaction: MetadataTransaction, ids: Sequence[str], values: Sequence[str], purpose: str) -> None:
    dialect = dialect_of(transaction.config)
    lapsed = f"lapses_at <= {_now(transaction.config)}"
    transaction.change(LEASES.name, f"DELETE FROM {{}} WHERE write_id IN ({', '.join(ids)}) OR {lapsed}")
    owner = [literal(socket.gethostname()[:200]), literal(os.getpid()), dialect.text_literal(purpose)]
    rows = ", ".join(f"({', '.join([write_id, *values, *owner])})" for write_id in ids)
    columns = "write_id, snapshot_id, started_at, lapses_at, host, process, purpose"
    transaction.change(LEASES.name, f"INSERT INTO {{}} ({columns}) VALUES {rows}")


def _literals(write_ids: Iterable[str]) -> list[str]:
    return [literal(write_id) for write_id in dict.fromkeys(write_ids)]


def _log_failure(config: LakeConfig, write: Write, error: Exception) -> None:
    # The write continues without a lease: its young files are safe from maintenance, and a remaining lease lapses.
    log.warning(
        "%s (write %s): its lease cannot be updated: %s", write.purpose, write.write_id, config.scrubber(str(error))
    )


def _now(config: LakeConfig) -> str:
    return dialect_of(config).now_sql()


@dataclass(eq=False)
class _Running:
    """A running write of this process.

    Attributes:
        config: The lake.
        write: The write.
        snapshot: The snapshot that it was planned on.
        parts: The ids of writes whose files it commits.
        begun: When it began, by the monotonic clock.
        renewed: When its lease was last renewed, by the monotonic clock; None if it has no lease.
        ended: Whether the write has ended.
        lock: Guards `ended`, so that no lease is recorded after the end.
    """

    config: LakeConfig
    write: Write
    snapshot: int
    parts: Sequence[str]
    begun: float = field(default_factory=time.monotonic)
    renewed: float | None = None
    ended: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def renew_if_due(self) -> None:
        """Record or renew the lease if it is due."""
        now = time.monotonic()
        if now < (self.begun + _BRIEF_S if self.renewed is None else self.renewed + _RENEW_S):
            return
        with self.lock:
            if self.ended:
                return
            try:
                _record_lease(self.config, self.write, self.snapshot, self.parts, self.begun, _LAPSE_S)
                self.renewed = now
            except (duckdb.Error, DuckLakeOrchError) as error:
                _log_failure(self.config, self.write, error)

    def end(self) -> None:
        """Mark the write as ended, and delete its lease if it has one."""
        with self.lock:
            self.ended = True
        if self.renewed is not None:
            remove_lease(self.config, self.write, self.parts)


class _Watch:
    """The running writes of this process, and the thread that records their leases."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writes: set[_Running] = set()
        self._thread: threading.Thread | None = None

    def add(self, running: _Running) -> None:
        with self._lock:
            self._writes.add(running)
            if self._thread is None:
                self._start()

    def remove(self, running: _Running) -> None:
        with self._lock:
            self._writes.discard(running)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="ducklake-orch writers", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:  # for example while the interpreter exits; the write continues without a lease
            log.debug("leases of running writes are not recorded: %s", error)
            return
        self._thread = thread

    def renew_leases(self) -> None:
        """Record or renew the leases that are due."""
        with self._lock:
            writes = list(self._writes)
        for write in writes:
            write.renew_if_due()

    def _run(self) -> None:
        while True:
            time.sleep(_CHECK_S)
            self.renew_leases()


_WATCH = _Watch()


def _begin_anew_after_fork() -> None:
    # The running writes belong to the parent process, and the child does not inherit the parent's thread.
    global _WATCH
    _WATCH = _Watch()


os.register_at_fork(after_in_child=_begin_anew_after_fork)
