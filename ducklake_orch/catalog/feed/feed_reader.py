"""Read a change feed in this process, as Arrow: read each file once and let DuckDB pair row versions into changes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from ducklake_orch.catalog.feed.feed_plan import FeedPlan, plan_feed, refuse_own_names
from ducklake_orch.catalog.feed.snapshot_range import Commit, FeedRequest
from ducklake_orch.catalog.metadata import Metadata, duckdb_type, reading
from ducklake_orch.catalog.parquet import (
    Span,
    arrow_value,
    changes_sql,
    events_sql,
    inlined_versions_sql,
    inserts_sql,
    read_versions,
    short,
)
from ducklake_orch.catalog.scan import snapshot_of
from ducklake_orch.engine.quoting import identifier

if TYPE_CHECKING:
    from ducklake_orch.facade.lake_base import LakeBase

_EVENTS, _COMMITS = "__ducklake_orch_events", "__ducklake_orch_snapshots"


def read_changes(lake: "LakeBase", request: FeedRequest, limit: int | None = None) -> pa.Table:
    """Return the changes, or at most `limit` of them, as an Arrow table, in the order of their snapshots."""
    with (
        lake.reading(entering=False) as session,
        reading(session, f"Reading the changes of `{request.table}`") as metadata,
    ):
        plan = plan_feed(metadata, request, snapshot_of(session, metadata))
        refuse_own_names(plan.range.table, plan.span.columns)
        _begin(metadata, plan)
        with session.instance.all_threads():
            return _read(metadata.con, plan, limit)


def commits_table(commits: Sequence[Commit]) -> pa.Table:
    """Return the snapshots that changes of a feed can belong to."""
    return pa.table(
        {
            "snapshot_id": pa.array([commit.snapshot_id for commit in commits], pa.int64()),
            "snapshot_time": pa.array([commit.time for commit in commits], pa.timestamp("us", "UTC")),
            "author": pa.array([commit.author for commit in commits], pa.string()),
            "idempotency_key": pa.array([commit.key for commit in commits], pa.string()),
        }
    )


def _begin(metadata: Metadata, plan: FeedPlan) -> None:
    """Create the table of events, with those of inlined rows."""
    con, span = metadata.con, plan.span
    types = "".join(f", {short(column)} {duckdb_type(column)}" for column in span.columns)
    # The rollback of the transaction drops this table.
    con.execute(f"CREATE TEMP TABLE {_EVENTS} (came BOOLEAN, snapshot BIGINT, row_id BIGINT, same VARCHAR{types})")
    for rows in plan.inlined:
        _add(con, span, inlined_versions_sql(rows, span.needed))


def _add(con: duckdb.DuckDBPyConnection, span: Span, versions: str) -> None:
    con.execute(f"INSERT INTO {_EVENTS} {events_sql(versions, span)}")


def _add_files(con: duckdb.DuckDBPyConnection, plan: FeedPlan) -> None:
    """Add the events of the files."""
    if plan.files:
        _add(con, plan.span, read_versions(con, plan.files, plan.span.needed, plan.mappings, plan.layouts).sql)


def _read(con: duckdb.DuckDBPyConnection, plan: FeedPlan, limit: int | None) -> pa.Table:
    """Add the events of the files, and pair all events."""
    span = plan.span
    _add_files(con, plan)
    as_changes = inserts_sql if plan.range.only_inserts else changes_sql
    kinds = {column.name: duckdb.sqltype(duckdb_type(column)) for column in span.columns}
    values = "".join(
        f", {arrow_value(short(column), kinds[column.name])} AS {identifier(column.name)}" for column in span.columns
    )
    con.register(_COMMITS, commits_table(plan.range.commits))
    try:
        return con.execute(
            "SELECT s.snapshot_id, s.snapshot_time, c.row_id AS rowid, c.kind AS change_type, s.author,"
            f" s.idempotency_key{values} FROM ({as_changes(_EVENTS, span.columns)}) c"
            f" JOIN {_COMMITS} s ON s.snapshot_id = c.snapshot ORDER BY c.snapshot, c.row_id, c.came"
            f" LIMIT {'NULL' if limit is None else int(limit)}"
        ).to_arrow_table()
    finally:
        con.unregister(_COMMITS)
