"""Follow a table for a stream: from which position to which its next batch goes, and whether it can go on at all."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any

from ducklake_orch.catalog.commit import lease_stream
from ducklake_orch.catalog.feed.snapshot_range import Commit, FeedRequest, find_range
from ducklake_orch.catalog.feed.stream_position import Position, StreamRequest
from ducklake_orch.catalog.metadata import (
    ColumnDef,
    Metadata,
    TableDef,
    TableHistory,
    build_columns,
    inlined_versions,
    live,
    reading,
    text,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import (
    ConfigError,
    HistoryExpiredError,
    SnapshotNotFoundError,
    StreamStoppedError,
    TableDroppedError,
)

# A stream of a table that does not change moves on after this many snapshots of other tables, with an empty batch, so
# that it does not depend on old snapshots.
_MOST_IDLE_SNAPSHOTS = 100
# How often the lease of a stream is renewed, in seconds.
_RENEW_S = 300.0
# How long a stream waits after it has found nothing, in seconds.
_PAUSE_S = 0.2


class FollowedTable:
    """A table that a stream follows, with the columns that it had when the query began.

    Attributes:
        table: The table, at the snapshot `base`.
        base: The latest snapshot when the query began.
    """

    def __init__(self, config: LakeConfig, request: StreamRequest) -> None:
        if config.snapshot is not None or config.as_of is not None:
            raise ConfigError(
                f"Lake `{config.name}` is opened at a past snapshot, at which nothing happens any more.",
                remedy="Open it without `snapshot` and `as_of`.",
            )
        self.config = config
        self.request = request
        with self.reading() as metadata:
            self.base = metadata.latest().snapshot_id
            self.table: TableDef = metadata.table(request.table, self.base)
        self._until: int | None = None
        self._renewed = self._looked = 0.0
        self._idle = False

    @contextmanager
    def reading(self) -> Iterator[Metadata]:
        """Read the metadata tables for a block."""
        with (
            open_session(self.config, entering=False) as session,
            reading(session, f"Following `{self.request.table}`") as metadata,
        ):
            yield metadata

    def stop_at_latest(self) -> None:
        """Deliver nothing that is committed from now on."""
        with self.reading() as metadata:
            self._until = metadata.latest().snapshot_id

    def latest(self) -> Position:
        """Return the position after all that is committed."""
        with self.reading() as metadata:
            return self._at(metadata.latest().snapshot_id)

    def first(self) -> Position:
        """Return where the stream starts."""
        start = self.request.start
        with self.reading() as metadata:
            newest = metadata.latest().snapshot_id
            if start == "latest":
                return self._at(newest)
            if start == "earliest":
                return self._at(newest, 0)
            request = (
                FeedRequest(self.request.table, from_time=start)
                if isinstance(start, datetime)
                else FeedRequest(self.request.table, from_snapshot=int(start))
            )
            return self._at(min(find_range(metadata, request, newest).first - 1, newest))

    def next(self, position: Position, *, limited: bool) -> Position:
        """Return where the next batch ends; the same position if there is nothing to deliver.

        Args:
            position: Where it begins.
            limited: Whether the limits of the request hold.

        Raises:
            HistoryExpiredError: When changes that are not delivered have expired.
            StreamStoppedError: When rows or columns have changed in a way that the stream does not deliver.
            TableDroppedError: When the table was dropped.
        """
        self.check(position)
        self._pause()
        with self.reading() as metadata:
            end = self._after(metadata, position, limited)
        self._idle = end == position
        self._looked = time.monotonic()
        return end

    def current(self, metadata: Metadata) -> TableDef:
        """Return the table as the catalog has it now, whatever its name is now, with the columns of the query.

        Raises:
            TableDroppedError: When it was dropped.
        """
        return replace(self._now(metadata), columns=self.table.columns)

    def refuse_expired(self, metadata: Metadata, position: Position) -> None:
        """Refuse to deliver the rows that the table had at a snapshot that has expired.

        Raises:
            HistoryExpiredError: When it has expired.
        """
        if metadata.snapshot(position.snapshot) is None:
            raise HistoryExpiredError(
                f"The stream has not delivered all rows that `{self.table}` had at snapshot {position.snapshot}, which"
                " has expired.",
                remedy="Start the query with a new checkpoint, and give the stream a `name`, so that maintenance keeps"
                " what it needs.",
            )

    def check(self, position: Position) -> None:
        """Check that a position is one of this table.

        Raises:
            TableDroppedError: When it is not.
        """
        if position.table != self.table.uuid:
            raise TableDroppedError(
                f"The checkpoint of the stream is of another table than `{self.table}`: of one in another lake, or of"
                " one that had this name and was dropped.",
                remedy="Start the query with a new checkpoint.",
            )

    def keep(self, position: Position) -> None:
        """Keep the snapshots from a position on, if the stream has a name."""
        if self.request.name is not None:
            lease_stream(self.config, self.request.name, f"{self.table}", position.snapshot)
            self._renewed = time.monotonic()

    def keep_again(self, position: Position) -> None:
        """Do so if it was done last some minutes ago: a stream of a table that does not change commits no batches."""
        if time.monotonic() - self._renewed > _RENEW_S:
            self.keep(position)

    def _pause(self) -> None:
        """Wait a moment after nothing was found: Spark asks a hundred times a second."""
        if self._idle:
            time.sleep(max(0.0, self._looked + _PAUSE_S - time.monotonic()))

    def _after(self, metadata: Metadata, position: Position, limited: bool) -> Position:
        newest = metadata.latest().snapshot_id
        if position.snapshot > newest:
            raise SnapshotNotFoundError(
                f"The stream has delivered `{self.table}` up to snapshot {position.snapshot}, and the latest snapshot"
                f" is {newest}.",
                remedy="If the catalog was restored from a backup, start the query with a new checkpoint.",
            )
        if position.row is not None:
            self.refuse_expired(metadata, position)
            return self._after_rows(metadata, position, limited)
        newest = newest if self._until is None else min(newest, self._until)
        if newest <= position.snapshot:
            return position
        return self._after_changes(metadata, position, newest, limited)

    def _at(self, snapshot: int, row: int | None = None) -> Position:
        return Position(self.table.uuid, snapshot, row)

    def _after_rows(self, metadata: Metadata, position: Position, limited: bool) -> Position:
        name = metadata.table_sql("ducklake_table_stats")
        rows = metadata.rows(f"SELECT next_row_id FROM {name} WHERE table_id = {self.table.table_id}")
        following = (
            None if self.request.max_rows is None or not limited else (position.row or 0) + self.request.max_rows
        )
        if following is None or not rows or following >= int(rows[0][0]):
            return self._at(position.snapshot)
        return self._at(position.snapshot, following)

    def _after_changes(self, metadata: Metadata, position: Position, newest: int, limited: bool) -> Position:
        span = FeedRequest(self.request.table, position.snapshot + 1, newest)
        now = self._now(metadata)
        commits = [commit for commit in find_range(metadata, span, newest, now).commits if commit.concerns_table]
        altered = self._altered(now)
        if not commits:
            idle = newest - position.snapshot >= _MOST_IDLE_SNAPSHOTS
            return self._at(newest) if idle else position
        deliverable = self._before_stop(commits, altered)
        if limited:
            deliverable = self._limited(metadata, now, deliverable)
        return self._at(newest if len(deliverable) == len(commits) else deliverable[-1].snapshot_id)

    def _before_stop(self, commits: Sequence[Commit], altered: int | None) -> Sequence[Commit]:
        """Return the commits before one that stops the stream."""
        for n, commit in enumerate(commits):
            stop: tuple[str, str] | None = None
            if altered is not None and commit.snapshot_id >= altered:
                stop = (
                    f"Snapshot {altered} changed the columns of `{self.table}`.",
                    "Start the query again, with the same checkpoint: it goes on with the new columns. With"
                    ' `schema_evolution="follow"` a query keeps the columns that it began with.',
                )
            elif commit.deletes and not self.request.delivers_every_change:
                stop = (
                    f"Snapshot {commit.snapshot_id} updated or deleted rows of `{self.table}`, and the stream delivers"
                    " inserted rows only.",
                    'Set `on_update="ignore"` to leave out such changes, `on_update="changes"` to also deliver the new'
                    " versions of updated rows, or `changes=True` for the change feed.",
                )
            if stop is not None:
                if n == 0:
                    raise StreamStoppedError(stop[0], remedy=stop[1])
                return commits[:n]
        return commits

    def _limited(self, metadata: Metadata, now: TableDef, commits: Sequence[Commit]) -> Sequence[Commit]:
        """Return the first commits, up to the limits; at least one."""
        commits = commits[: self.request.max_snapshots]
        if self.request.max_rows is None:
            return commits
        rows = _changed_rows(metadata, now, commits[0].snapshot_id, commits[-1].snapshot_id)
        total = 0
        for n, commit in enumerate(commits):
            total += rows.get(commit.snapshot_id, 0)
            if n > 0 and total > self.request.max_rows:
                return commits[:n]
        return commits

    def _altered(self, now: TableDef) -> int | None:
        """Return the first snapshot since the query began that changed the columns, if the stream stops at it."""
        if self.request.schema_evolution == "follow":
            return None
        begins = {begin for version in now.past_columns for begin in (version.begin_snapshot, version.end_snapshot)}
        later = sorted(begin for begin in begins if begin is not None and begin > self.base)
        began_with = _shape(self.table.columns)
        return next((begin for begin in later if _shape(build_columns(now.past_columns, begin)) != began_with), None)

    def _now(self, metadata: Metadata) -> TableDef:
        newest = metadata.latest().snapshot_id
        tables, schemas = (metadata.table_sql(name) for name in ("ducklake_table", "ducklake_schema"))
        rows = metadata.rows(
            f"SELECT s.schema_name, t.table_name FROM {tables} t JOIN {schemas} s USING (schema_id)"
            f" WHERE t.table_id = {self.table.table_id} AND {live(newest, 't')} AND {live(newest, 's')}"
        )
        if not rows:
            raise TableDroppedError(
                f"`{self.table}` was dropped while the stream followed it.",
                remedy="If there is a new table of this name, start the query with a new checkpoint.",
            )
        return metadata.table(TableName(text(rows[0][0]) or "", text(rows[0][1]) or ""), newest)


def _shape(columns: Sequence[ColumnDef]) -> list[Any]:
    """Return what a stream delivers of columns: not their comments and defaults."""
    return [(column.column_id, column.name, column.type, _shape(column.children)) for column in columns]


def _changed_rows(metadata: Metadata, table: TableDef, first: int, last: int) -> dict[int, int]:
    """Return about how many rows each snapshot has changed."""
    name, of_table = metadata.table_sql, f"table_id = {table.table_id}"
    within = f"BETWEEN {first} AND {last}"
    counts = [
        f"SELECT begin_snapshot, record_count FROM {name('ducklake_data_file')} WHERE {of_table}",
        f"SELECT end_snapshot, record_count FROM {name('ducklake_data_file')} WHERE {of_table}",
        f"SELECT begin_snapshot, delete_count FROM {name('ducklake_delete_file')} WHERE {of_table}",
    ]
    changed = f"begin_snapshot {within} OR end_snapshot {within}"
    for rows in inlined_versions(TableHistory(metadata, table), (), changed):
        counts += [f"SELECT {column}, 1 FROM ({rows.sql})" for column in (rows.snapshot, rows.end)]
    parts = " UNION ALL ".join(f"SELECT * FROM ({sql}) counted(id, n) WHERE id {within}" for sql in counts)
    found = metadata.rows(f"SELECT id, sum(n) FROM ({parts}) GROUP BY id")
    return {int(snapshot): int(number) for snapshot, number in found}
