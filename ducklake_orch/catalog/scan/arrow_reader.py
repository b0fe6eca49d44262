"""Read a table or view as Arrow in this process, with one engine query that sees one snapshot."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from ducklake_orch.catalog.metadata import (
    MOVING_CHANGES,
    ColumnDef,
    count_inlined,
    deletions_sql,
    deletions_table,
    judged_by_rows,
    make_structs_readable,
    parse_tokens,
    reading,
    text,
    unreadable_structs,
)
from ducklake_orch.catalog.parquet import arrow_value
from ducklake_orch.catalog.scan.own_query import own_query
from ducklake_orch.catalog.scan.predicate import parse_predicate
from ducklake_orch.catalog.scan.reads_seen import note_read_of, write_reads
from ducklake_orch.catalog.scan.table_summary import snapshot_of
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classified, run
from ducklake_orch.engine.opening import catalog_queue
from ducklake_orch.engine.quoting import TableName, folded, identifier
from ducklake_orch.engine.retry import by_family, retrying
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import CatalogBusyError, ConfigError, DuckLakeOrchError, ObjectNotFoundError

if TYPE_CHECKING:
    from ducklake_orch.facade.lake_base import LakeBase

# The number of reads to try while other writers commit; the read after these holds the lake's lock.
_ATTEMPTS = 3


@dataclass(frozen=True)
class Selection:
    """What to read.

    Attributes:
        table: The table or view.
        columns: Names of the columns to return; None for all.
        where: A condition in DuckDB SQL.
        snapshot: The snapshot to read.
        as_of: The time to read at.
    """

    table: TableName
    columns: Sequence[str] | None = None
    where: str | None = None
    snapshot: int | None = None
    as_of: datetime | str | None = None

    def __post_init__(self) -> None:
        if self.columns is not None and (isinstance(self.columns, str) or not self.columns):
            raise ConfigError(
                f"`columns` = {self.columns!r} is not a list of names.", remedy="Leave it out to read all."
            )


def read_arrow(lake: "LakeBase", selection: Selection) -> pa.Table:
    """Return the rows as an Arrow table in memory."""
    rows = _read(lake, selection)
    write_reads(lake.config)
    return rows


def _read(lake: "LakeBase", selection: Selection) -> pa.Table:
    with _opened(lake, selection) as session:
        if dialect_of(lake.config).reads_one_moment:
            return _table(session, selection)
        # On other catalogs the engine reads the metadata tables one after the other, each in its current state. During
        # a compaction it can see files of the snapshot without their deletions. So read until no commit intervenes.
        for _ in range(_ATTEMPTS):
            before = _newest(session)
            rows = _table(session, selection)
            if _newest(session) == before:
                return rows
        with catalog_queue(lake.config, session.instance).hold(
            f"reading `{selection.table}`", lake.config.lock_timeout.total_seconds()
        ):
            return _table(session, selection)


def _table(session: Session, selection: Selection) -> pa.Table:
    with _run(session, selection) as con:
        return con.to_arrow_table()


def _newest(session: Session) -> int:
    with reading(session, "Looking for the latest snapshot") as metadata:
        return metadata.latest().snapshot_id


def read_batches(lake: "LakeBase", selection: Selection, batch_size: int) -> pa.RecordBatchReader:
    """Return the rows as a stream; its connection is closed at the end of the stream."""
    write_reads(lake.config)
    batches = _batches(lake, selection, batch_size)
    first = next(batches)
    # Only a stream that was imported through Arrow's C interface releases its source when it is closed.
    return pa.RecordBatchReader.from_stream(pa.RecordBatchReader.from_batches(first.schema, chain([first], batches)))


def _batches(lake: "LakeBase", selection: Selection, batch_size: int) -> Generator[pa.RecordBatch, None, None]:
    """Yield the rows in batches; the first batch is empty and has the schema."""
    with _opened(lake, selection) as session:
        start = _Start.of(session, selection) if not dialect_of(lake.config).reads_one_moment else None
        with _run(session, selection) as con:
            reader = con.to_arrow_reader(batch_size)
            yield pa.RecordBatch.from_pylist([], schema=reader.schema)
            yield from reader
            if start is not None:
                start.refuse_moved(session, selection)


@dataclass(frozen=True)
class _Start:
    """The state of a SQLite lake when a stream began.

    On SQLite, the engine reads deletions and inlined rows while the stream runs, so the end of the stream must check
    that they have not changed.

    Attributes:
        snapshot: The snapshot that the stream reads.
        newest: The latest snapshot when the stream began.
        table_id: The table's id; None for a view, which may read any table.
        inlined: Whether the table has inlined rows or inlined deletions, which are deleted when the snapshot expires.
    """

    snapshot: int
    newest: int
    table_id: int | None
    inlined: bool

    @classmethod
    def of(cls, session: Session, selection: Selection) -> "_Start":
        with reading(session, f"Reading the metadata of `{selection.table}`") as metadata:
            at, newest = snapshot_of(session, metadata), metadata.latest().snapshot_id
            table = metadata.find_table(selection.table, at)
            if table is None:
                return cls(at, newest, None, inlined=True)
            inlined = count_inlined(metadata, table, at)
            if name := deletions_table(metadata, table):
                inlined += int(metadata.rows(f"SELECT count(*) FROM ({deletions_sql(metadata, name, at)})")[0][0])
            return cls(at, newest, table.table_id, inlined > 0)

    def refuse_moved(self, session: Session, selection: Selection) -> None:
        """Raise an error if streamed rows may have been moved or deleted during the stream.

        Raises:
            CatalogBusyError: When the table was flushed or compacted, or its inlined rows may have expired.
        """
        with reading(session, f"Checking whether `{selection.table}` has changed") as metadata:
            done = dict(
                metadata.rows(
                    f"SELECT snapshot_id, changes_made FROM {metadata.table_sql('ducklake_snapshot')}"
                    f" LEFT JOIN {metadata.table_sql('ducklake_snapshot_changes')} USING (snapshot_id)"
                    f" WHERE snapshot_id > {self.newest} OR snapshot_id = {self.snapshot}"
                )
            )
        expired = self.inlined and self.snapshot not in done
        since = {snapshot: text(made) or "" for snapshot, made in done.items() if snapshot > self.newest}
        incomplete = len(since) < max(since, default=self.newest) - self.newest  # the latest never expires
        moved = (token.id for token in parse_tokens(",".join(since.values())) if token.kind in MOVING_CHANGES)
        if expired or incomplete or any(self.table_id in (None, table_id) for table_id in moved):
            raise CatalogBusyError(
                f"`{selection.table}` was flushed or compacted, or its snapshot expired, during the stream. On a SQLite"
                " catalog, the stream may therefore lack rows or repeat them.",
                remedy="Read it again, or use `lake.read`, which retries.",
            )


@contextmanager
def _opened(lake: "LakeBase", selection: Selection) -> Iterator[Session]:
    """Open the lake at the requested snapshot or time, and check that the table or view exists."""
    with lake.reading(selection.snapshot, selection.as_of) as session:
        if _has_unreadable_structs(session, selection):
            make_structs_readable(lake.config)
        yield session


@contextmanager
def _run(session: Session, selection: Selection) -> Iterator[duckdb.DuckDBPyConnection]:
    """Run the query for the duration of a block; DuckDB errors within it become ducklake-orch errors."""
    config, doing = session.config, f"Reading `{selection.table}` failed"
    with classified(config, doing), _connection(session) as con:
        query = _query(con, session, selection)
        what = f"reading `{selection.table}`"
        retrying(session.patience, what, lambda _: run(con, query, config, doing), attempts_for=_attempts)
        yield con


def _attempts(error: DuckLakeOrchError) -> int:
    """Return how many attempts an error is worth: whoever opened the lake has already retried a lost connection."""
    return by_family(error) if isinstance(error, CatalogBusyError) else 1


@contextmanager
def _connection(session: Session) -> Iterator[duckdb.DuckDBPyConnection]:
    if not session.instance.without_extension:
        yield session.con.unwrap()
        return
    with session.instance.root.cursor() as con:
        yield con


def _has_unreadable_structs(session: Session, selection: Selection) -> bool:
    """Return whether another program has inlined structs into the table that the engine cannot read.

    The same look at the catalog counts the read, and refuses a name that no table or view has, because the engine's own
    error would suggest metadata tables.
    """
    name = selection.table
    with reading(session, f"Looking for `{name}`") as metadata:
        at = snapshot_of(session, metadata)
        note_read_of(metadata, name, at, selection.where)
        if metadata.has_view(*name, at):
            return False
        return bool(unreadable_structs(metadata, metadata.table(name, at)))


def _query(con: duckdb.DuckDBPyConnection, session: Session, selection: Selection) -> str:
    source = selection.table.sql(session.config.alias)
    if session.instance.without_extension:
        source = f"({own_query(session, selection.table, selection.columns, selection.where)})"
    described = con.execute(f"FROM {source} LIMIT 0").description
    typed_names = [(column[0], str(column[1])) for column in described]
    names = {folded(name): name for name, _ in typed_names}
    for name in selection.columns or ():
        if folded(name) not in names:
            raise ObjectNotFoundError(
                f"`{selection.table}` has no column `{name}`.", remedy=nearest(name, list(names.values()))
            )
    kinds = {column[0]: column[1] for column in described}
    wanted = [names[folded(name)] for name in selection.columns or names.values()]
    columns = ", ".join(f"{arrow_value(identifier(name), kinds[name])} AS {identifier(name)}" for name in wanted)
    if selection.where is None:
        return f"SELECT {columns} FROM {source}"
    # Use the engine's description of the columns, because only the engine knows those of a view.
    defs = [ColumnDef(n, name, kind, True) for n, (name, kind) in enumerate(typed_names)]
    with session.instance.root.cursor() as parser:
        predicate = parse_predicate(parser, selection.where, defs)
    values = [
        (identifier(column.name), judged_by_rows(identifier(column.name), column.type)) for column in predicate.columns
    ]
    if judged := [f"{value} AS {name}" for name, value in values if value != name]:
        source = f"(SELECT * REPLACE ({', '.join(judged)}) FROM {source})"
    return f"SELECT {columns} FROM {source} WHERE {predicate.sql}"
