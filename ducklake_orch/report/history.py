"""Read a lake's history from its snapshots: when it was written, how it grew, and which bytes only it needs."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate

from ducklake_orch.catalog.metadata import Metadata, text
from ducklake_orch.engine.introspection import snapshot_of, snapshots_sql
from ducklake_orch.maintenance.census import Census, moment
from ducklake_orch.maintenance.write_times import kind_sql, unquoted_sql
from ducklake_orch.results import Result, Snapshot

# The number of equal periods into which the history is divided.
PERIODS = 48
KINDS = ("data", "definitions", "maintenance")


@dataclass(frozen=True)
class PastFiles(Result):
    """The files of a table that are retired, but that a retained snapshot still reads; expiry frees them."""

    files: int
    bytes: int


@dataclass(frozen=True)
class History(Result):
    """The history of a lake since its oldest snapshot.

    Attributes:
        since: When the oldest snapshot was created.
        until: The end of the last period.
        periods: The number of snapshots in each period, by kind: `data`, `definitions`, `maintenance`.
        recent: The latest snapshots.
        growth: The bytes of each table's live files at the end of each period, by table id.
        past: The files that only history needs, by table id, those of dropped tables included.
        names: The names of the tables whose ids the snapshots' changes contain.
    """

    since: datetime
    until: datetime
    periods: Sequence[Mapping[str, int]]
    recent: Sequence[Snapshot]
    growth: Mapping[int, Sequence[int]]
    past: Mapping[int, PastFiles]
    names: Mapping[int, str]

    @property
    def total_growth(self) -> Sequence[int]:
        """The bytes of all live files at the end of each period."""
        return [sum(sizes) for sizes in zip(*self.growth.values(), strict=True)] or [0] * PERIODS


def history(state: Census, recent: int) -> History:
    """Read the history of a lake, in a constant number of queries.

    Args:
        state: The lake as it is now.
        recent: The number of latest snapshots to list.
    """
    metadata, name = state.metadata, state.metadata.table_sql
    row = metadata.rows(f"SELECT epoch_us(min(snapshot_time)::TIMESTAMPTZ) FROM {name('ducklake_snapshot')}")[0]
    since = moment(row[0])
    until = max(state.at, since + timedelta(seconds=1))
    width = (until - since) / PERIODS
    periods = [Counter[str]() for _ in range(PERIODS)]
    for period, kind, count in metadata.rows(_made_sql(metadata, since, width)):
        periods[int(period)][kind] += int(count)
    listed = metadata.rows(snapshots_sql(metadata.config, f"<= {state.latest.snapshot_id}", recent))
    return History(
        since=since,
        until=until,
        periods=periods,
        recent=[snapshot_of(row) for row in listed],
        growth=_growth(metadata, since, width),
        past=_past(metadata),
        names=_names(metadata),
    )


def _period_sql(time: str, since: datetime, width: timedelta) -> str:
    """Return the SQL of the period of a time; the first period also includes everything earlier."""
    begin, size = int(since.timestamp() * 1e6), max(1, int(width.total_seconds() * 1e6))
    passed = f"(epoch_us({time}::TIMESTAMPTZ) - {begin}) // {size}"
    return f"least({PERIODS - 1}, greatest(0, coalesce({passed}, 0)))"


def _made_sql(metadata: Metadata, since: datetime, width: timedelta) -> str:
    name = metadata.table_sql
    return (
        f"SELECT {_period_sql('s.snapshot_time', since, width)}, {kind_sql(unquoted_sql('c.changes_made'))}, count(*)"
        f" FROM {name('ducklake_snapshot')} s LEFT JOIN {name('ducklake_snapshot_changes')} c USING (snapshot_id)"
        " GROUP BY ALL"
    )


def _growth(metadata: Metadata, since: datetime, width: timedelta) -> dict[int, Sequence[int]]:
    """Return the bytes of each table's live files at the end of each period.

    The time of an expired snapshot is unknown, so its changes count from the start.
    """
    name = metadata.table_sql
    rows = metadata.rows(f"""
        WITH moves AS (
            SELECT table_id, begin_snapshot AS snapshot_id, file_size_bytes AS bytes FROM {name("ducklake_data_file")}
            UNION ALL
            SELECT table_id, end_snapshot, -file_size_bytes FROM {name("ducklake_data_file")}
            WHERE end_snapshot IS NOT NULL)
        SELECT m.table_id, {_period_sql("s.snapshot_time", since, width)}, sum(m.bytes)::BIGINT
        FROM moves m LEFT JOIN {name("ducklake_snapshot")} s USING (snapshot_id) GROUP BY ALL""")
    moved: dict[int, list[int]] = defaultdict(lambda: [0] * PERIODS)
    for table_id, period, bytes_ in rows:
        moved[int(table_id)][int(period)] += int(bytes_)
    return {table: list(accumulate(steps)) for table, steps in moved.items()}


def _past(metadata: Metadata) -> dict[int, PastFiles]:
    """Return the retired data files and delete files that retained snapshots read, by table."""
    retired = " UNION ALL ".join(
        f"SELECT table_id, file_size_bytes FROM {metadata.table_sql(files)} WHERE end_snapshot IS NOT NULL"
        for files in ("ducklake_data_file", "ducklake_delete_file")
    )
    rows = metadata.rows(f"SELECT table_id, count(*), sum(file_size_bytes)::BIGINT FROM ({retired}) GROUP BY 1")
    return {int(table_id): PastFiles(int(files), int(size)) for table_id, files, size in rows}


def _names(metadata: Metadata) -> dict[int, str]:
    """Return the last known name of every table, including dropped ones."""
    name = metadata.table_sql
    rows = metadata.rows(
        f"SELECT t.table_id, max_by(s.schema_name || '.' || t.table_name, t.begin_snapshot)"
        f" FROM {name('ducklake_table')} t JOIN {name('ducklake_schema')} s USING (schema_id) GROUP BY 1"
    )
    return {int(number): text(known) or "" for number, known in rows}
