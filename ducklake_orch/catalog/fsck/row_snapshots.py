"""Read the snapshots that files have for single rows and deletions, and count those that do not exist."""

from collections.abc import Sequence

from ducklake_orch.catalog.fsck.footers import for_each
from ducklake_orch.catalog.fsck.local_copy import LocalCopy
from ducklake_orch.catalog.metadata import SNAPSHOT_ID, SNAPSHOT_ID_FIELD
from ducklake_orch.catalog.parquet import file_columns, renamed
from ducklake_orch.engine.quoting import file_literals


def read_row_snapshots(copy: LocalCopy) -> None:
    """Read this column of all files that have it and were readable so far; fills `undated`."""
    groups = copy.con.execute(f"""
        SELECT footer.columns, list(DISTINCT p.full_path) FROM known_path p JOIN footer ON footer.path = p.full_path
        WHERE has_field(footer.columns, {SNAPSHOT_ID_FIELD}) AND p.full_path NOT IN (SELECT path FROM unreadable)
        GROUP BY ALL""").fetchall()
    for columns, paths in groups:
        names = renamed(file_columns(columns))
        for_each(copy.con, copy.config, paths, lambda batch, names=names: _read(copy, batch, names))  # type: ignore[misc]


def _read(copy: LocalCopy, paths: Sequence[str], names: str) -> None:
    files = file_literals(paths)
    copy.con.execute(f"""
        INSERT INTO undated SELECT p.what, p.id, count(*)
        FROM (SELECT filename AS path, {SNAPSHOT_ID} AS snapshot
              FROM read_parquet([{files}], hive_partitioning = false) AS {names}) q
        JOIN known_path p ON p.full_path = q.path
        WHERE coalesce(q.snapshot > (SELECT snapshot_id FROM latest), true) GROUP BY ALL""")
