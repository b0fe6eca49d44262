"""Follow a table for a stream: from which position to which its next batch goes, and whether it can go on at all."""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from ducklake_orch.catalog.commit import lease_stream
from ducklake_orch.catalog.feed.snapshot_range import Commit, FeedRequest, find_range
from ducklake_orch.catalog.feed.stream_position import Position, StreamRequest, rows_changed
from ducklake_orch.catalog.metadata import (
    ColumnDef,
    Metadata,
    TableDef,
    TableHistory,
    build_columns,
    inlined_versions,
    live,
    parse_tokens,
    reading,
    text,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import (
    ConfigError,
    HistoryExpiredError,
    SnapshotNotFoundError,
    StreamStoppedError,
    TableDroppedError,
)

# A stream of a table that does not change moves on after this many snapshots of other tables, or after this time.
_MOST_IDLE_SNAPSHOTS = 100
_LONGEST_IDLE_US = 3600 * 1_000_000
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
        if request.name is not None:
            refuse_read_only(config, f"keeping snapshots for the stream `{request.name}`")
        self.config = config
        self.request = request
        with self.reading() as metadata:
            self.base = metadata.latest().snapshot_id
            self.table: TableDef = metadata.table(request.table, self.base)
        self._until: int | None = None
        self._start: Position | None = None
        self._leased: int | None = None
        self._renewed = self._last_asked = 0.0
        self._is_idle = False

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
        """Return where the stream starts; each call returns the same."""
        if self._start is None:
            with self.reading() as metadata:
                self._start = replace(self._first(metadata), is_start=True)
        return self._start

    def _first(self, metadata: Metadata) -> Position:
        start, newest = self.request.start, metadata.latest().snapshot_id
        if start == "latest":
            return self._at(newest)
        if start == "earliest":
            name = metadata.table_sql("ducklake_table_stats")
            rows = metadata.rows(f"SELECT next_row_id FROM {name} WHERE table_id = {self.table.table_id}")
            return replace(self._at(newest), row=0, rows=int(rows[0][0]) if rows else None)
        if isinstance(start, datetime):
            if start > datetime.now(UTC):
                raise ConfigError(f"`start` = {start.isoformat()} is in the future.", remedy='Use `start="latest"`.')
            request = FeedRequest(self.request.table, from_time=start)
        else:
            if int(start) > newest + 1:
                raise SnapshotNotFoundError(
                    f"`start` = {start} is no snapshot of lake `{self.config.name}`, whose latest is {newest}.",
                    remedy='Use `start="latest"`.',
                )
            request = FeedRequest(self.request.table, from_snapshot=int(start))
        return self._at(min(find_range(metadata, request, newest).first - 1, newest))

    def next(self, position: Position, *, limited: bool) -> Position:
        """Return where the next batch ends; the same position if there is nothing to deliver.

        Args:
            position: Where it begins. Everything up to it is delivered.
            limited: Whether the limits of the request hold.

        Raises:
            HistoryExpiredError: When changes that are not delivered have expired.
            StreamStoppedError: When rows or columns have changed in a way that the stream does not deliver.
            TableDroppedError: When the table was dropped.
        """
        self.check(position)
        self._pause()
        self.renew_lease(position)
        with self.reading() as metadata:
            end = self._after(metadata, position, limited)
        self._is_idle = end is position
        self._last_asked = time.monotonic()
        if self._is_idle:
            return position
        return replace(end, began=position if position.is_start else None)

    def current(self, metadata: Metadata) -> TableDef:
        """Return the table as the catalog has it now, whatever its name is now, with the columns of the query.

        Raises:
            TableDroppedError: When it was dropped.
        """
        return replace(self._current_table(metadata), columns=self.table.columns)

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
                " one that had this name before it was dropped or renamed.",
                remedy="If the table was renamed, use its new name. Otherwise start the query with a new checkpoint.",
            )

    def renew_lease(self, position: Position) -> None:
        """Make maintenance keep the snapshots from a position on, if the stream has a name."""
        name, now = self.request.name, time.monotonic()
        if name is None or (position.snapshot == self._leased and now - self._renewed < _RENEW_S):
            return
        if lease_stream(self.config, name, str(self.table), position.snapshot):
            self._leased, self._renewed = position.snapshot, now

    def _pause(self) -> None:
        """Wait a moment after nothing was found: Spark asks a hundred times a second."""
        if self._is_idle:
            time.sleep(max(0.0, self._last_asked + _PAUSE_S - time.monotonic()))

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
            self._refuse_other_merges(metadata, position, newest)
            return self._after_rows(metadata, position) if limited else self._at(position.snapshot)
        newest = newest if self._until is None else min(newest, self._until)
        if newest <= position.snapshot:
            return position
        return self._after_changes(metadata, position, newest, limited)

    def _at(self, snapshot: int) -> Position:
        return Position(self.table.uuid, snapshot)

    def _after_rows(self, metadata: Metadata, position: Position) -> Position:
        """Return the position after some of the rows that the table has when the stream starts."""
        first, request = position.row or 0, self.request
        ends = [] if request.max_rows is None else [first + request.max_rows]
        if request.max_files is not None:
            files = metadata.rows(
                f"SELECT row_id_start FROM {metadata.table_sql('ducklake_data_file')} WHERE row_id_start > {first}"
                f" AND table_id = {self.table.table_id} AND {live(position.snapshot)}"
                f" ORDER BY row_id_start LIMIT 1 OFFSET {request.max_files - 1}"
            )
            ends += [int(row[0]) for row in files]
        if not ends or position.rows is None or min(ends) >= position.rows:
            return self._at(position.snapshot)
        return replace(position, row=min(ends), is_start=False)

    def _after_changes(self, metadata: Metadata, position: Position, newest: int, limited: bool) -> Position:
        span = FeedRequest(self.request.table, position.snapshot + 1, newest)
        now = self._current_table(metadata)
        commits = find_range(metadata, span, newest, now).of_table
        if not commits:
            return self._at(newest) if self._moves_on(metadata, position, newest) else position
        deliverable = self._before_stop(commits, self._altered(now))
        if limited:
            deliverable = self._limited(metadata, now, deliverable)
        return self._at(newest if len(deliverable) == len(commits) else deliverable[-1].snapshot_id)

    def _moves_on(self, metadata: Metadata, position: Position, newest: int) -> bool:
        """Return whether to move on with an empty batch, although only other tables have changed.

        Otherwise the stream would depend on old snapshots, which expire.
        """
        if self._until is not None or newest - position.snapshot >= _MOST_IDLE_SNAPSHOTS:
            return True
        times = [metadata.snapshot_time(snapshot) for snapshot in (position.snapshot, newest)]
        return times[0] is None or times[1] is None or times[1] - times[0] >= _LONGEST_IDLE_US

    def _before_stop(self, commits: Sequence[Commit], altered: int | None) -> Sequence[Commit]:
        """Return the commits before one that stops the stream."""
        for n, commit in enumerate(commits):
            if (stop := self._stop(commit, altered)) is not None:
                if n == 0:
                    raise stop
                return commits[:n]
        return commits

    def _stop(self, commit: Commit, altered: int | None) -> StreamStoppedError | None:
        if altered is not None and commit.snapshot_id >= altered:
            return StreamStoppedError(
                f"Snapshot {altered} changed the columns of `{self.table}`.",
                remedy="Start the query again, with the same checkpoint: it goes on with the new columns.",
            )
        if commit.deletes and not self.request.delivers_every_change:
            return rows_changed(commit.snapshot_id, str(self.table))
        return None

    def _limited(self, metadata: Metadata, now: TableDef, commits: Sequence[Commit]) -> Sequence[Commit]:
        """Return the first commits, up to the limits; at least one."""
        commits = commits[: self.request.max_snapshots]
        if self.request.max_rows is None and self.request.max_files is None:
            return commits
        most_rows, most_files = self.request.max_rows or math.inf, self.request.max_files or math.inf
        sizes = _sizes(metadata, now, commits[0].snapshot_id, commits[-1].snapshot_id)
        rows = files = 0.0
        for n, commit in enumerate(commits):
            of_commit = sizes.get(commit.snapshot_id, (0.0, 0.0))
            rows, files = rows + of_commit[0], files + of_commit[1]
            if n > 0 and (rows > most_rows or files > most_files):
                return commits[:n]
        return commits

    def _altered(self, now: TableDef) -> int | None:
        """Return the first snapshot since the query began that changed the columns so that the stream stops."""
        begins = {begin for version in now.past_columns for begin in (version.begin_snapshot, version.end_snapshot)}
        later = sorted(begin for begin in begins if begin is not None and begin > self.base)
        return next((begin for begin in later if self._differs(build_columns(now.past_columns, begin))), None)

    def _differs(self, columns: Sequence[ColumnDef]) -> bool:
        if self.request.schema_evolution == "error":
            return _shape(columns) != _shape(self.table.columns)
        types = dict(_types(columns))
        return any(types.get(number, kind) != kind for number, kind in _types(self.table.columns))

    def _refuse_other_merges(self, metadata: Metadata, position: Position, newest: int) -> None:
        """Refuse to go on with rows by their ids when another engine has merged files, which drops ids of updated rows.

        Raises:
            StreamStoppedError: When that has happened since the stream began.
        """
        if not position.row:
            return
        name = metadata.table_sql("ducklake_snapshot_changes")
        within = f"snapshot_id BETWEEN {position.snapshot + 1} AND {newest}"
        for snapshot, changes in metadata.rows(f"SELECT snapshot_id, changes_made FROM {name} WHERE {within}"):
            kinds = {token.kind for token in parse_tokens(text(changes)) if token.id == self.table.table_id}
            if kinds & {"merge_adjacent", "compacted_table"} and "inline_flush" not in kinds:  # ours record both
                raise StreamStoppedError(
                    f"Snapshot {snapshot}, of another engine, merged files of `{self.table}` before the stream had"
                    " delivered all its rows.",
                    remedy="Start the query with a new checkpoint, and without limits of rows and files: then the rows"
                    " come in one batch.",
                )

    def _current_table(self, metadata: Metadata) -> TableDef:
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


