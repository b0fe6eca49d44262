"""Read the deletion vectors of a lake into the copy: whether each is what the catalog says, and its positions."""

import struct
from dataclasses import dataclass

from ducklake_orch.catalog.fsck.footers import for_each
from ducklake_orch.catalog.fsck.local_copy import LocalCopy
from ducklake_orch.catalog.parquet import decoded
from ducklake_orch.engine.quoting import file_literal


@dataclass(frozen=True)
class _Vector:
    delete_file_id: int
    data_file_id: int
    path: str
    count: int


def read_deletion_vectors(copy: LocalCopy) -> None:
    """Read all deletion vectors that are not encrypted; fills `unreadable` and `real_delete`."""
    rows = copy.con.execute("""
        SELECT delete_file_id, p.data_file_id, full_path, delete_count
        FROM ducklake_delete_file d JOIN known_path p ON p.what = 'delete file' AND p.id = d.delete_file_id
        WHERE format <> 'parquet' AND encryption_key IS NULL AND full_path IS NOT NULL""").fetchall()
    for row in rows:
        vector = _Vector(*row)
        for_each(copy.con, copy.config, [vector.path], lambda _, vector=vector: _read(copy, vector))  # type: ignore[misc]


def _read(copy: LocalCopy, vector: _Vector) -> None:
    # DuckDB leaves out files that do not exist.
    found = copy.con.execute(f"SELECT content FROM read_blob([{file_literal(vector.path)}])").fetchall()
    if not found:
        _note(copy, vector, absent=True, reason="it does not exist")
        return
    try:
        positions = decoded(found[0][0], vector.count)
    except (ValueError, IndexError, struct.error) as error:
        _note(copy, vector, absent=False, reason=str(error))
        return
    copy.con.execute(
        """
        INSERT INTO real_delete SELECT ?, count(*), min(pos), max(pos), 0, NULL,
               count(*) FILTER (pos IN (SELECT row_id FROM inlined_delete WHERE file_id = ?))
        FROM (SELECT unnest(?::BIGINT[]) AS pos)""",
        [vector.delete_file_id, vector.data_file_id, list(positions)],
    )


def _note(copy: LocalCopy, vector: _Vector, *, absent: bool, reason: str) -> None:
    copy.con.execute("INSERT INTO unreadable VALUES (?, ?, ?)", [vector.path, absent, reason])
