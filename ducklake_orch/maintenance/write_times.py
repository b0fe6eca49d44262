"""Find when the rows of each table were last changed, from what the snapshots record: `last_writes`."""

from datetime import datetime

from ducklake_orch.catalog.metadata import DATA_CHANGES, MOVING_CHANGES, Metadata
from ducklake_orch.maintenance.census import moment

# The engine also reads the token `flushed_inlined`.
_UPKEEP, _DATA = "|".join(sorted(MOVING_CHANGES | {"flushed_inlined"})), "|".join(sorted(DATA_CHANGES))


def unquoted_sql(changes: str) -> str:
    """Return the SQL of a snapshot's changes without quoted names, which may contain any text."""
    return f"regexp_replace(coalesce({changes}::VARCHAR, ''), '\"[^\"]*\"', '', 'g')"


def kind_sql(unquoted: str) -> str:
    """Return the SQL of the kind of a snapshot: `maintenance`, `data` or `definitions`.

    Args:
        unquoted: The SQL of its changes, without quoted names.
    """
    return (
        f"CASE WHEN regexp_matches({unquoted}, '(^|,)({_UPKEEP}):') THEN 'maintenance'"
        f" WHEN regexp_matches({unquoted}, '(^|,)({_DATA}):') THEN 'data' ELSE 'definitions' END"
    )


def last_writes(metadata: Metadata) -> dict[int, datetime]:
    """Return when rows of each table were last added, changed or deleted, by table id.

    Maintenance does not count. A table that was never written counts from its creation. If that snapshot has expired,
    the oldest retained one is returned, so that a table never seems older than it is.
    """
    name = metadata.table_sql
    rows = metadata.rows(f"""
        WITH times AS (
            SELECT snapshot_id, epoch_us(snapshot_time::TIMESTAMPTZ) AS time FROM {name("ducklake_snapshot")}),
        made AS (SELECT snapshot_id, {unquoted_sql("changes_made")} AS made FROM {name("ducklake_snapshot_changes")}),
        written AS (
            SELECT unnest(regexp_extract_all(made, '(?:^|,)(?:{_DATA}):(\\d+)', 1))::BIGINT AS table_id, time
            FROM made JOIN times USING (snapshot_id) WHERE {kind_sql("made")} = 'data'),
        created AS (SELECT table_id, min(begin_snapshot) AS snapshot_id FROM {name("ducklake_table")} GROUP BY 1)
        SELECT table_id, coalesce(max(w.time), max(t.time), (SELECT min(time) FROM times))
        FROM created LEFT JOIN times t USING (snapshot_id) LEFT JOIN written w USING (table_id) GROUP BY 1""")
    return {int(table_id): moment(time) for table_id, time in rows}
