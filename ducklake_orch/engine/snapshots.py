"""The snapshot that a session's transaction sees, and the one that the session committed last."""

import logging

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.missing_snapshots import with_retained
from ducklake_orch.engine.quoting import folded, folded_sql, literal
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import SnapshotNotFoundError

log = logging.getLogger("ducklake_orch")


def metadata(config: LakeConfig, table: str) -> str:
    """Return the qualified name of a metadata table, as DuckDB sees it."""
    return dialect_of(config).attached(table)


def has_schema(session: Session, name: str) -> bool:
    """Whether the lake has a schema of this name now, ignoring case."""
    sql = f"SELECT 1 FROM {metadata(session.config, 'ducklake_schema')} WHERE end_snapshot IS NULL"
    return bool(session.con.execute(f"{sql} AND {folded_sql('schema_name')} = {literal(folded(name))}").fetchall())


def current_snapshot(session: Session) -> int:
    """Return the snapshot that the running transaction sees: the pinned one, or the latest when it began."""
    if session.instance.without_extension:
        return _seen(session)
    row = session.con.execute(f"SELECT id FROM ducklake_current_snapshot({literal(session.config.alias)})").fetchone()
    return int(row[0]) if row else 0


def _seen(session: Session) -> int:
    """Return the snapshot that a session sees, of a lake that the extension does not read."""
    access, con = session.access, session.instance.root
    condition, missing = "true", "No snapshot found"
    if access.snapshot is not None:
        condition, missing = f"snapshot_id = {access.snapshot}", f"No snapshot found at version {access.snapshot}"
    elif access.as_of is not None:
        condition = f"snapshot_time::TIMESTAMPTZ <= CAST({literal(access.as_of)} AS TIMESTAMPTZ)"
        missing = f"No snapshot found at timestamp {access.as_of}"
    snapshots = metadata(session.config, "ducklake_snapshot")
    ((found,),) = con.execute(f"SELECT max(snapshot_id) FROM {snapshots} WHERE {condition}").fetchall()
    if found is None:
        raise with_retained(SnapshotNotFoundError(missing), con, session.config)
    return int(found)


def last_committed_sql(config: LakeConfig) -> str:
    """Return the query for the snapshot that this instance committed last; the engine answers it from memory."""
    return f"SELECT id FROM ducklake_last_committed_snapshot({literal(config.alias)})"


def last_committed(session: Session, before: int | None) -> int | None:
    """Return the snapshot that this session committed last, `before` if it committed none, None if the query fails."""
    try:
        # On the connection outside the lake: inside it the engine would first look up the latest snapshot.
        row = session.instance.root.execute(last_committed_sql(session.config)).fetchone()
    except duckdb.Error as error:  # the write is committed; not knowing its snapshot is no reason to raise
        log.debug("asking for the committed snapshot: %s", type(error).__name__)
        session.broken = True
        return None
    return before if row is None or row[0] is None else max(int(row[0]), before or 0)
