"""The errors for snapshots that do not exist: never committed, or expired."""

import re
from datetime import UTC, datetime
from typing import NamedTuple

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.errors import DuckLakeOrchError, HistoryExpiredError, SnapshotNotFoundError

_LISTED = "`ducklake-orch snapshots` lists them."
# What the extension says of a snapshot that it does not find.
_NOT_FOUND = re.compile(r"No snapshot found at (version|timestamp) (.+)")


class Retained(NamedTuple):
    """The snapshots that a lake has.

    Attributes:
        first: The oldest one.
        last: The latest one.
        number: How many there are. Those between the first and the last can expire, too.
        since: The time of the oldest one, if it is known.
    """

    first: int
    last: int
    number: int
    since: datetime | None = None

    def __str__(self) -> str:
        if self.first == self.last:
            return f"the only snapshot is {self.last}"
        gaps = ", with gaps" if self.number <= self.last - self.first else ""
        return f"the snapshots are {self.first} to {self.last}{gaps}"


def retained_sql(table: str) -> str:
    """Return the query for the fields of `Retained`, except the time, in the SQL of every catalog.

    Args:
        table: The qualified name of `ducklake_snapshot`.
    """
    return f"SELECT min(snapshot_id), max(snapshot_id), count(*) FROM {table}"


def missing_snapshot(wanted: int, retained: Retained, doing: str | None = None) -> SnapshotNotFoundError:
    """Return the error for a snapshot that does not exist: another one if it has expired than if it never existed.

    Args:
        wanted: The id of the snapshot.
        retained: The snapshots that exist.
        doing: What failed, for the message.
    """
    begin = f"{doing}: " if doing else ""
    if 0 <= wanted <= retained.last:  # ids are given without gaps
        return HistoryExpiredError(f"{begin}Snapshot {wanted} has expired: {retained}.", remedy=_LISTED)
    return SnapshotNotFoundError(f"{begin}There is no snapshot {wanted}: {retained}.", remedy=_LISTED)


def missing_time(wanted: str, retained: Retained, doing: str | None = None) -> SnapshotNotFoundError:
    """Return the error for a time at which there is no snapshot.

    Args:
        wanted: The time.
        retained: The snapshots that exist.
        doing: What failed, for the message.
    """
    begin = f"{doing}: " if doing else ""
    of = f", of {retained.since.isoformat(sep=' ', timespec='seconds')}" if retained.since else ""
    if retained.first > 0:
        text = f"{begin}No snapshot of {wanted} or before is retained: the oldest one is {retained.first}{of}."
        return HistoryExpiredError(text, remedy=_LISTED)
    text = f"{begin}There is no snapshot of {wanted} or before: the first one is {retained.first}{of}."
    return SnapshotNotFoundError(text, remedy=_LISTED)


def with_retained(
    failure: DuckLakeOrchError, con: duckdb.DuckDBPyConnection, config: LakeConfig, doing: str | None = None
) -> DuckLakeOrchError:
    """Return the error for a snapshot that the extension did not find, with the snapshots that exist.

    Args:
        failure: Any error; one of another kind is returned as it is.
        con: A connection to which the lake is attached.
        config: The lake.
        doing: What failed, for the message.
    """
    found = _NOT_FOUND.search(failure.message) if isinstance(failure, SnapshotNotFoundError) else None
    if found is None:
        return failure
    kind, wanted = found.groups()
    retained = _retained(con, config)
    if retained is None:
        return failure
    if kind == "version":
        return missing_snapshot(int(wanted), retained, doing)
    return missing_time(wanted, retained, doing)


def _retained(con: duckdb.DuckDBPyConnection, config: LakeConfig) -> Retained | None:
    table = dialect_of(config).attached("ducklake_snapshot")
    oldest = f"SELECT epoch_us(snapshot_time::TIMESTAMPTZ) FROM {table} ORDER BY snapshot_id LIMIT 1"
    try:
        row, time = con.execute(retained_sql(table)).fetchone(), con.execute(oldest).fetchone()
    except duckdb.Error:
        return None  # the given error says what failed
    if not row or not row[2] or not time:
        return None
    return Retained(int(row[0]), int(row[1]), int(row[2]), datetime.fromtimestamp(time[0] // 10**6, UTC))
