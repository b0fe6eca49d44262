"""Find who writes to a lake, and where writers meet, from what their commits and leases record."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ducklake_orch.catalog.commit import read_leases
from ducklake_orch.catalog.metadata import text
from ducklake_orch.maintenance.census import Census, moment
from ducklake_orch.results import Result


@dataclass(frozen=True)
class Writer(Result):
    """The commits with one author.

    Attributes:
        author: The author; None for commits that name none.
        processes: The number of processes that made them with ducklake-orch.
        outside: The number of commits by other engines, which do not wait in the queue of ducklake-orch.
        retried: The number of commits by a task that Airflow had started before.
        last: The time of the latest one.
    """

    author: str | None
    commits: int
    processes: int
    outside: int
    retried: int
    last: datetime


@dataclass(frozen=True)
class RunningCommit(Result):
    """A write that has taken longer than a minute and has not committed yet.

    Attributes:
        owner: Its purpose, and the process that runs it.
        passed: The number of commits since it was planned.
    """

    owner: str
    started_at: datetime
    passed: int


@dataclass(frozen=True)
class Writers(Result):
    """The writers of a lake.

    Attributes:
        by_author: The writers, the most active first.
        running: The writes and stages that hold a lease.
        busiest: The minute with the most commits.
        busiest_commits: The number of commits in that minute.
        busiest_processes: The number of processes that made them.
    """

    by_author: Sequence[Writer]
    running: Sequence[RunningCommit]
    busiest: datetime
    busiest_commits: int
    busiest_processes: int


def writers(state: Census) -> Writers:
    """Read who wrote the retained snapshots, in a constant number of queries."""
    metadata, name = state.metadata, state.metadata.table_sql
    # Other programs may have stored any text. Snapshot 0 is the creation of the lake.
    commits = f"""
        SELECT snapshot_id, epoch_us(s.snapshot_time::TIMESTAMPTZ) AS time, author,
               json_extract_string(extra, '$.ducklake_orch.host')
               || ' ' || json_extract_string(extra, '$.ducklake_orch.process') AS process,
               TRY_CAST(json_extract_string(extra, '$.airflow.try_number') AS BIGINT) AS try_number
        FROM {name("ducklake_snapshot")} s LEFT JOIN (
            SELECT snapshot_id, author,
                   CASE WHEN json_valid(commit_extra_info::VARCHAR) THEN commit_extra_info::VARCHAR END AS extra
            FROM {name("ducklake_snapshot_changes")}) c USING (snapshot_id)"""
    by_author = metadata.rows(f"""
        SELECT author, count(*), count(DISTINCT process), count(*) FILTER (WHERE process IS NULL AND snapshot_id > 0),
               count(*) FILTER (WHERE try_number > 1), max(time)
        FROM ({commits}) GROUP BY 1 ORDER BY 2 DESC, 1""")
    busiest = metadata.rows(f"""
        SELECT time // 60000000 * 60000000, count(*), count(DISTINCT process)
        FROM ({commits}) GROUP BY 1 ORDER BY 2 DESC, 1 DESC LIMIT 1""")[0]
    return Writers(
        by_author=[_writer(row) for row in by_author],
        running=[
            RunningCommit(write.owner, write.started_at, max(0, state.latest.snapshot_id - write.snapshot_id))
            for write in read_leases(metadata).writes
            if not write.is_staged and not write.is_stream
        ],
        busiest=moment(busiest[0]),
        busiest_commits=int(busiest[1]),
        busiest_processes=int(busiest[2]),
    )


def _writer(row: Sequence[Any]) -> Writer:
    author, commits, processes, outside, retried, last = row
    return Writer(text(author), int(commits), int(processes), int(outside), int(retried), moment(last))
