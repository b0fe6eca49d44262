"""Find the snapshots that a change feed covers, and check that all their changes are still known."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from ducklake_orch.catalog.commit import KEYS_TABLE, has_keys
from ducklake_orch.catalog.metadata import DELETING_CHANGES, MOVING_CHANGES, Metadata, TableDef, parse_tokens, text
from ducklake_orch.engine.missing_snapshots import Retained, missing_snapshot, missing_time
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError, HistoryExpiredError


@dataclass(frozen=True)
class FeedRequest:
    """The arguments of `lake.changes`."""

    table: TableName
    from_snapshot: int | None = None
    to_snapshot: int | None = None
    from_time: datetime | None = None
    to_time: datetime | None = None
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for end, snapshot, time in (
            ("from", self.from_snapshot, self.from_time),
            ("to", self.to_snapshot, self.to_time),
        ):
            if snapshot is not None and time is not None:
                raise ConfigError(f"`{end}_snapshot` and `{end}_time` cannot be combined.", remedy="Give one of them.")
            if snapshot is not None and (not isinstance(snapshot, int) or isinstance(snapshot, bool) or snapshot < 0):
                raise ConfigError(f"`{end}_snapshot` = {snapshot!r} is not a snapshot id.")
            if time is not None and time.tzinfo is None:
                raise ConfigError(
                    f"`{end}_time` = {time.isoformat()} has no time zone.", remedy="Add one, such as `+00:00`."
                )
        if None not in (self.from_snapshot, self.to_snapshot) and self.from_snapshot > self.to_snapshot:  # type: ignore[operator]
            raise ConfigError(f"`from_snapshot` = {self.from_snapshot} is after `to_snapshot` = {self.to_snapshot}.")


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot, as the feed shows it.

    Attributes:
        time: Commit time in microseconds since 1970, in UTC.
        kinds: The kinds of changes of the table that it recorded; None if it recorded nothing and may have done
            anything.
    """

    snapshot_id: int
    time: int
    author: str | None
    key: str | None
    kinds: frozenset[str] | None = None

    @property
    def only_inserts(self) -> bool:
        """Whether it only added rows of the table, or none."""
        return self.kinds is not None and self.kinds.isdisjoint(DELETING_CHANGES)

    @property
    def deletes(self) -> bool:
        """Whether it may have updated or deleted rows of the table."""
        # The engine also records a deletion when its flush moves inlined deletions to files.
        return not self.only_inserts and "inline_flush" not in (self.kinds or ())


