"""List a lake's tables, snapshots and options from its metadata tables, at the session's snapshot."""

import json
import re
from typing import Any, Literal

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.quoting import TableName, folded, literal
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.snapshots import current_snapshot, last_committed_sql, metadata
from ducklake_orch.results import Option, Snapshot, Table

# A change is `kind:id` or `kind:"schema"."name"`; commas inside quotes belong to the name.
_CHANGE = re.compile(r'[a-z_]+:(?:"(?:[^"]|"")*"(?:\."(?:[^"]|"")*")?|\d+)')


# What `snapshot_of` reads.
_SNAPSHOT = (
    "s.snapshot_id, s.snapshot_time, s.schema_version, c.changes_made, c.author, c.commit_message, c.commit_extra_info"
)
# The catalogs store times in types of their own.
_TYPED = "* REPLACE (snapshot_time::TIMESTAMPTZ AS snapshot_time)"
NO_SUMMARY: dict[str, Any] = dict.fromkeys(("snapshot_count", "latest_snapshot", "table_count", "tables", "latest"))


def summary(session: Session) -> tuple[dict[str, Any], int | None]:
    """Return what `execute` reports about the lake, and the snapshot that this session committed last."""
    config, table = session.config, dialect_of(session.config).table
    # One query, because each takes a server far longer to begin and end than to run: a row for the latest snapshot, and
    # one for each table.
    sql = (
        f"SELECT n.snapshots, {_SNAPSHOT}, NULL AS schema_name, NULL AS table_name"
        f" FROM (SELECT count(*) AS snapshots, max(snapshot_id) AS latest FROM {table('ducklake_snapshot')}) n"
        f" JOIN {table('ducklake_snapshot')} s ON s.snapshot_id = n.latest"
        f" LEFT JOIN {table('ducklake_snapshot_changes')} c ON c.snapshot_id = s.snapshot_id"
        f" UNION ALL SELECT {'NULL, ' * 8}s.schema_name, t.table_name FROM {table('ducklake_table')} t"
        f" JOIN {table('ducklake_schema')} s ON s.schema_id = t.schema_id"
        " WHERE t.end_snapshot IS NULL AND s.end_snapshot IS NULL"
    )
    found = f"SELECT {_TYPED}, ({last_committed_sql(config)}) FROM ({dialect_of(config).query(sql)})"
    rows = session.instance.root.execute(found).fetchall()
    count, *latest, _, _, committed = next(row for row in rows if row[0] is not None)
    names = sorted(str(TableName(_text(row[8]) or "", _text(row[9]) or "")) for row in rows if row[0] is None)
    lake = (int(count), int(latest[0]), len(names), names, snapshot_of(latest))
    return dict(zip(NO_SUMMARY, lake, strict=True)), committed


def tables(session: Session) -> list[Table]:
    """List the tables with one query."""
    at, name = current_snapshot(session), metadata
    live = f"begin_snapshot <= {at} AND (end_snapshot IS NULL OR end_snapshot > {at})"
    config = session.config
    sql = f"""
        SELECT s.schema_name, t.table_name, t.table_id, t.table_uuid, coalesce(f.files, 0), coalesce(f.bytes, 0),
               c.value
        FROM (FROM {name(config, "ducklake_table")} WHERE {live}) t
        JOIN (FROM {name(config, "ducklake_schema")} WHERE {live}) s USING (schema_id)
        LEFT JOIN (SELECT table_id, count(*) AS files, sum(file_size_bytes) AS bytes
                   FROM {name(config, "ducklake_data_file")} WHERE {live} GROUP BY table_id) f USING (table_id)
        LEFT JOIN (FROM {name(config, "ducklake_tag")} WHERE {live} AND key = 'comment') c ON c.object_id = t.table_id
        ORDER BY 1, 2"""
    rows = session.instance.root.execute(sql).fetchall()
    return [Table(str(r[0]), str(r[1]), int(r[2]), str(r[3]), int(r[4]), int(r[5]), _text(r[6])) for r in rows]


def snapshots(session: Session, limit: int | None = None) -> list[Snapshot]:
    """List snapshots, newest first."""
    sql = snapshots_sql(session.config, f"<= {current_snapshot(session)}", limit)
    return [snapshot_of(row) for row in session.instance.root.execute(sql).fetchall()]


def snapshots_sql(config: LakeConfig, ids: str, limit: int | None = None) -> str:
    """Return the query for snapshots, newest first; `snapshot_of` turns its rows into snapshots.

    Args:
        config: The lake.
        ids: The condition for their ids, such as `<= 7`.
        limit: The largest number of snapshots.
    """
    return f"""
        SELECT {_TYPED}
        FROM (SELECT {_SNAPSHOT} FROM {metadata(config, "ducklake_snapshot")} s
              LEFT JOIN {metadata(config, "ducklake_snapshot_changes")} c USING (snapshot_id)
              WHERE s.snapshot_id {ids})
        ORDER BY snapshot_id DESC{"" if limit is None else f" LIMIT {int(limit)}"}"""


def snapshot_of(row: Any) -> Snapshot:
    """Return the snapshot of a row of `snapshots_sql`."""
    extra = _text(row[6])
    try:
        extra = json.loads(extra) if extra else None
    except ValueError:
        pass  # another program stored plain text there; it is shown as it is
    changes = _CHANGE.findall(_text(row[3]) or "")
    return Snapshot(int(row[0]), row[1], int(row[2]), changes, _text(row[4]), _text(row[5]), extra)


def concerns(snapshot: Snapshot, table_id: int, name: TableName) -> bool:
    """Whether a snapshot changed a table."""
    created = '"{}"."{}"'.format(*(part.replace('"', '""') for part in name.key))
    for change in snapshot.changes:
        kind, _, target = change.partition(":")
        if target == str(table_id) and not kind.endswith(("_schema", "_view", "_macro")):
            return True
        if kind == "created_table" and folded(target) == created:
            return True
    return False


def options(session: Session) -> list[Option]:
    """List the persisted options of the lake, its schemas and tables."""
    scopes: dict[str, Literal["lake", "schema", "table"]] = {"GLOBAL": "lake", "SCHEMA": "schema", "TABLE": "table"}
    source = f"ducklake_options({literal(session.config.alias)})"
    rows = session.con.execute(f"SELECT option_name, value, scope, scope_entry, description FROM {source}").fetchall()
    return [Option(str(r[0]), str(r[1]), scopes[str(r[2])], _text(r[3]), str(r[4])) for r in rows]


def _text(value: Any) -> str | None:
    # Postgres and MySQL catalogs hold some texts as bytes.
    return value.decode() if isinstance(value, bytes | bytearray) else value
