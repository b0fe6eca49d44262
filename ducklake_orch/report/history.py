"""Read a lake's history from its snapshots: when it was written, by whom, and how its tables grew."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ducklake_orch.catalog.metadata import DATA_CHANGES, MOVING_CHANGES, Metadata, maybe_int, text
from ducklake_orch.engine.introspection import snapshot_of, snapshots_sql
from ducklake_orch.maintenance.census import Census, moment
from ducklake_orch.results import Result, Snapshot

# The number of equal periods into which the history is divided.
PERIODS = 48
KINDS = ("data", "definitions", "maintenance")
# The engine also reads the token `flushed_inlined`.
_UPKEEP, _DATA = "|".join(sorted(MOVING_CHANGES | {"flushed_inlined"})), "|".join(sorted(DATA_CHANGES))


@dataclass(frozen=True)
class History(Result):
    """The history of a lake since its oldest snapshot.

    Attributes:
        since: When the oldest snapshot was created.
        until: The end of the last period.
        periods: The number of snapshots in each period, by kind: `data`, `definitions`, `maintenance`.
        authors: The number of snapshots by author; `None` for snapshots without an author.
        recent: The latest snapshots.
        growth: The bytes of each table's files at the end of each period, by table id.
        changed: When files of each table were last added or retired, by table id.
        names: The names of the tables whose ids the snapshots' changes contain.
    """

    since: datetime
    until: datetime
    periods: Sequence[Mapping[str, int]]
    authors: Mapping[str | None, int]
    recent: Sequence[Snapshot]
    growth: Mapping[int, Sequence[int]]
    changed: Mapping[int, datetime]
    names: Mapping[int, str]


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
    authors = Counter[str | None]()
    for period, kind, author, count in metadata.rows(_made_sql(metadata, since, width)):
        periods[int(period)][kind] += int(count)
        authors[text(author)] += int(count)
    growth, changed = _growth(metadata, since, width)
    listed = metadata.rows(snapshots_sql(metadata.config, state.latest.snapshot_id, recent))
    return History(
        since=since,
        until=until,
        periods=periods,
        authors=dict(authors.most_common()),
        recent=[snapshot_of(row) for row in listed],
        growth=growth,
        changed=changed,
        names=_names(metadata),
    )


def _period_sql(time: str, since: datetime, width: timedelta) -> str:
    """Return the SQL of the period of a time; the first period also includes everything earlier."""
    begin, size = int(since.timestamp() * 1e6), max(1, int(width.total_seconds() * 1e6))
    passed = f"(epoch_us({time}::TIMESTAMPTZ) - {begin}) // {size}"
    return f"least({PERIODS - 1}, greatest(0, coalesce({passed}, 0)))"


def _made_sql(metadata: Metadata, since: datetime, width: timedelta) -> str:
    name = metadata.table_sql
    # Quoted names may contain any text, so they are removed.
    made = "regexp_replace(coalesce(c.changes_made::VARCHAR, ''), '\"[^\"]*\"', '', 'g')"
    kind = (
        f"CASE WHEN regexp_matches({made}, '(^|,)({_UPKEEP}):') THEN 'maintenance'"
        f" WHEN regexp_matches({made}, '(^|,)({_DATA}):') THEN 'data' ELSE 'definitions' END"
    )
    return (
        f"SELECT {_period_sql('s.snapshot_time', since, width)}, {kind}, c.author, count(*)"
        f" FROM {name('ducklake_snapshot')} s LEFT JOIN {name('ducklake_snapshot_changes')} c USING (snapshot_id)"
        " GROUP BY ALL"
    )


def _growth(
    metadata: Metadata, since: datetime, width: timedelta
) -> tuple[dict[int, Sequence[int]], dict[int, datetime]]:
    """Return the bytes of each table's files at the end of each period, and when they last changed.

    The time of an expired snapshot is unknown, so its changes count from the start.
    """
    name = metadata.table_sql
    rows = metadata.rows(f"""
        WITH moves AS (
            SELECT table_id, begin_snapshot AS snapshot_id, file_size_bytes AS bytes FROM {name("ducklake_data_file")}
            UNION ALL
            SELECT table_id, end_snapshot, -file_size_bytes FROM {name("ducklake_data_file")}
            WHERE end_snapshot IS NOT NULL)
        SELECT m.table_id, {_period_sql("s.snapshot_time", since, width)}, sum(m.bytes)::BIGINT,
               epoch_us(max(s.snapshot_time::TIMESTAMPTZ))
        FROM moves m LEFT JOIN {name("ducklake_snapshot")} s USING (snapshot_id) GROUP BY ALL""")
    moved: dict[int, list[int]] = defaultdict(lambda: [0] * PERIODS)
    changed: dict[int, datetime] = {}
    for table_id, period, bytes_, time in rows:
        moved[int(table_id)][int(period)] += int(bytes_)
        if (last := maybe_int(time)) is not None:
            changed[int(table_id)] = max(moment(last), changed.get(int(table_id), datetime.min.replace(tzinfo=UTC)))
    growth: dict[int, Sequence[int]] = {}
    for table, steps in moved.items():
        total, sums = 0, []
        for step in steps:
            total += step
            sums.append(total)
        growth[table] = sums
    return growth, changed


def _names(metadata: Metadata) -> dict[int, str]:
    """Return the last known name of every table, including dropped ones."""
    name = metadata.table_sql
    rows = metadata.rows(
        f"SELECT t.table_id, max_by(s.schema_name || '.' || t.table_name, t.begin_snapshot)"
        f" FROM {name('ducklake_table')} t JOIN {name('ducklake_schema')} s USING (schema_id) GROUP BY 1"
    )
    return {int(number): text(known) or "" for number, known in rows}