def _types(columns: Sequence[ColumnDef]) -> Iterator[tuple[int, str]]:
    for column in columns:
        yield column.column_id, column.type
        yield from _types(column.children)


def _shape(columns: Sequence[ColumnDef]) -> list[Any]:
    """Return what a stream delivers of columns: not their comments and defaults."""
    return [(column.column_id, column.name, column.type, _shape(column.children)) for column in columns]


def _sizes(metadata: Metadata, table: TableDef, first: int, last: int) -> dict[int, tuple[float, float]]:
    """Return about how many rows each snapshot has changed, and how many files it has added or retired."""
    name, of_table = metadata.table_sql, f"table_id = {table.table_id}"
    within = f"BETWEEN {first} AND {last}"
    # A merged file has rows of several snapshots.
    merged = "greatest(coalesce(partial_max, begin_snapshot) - begin_snapshot + 1, 1)"
    counts = [
        f"SELECT unnest(range(begin_snapshot, begin_snapshot + {merged})), record_count / {merged}, 1 / {merged}"
        f" FROM {name('ducklake_data_file')} WHERE {of_table} AND coalesce(partial_max, begin_snapshot) >= {first}",
        f"SELECT end_snapshot, record_count, 1 FROM {name('ducklake_data_file')}"
        f" WHERE {of_table} AND end_snapshot {within}",
        f"SELECT begin_snapshot, delete_count, 1 FROM {name('ducklake_delete_file')}"
        f" WHERE {of_table} AND begin_snapshot {within}",
    ]
    changed = f"begin_snapshot {within} OR end_snapshot {within}"
    for rows in inlined_versions(TableHistory(metadata, table), (), changed):
        counts += [f"SELECT {column}, 1, 0 FROM ({rows.sql})" for column in (rows.snapshot, rows.end)]
    parts = " UNION ALL ".join(f"SELECT * FROM ({sql}) counted(id, n, files) WHERE id {within}" for sql in counts)
    found = metadata.rows(f"SELECT id, sum(n), sum(files) FROM ({parts}) GROUP BY id")
    return {int(snapshot): (float(number), float(files)) for snapshot, number, files in found}
