"""List the storage into the copy, and determine which files of the catalog exist, and under which spelling."""

import os
from collections.abc import Sequence

from ducklake_orch.catalog.commit import read_leases
from ducklake_orch.catalog.fsck.footers import for_each
from ducklake_orch.catalog.fsck.local_copy import LocalCopy
from ducklake_orch.catalog.metadata import QUARANTINE_FOLDER, Metadata
from ducklake_orch.engine.error_classes import run
from ducklake_orch.engine.quoting import exactly, file_literals, literal


def list_storage(copy: LocalCopy) -> None:
    """List all files below the data path; fills `listed`, `alias` and, with files that do not exist, `unreadable`."""
    mark = Metadata(copy.con, copy.config).lake_mark()
    copy.con.execute(f"CREATE OR REPLACE TEMP MACRO lake_mark() AS {literal(mark)}")
    # Files of long writes and of stages are not committed yet.
    copy.con.execute("CREATE OR REPLACE TEMP TABLE running_write (write_id VARCHAR)")
    for write_id in read_leases(Metadata(copy.con, copy.config)).write_ids:
        copy.con.execute(f"INSERT INTO running_write VALUES ({literal(write_id)})")
    pattern = literal(f"{exactly(copy.data_path)}**")
    doing = f"Listing the storage of lake `{copy.config.name}` failed"
    quarantine = literal(f"{copy.data_path}{QUARANTINE_FOLDER}")
    listing = f"SELECT file FROM glob({pattern}) WHERE NOT starts_with(file, {quarantine})"
    run(copy.con, f"INSERT INTO listed {listing}", copy.config, doing)
    # Some servers list `%20` in a name as a space.
    copy.con.execute(
        "UPDATE listed SET path = e.full_path FROM expected_path e"
        " WHERE listed.path = url_decode(e.full_path) AND listed.path <> e.full_path"
        " AND listed.path NOT IN (SELECT full_path FROM expected_path)"
    )
    # A file under another spelling is not missing: `canonical` matches names on object stores, the disk its own.
    copy.con.execute(
        "INSERT INTO alias SELECT DISTINCT k.full_path, l.path FROM known_path k JOIN listed l"
        " ON canonical(l.path) = k.canonical_path WHERE l.path <> k.full_path"
    )
    rows = copy.con.execute("""
        SELECT DISTINCT full_path FROM known_path ANTI JOIN listed l ON l.path = full_path
        ANTI JOIN alias USING (full_path) ANTI JOIN unreadable u ON u.path = full_path
        WHERE full_path IS NOT NULL""").fetchall()
    unlisted = [str(row[0]) for row in rows]
    _check_disk(copy, [path for path in unlisted if "://" not in path])
    inside = [path for path in unlisted if "://" in path and path.startswith(copy.data_path)]
    _record_absent(copy, inside)
    outside = [path for path in unlisted if "://" in path and not path.startswith(copy.data_path)]
    for_each(copy.con, copy.config, outside, lambda batch: copy.con.execute(_sizes(batch)).fetchall())


def _sizes(paths: Sequence[str]) -> str:
    return f"SELECT size FROM read_blob([{file_literals(paths)}])"


def _check_disk(copy: LocalCopy, paths: list[str]) -> None:
    _record_absent(copy, [path for path in paths if not os.path.exists(path)])
    root = os.path.realpath(copy.data_path)
    for path in filter(os.path.exists, paths):
        real = os.path.realpath(path)
        if os.path.commonpath([real, root]) == root:
            listed = literal(copy.data_path + os.path.relpath(real, root))
            copy.con.execute(f"INSERT INTO alias SELECT {literal(path)}, path FROM listed WHERE path = {listed}")


def _record_absent(copy: LocalCopy, paths: list[str]) -> None:
    for path in paths:
        copy.con.execute(f"INSERT INTO unreadable VALUES ({literal(path)}, true, 'it is not in the storage')")
