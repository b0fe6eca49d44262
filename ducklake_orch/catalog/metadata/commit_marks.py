"""Find a snapshot by a mark that its writer stored in the snapshot's extra information."""

from contextlib import AbstractContextManager

from ducklake_orch.catalog.metadata.snapshot_reader import reading
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import Session


def marked_snapshot(opened: AbstractContextManager[Session], mark: str) -> int | None:
    """Return the latest snapshot, among those that have not expired, whose extra information contains a mark.

    Args:
        opened: A session to read the lake with; it need not be entered.
        mark: The mark, of letters and digits.
    """
    with opened as session, reading(session, "Looking for an earlier commit") as metadata:
        name = metadata.dialect.table("ducklake_snapshot_changes")
        sql = f"select max(snapshot_id) from {name} where commit_extra_info like {literal(f'%{mark}%')}"
        rows = metadata.rows(metadata.dialect.query(sql))
        return None if rows[0][0] is None else int(rows[0][0])