@dataclass(frozen=True)
class FeedRange:
    """The snapshots of a feed.

    Attributes:
        table: The table at the last snapshot.
        commits: The snapshots that may have changed rows of the table, in order.
    """

    table: TableDef
    first: int
    last: int
    commits: tuple[Commit, ...]

    @property
    def only_inserts(self) -> bool:
        """Whether all of them only added rows."""
        return all(commit.only_inserts for commit in self.commits)

    @property
    def of_table(self) -> tuple[Commit, ...]:
        """The snapshots that changed the table, according to what they recorded."""
        return tuple(commit for commit in self.commits if commit.kinds != frozenset())

    def divided(self, most: int) -> Iterator["FeedRange"]:
        """Divide the range into at most so many parts, of about as many snapshots that changed the table."""
        of_table = self.of_table
        size = max(1, -(-len(of_table) // most))
        for start in range(0, len(of_table), size):
            first, last = of_table[start].snapshot_id, of_table[start : start + size][-1].snapshot_id
            inside = tuple(commit for commit in self.commits if first <= commit.snapshot_id <= last)
            yield replace(self, first=first, last=last, commits=inside)

    def meets(self, begin: int, end: int) -> bool:
        """Return whether a snapshot from `begin` to `end` may have changed rows."""
        return bisect_left(self._ids, begin) < bisect_right(self._ids, end)

    @cached_property
    def _ids(self) -> list[int]:
        return [commit.snapshot_id for commit in self.commits]


def find_range(metadata: Metadata, request: FeedRequest, newest: int, as_table: TableDef | None = None) -> FeedRange:
    """Find the snapshots that a request covers.

    Args:
        metadata: The metadata tables.
        request: The arguments of the feed.
        newest: The latest snapshot to consider.
        as_table: The table in whose columns to return the rows; by default as it is at the last snapshot.

    Raises:
        HistoryExpiredError: When changes of the table in the range have expired.
        ObjectNotFoundError: When the table does not exist at the end of the range.
        SnapshotNotFoundError: When the end of the range is not a snapshot.
    """
    # A stream asks often, and knows where it begins: the snapshots before that do not matter to it.
    since = max(0, request.from_snapshot - 1) if as_table and request.from_snapshot is not None else 0
    times = _times(metadata, f"snapshot_id BETWEEN {since} AND {newest}") or _times(metadata, "true")
    last = _last(request, times, newest)
    table = as_table or metadata.table(request.table, last)
    created = _created_in(metadata, table)
    known_from = _known_from(times, created, last)
    first = _first(request, times, known_from)
    if max(first, created) < known_from and first <= last:
        raise HistoryExpiredError(
            f"Changes of `{table}` since snapshot {first} are requested, but those before {known_from} have expired.",
            remedy=f"Request changes from snapshot {known_from} on, and retain snapshots for longer.",
        )
    first = max(first, created)
    commits = _commits(metadata, table, first, last, times) if first <= last else ()
    return FeedRange(table, first, last, commits)


def _times(metadata: Metadata, condition: str) -> dict[int, int]:
    """Return the times of snapshots, in microseconds, by their ids."""
    rows = metadata.rows(
        f"SELECT snapshot_id, epoch_us(snapshot_time::TIMESTAMPTZ) FROM {metadata.table_sql('ducklake_snapshot')}"
        f" WHERE {condition} ORDER BY snapshot_id"
    )
    return {int(row[0]): int(row[1]) for row in rows}


def _last(request: FeedRequest, times: dict[int, int], newest: int) -> int:
    if request.to_time is not None:
        end = _micros(request.to_time)
        snapshots = [snapshot for snapshot, time in times.items() if time <= end]
        if not snapshots:
            raise missing_time(str(request.to_time), _retained(times))
        return max(snapshots)
    last = newest if request.to_snapshot is None else request.to_snapshot
    if last not in times:
        raise missing_snapshot(last, _retained(times))
    return last


def _retained(times: dict[int, int]) -> Retained:
    first = min(times)
    return Retained(first, max(times), len(times), datetime.fromtimestamp(times[first] // 10**6, UTC))


def _first(request: FeedRequest, times: dict[int, int], known_from: int) -> int:
    if request.from_time is not None:
        begin = _micros(request.from_time)
        return min((snapshot for snapshot, time in times.items() if time >= begin), default=max(times) + 1)
    return known_from if request.from_snapshot is None else request.from_snapshot


def _micros(time: datetime) -> int:
    delta = time.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds


def _created_in(metadata: Metadata, table: TableDef) -> int:
    """Return the snapshot that created a table; rows of earlier table names may have expired from the catalog."""
    name = metadata.table_sql("ducklake_table")
    rows = metadata.rows(f"SELECT min(begin_snapshot) FROM {name} WHERE table_id = {table.table_id}")
    begins = [column.begin_snapshot for column in table.past_columns] + [begin for begin, _ in table.schema_versions]
    return min(int(rows[0][0]), *begins)


def _known_from(times: dict[int, int], created: int, last: int) -> int:
    """Return the first snapshot from which all changes are known.

    Rows that a snapshot removed are known only while the snapshot before it, which still had them, is retained.
    """
    first = last
    while first > created and first - 1 in times:
        first -= 1
    return first if first == created else first + 1


def _commits(metadata: Metadata, table: TableDef, first: int, last: int, times: dict[int, int]) -> tuple[Commit, ...]:
    keys = {}
    if has_keys(metadata):
        # Query the server directly: DuckDB may not know yet that another process has created the table.
        name = metadata.dialect.table(KEYS_TABLE)
        sql = f"select snapshot_id, idempotency_key from {name} where table_id = {table.table_id}"
        sql += f" and snapshot_id between {first} and {last}"
        rows = metadata.rows(metadata.dialect.query(sql))
        keys = {int(row[0]): text(row[1]) for row in rows}
    name = metadata.table_sql("ducklake_snapshot_changes")
    between = f"snapshot_id BETWEEN {first} AND {last}"
    changes = {
        int(row[0]): (text(row[1]), text(row[2]))
        for row in metadata.rows(f"SELECT snapshot_id, changes_made, author FROM {name} WHERE {between}")
    }
    commits = []
    for snapshot in range(first, last + 1):
        tokens, author = changes.get(snapshot, (None, None))
        kinds = frozenset(token.kind for token in parse_tokens(tokens) if token.id == table.table_id)
        if not kinds or not kinds <= MOVING_CHANGES:
            recorded = None if tokens is None else kinds
            commits.append(Commit(snapshot, times[snapshot], author, keys.get(snapshot), recorded))
    return tuple(commits)
