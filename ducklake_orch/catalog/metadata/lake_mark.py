"""Compute the mark of a lake, which is part of the file names of its writers and proves which lake a file belongs to.

The mark is a hash of the UUID that the engine gave the schema `main` when the lake was created, and of the name of the
catalog. No two catalogs share both, so a copy of a catalog under another name or in another database is another lake.
"""

import hashlib
import re

# The option that gives the draft of a transaction, which has a catalog of its own, the mark of its lake.
MARK_OPTION = "ducklake_orch_lake_mark"
# A file's name contains the id of its write and then the mark; names from earlier versions have no mark.
FILE_NAME = r"(?:^|/)ducklake-([0-9a-f]{32})(?:-([0-9a-f]{12}))?[-.]"
_FILE_NAME = re.compile(FILE_NAME)


def lake_mark(main_schema: str | None, catalog: str | None) -> str:
    """Return the mark of a lake.

    Args:
        main_schema: The UUID of the schema that the lake was created with.
        catalog: The name of the catalog: its file name, or its database and schema, without host and folder.

    Returns:
        Twelve hexadecimal digits; an empty text if the catalog no longer has that schema.
    """
    if not main_schema:
        return ""
    return hashlib.blake2b(f"{main_schema}\n{catalog}".encode(), digest_size=6).hexdigest()


def file_prefix(write_id: str, mark: str) -> str:
    """Return the prefix of the names of all files of a write."""
    return f"ducklake-{write_id}-{mark}" if mark else f"ducklake-{write_id}"


def origin(path: str) -> tuple[str | None, str | None]:
    """Return the id of the write that created a file and the mark of its lake, each None if the name lacks it."""
    matches = _FILE_NAME.findall(path)
    return (matches[-1][0], matches[-1][1] or None) if matches else (None, None)
