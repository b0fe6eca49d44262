"""The mark of a lake in the names of the files that its writers make: it proves whose files they are.

It is made of what no two catalogs share: the id that the engine gave the schema `main` when the lake was made, and the
name of the catalog. So a copy of a catalog under another name, or in another database, is another lake.
"""

import hashlib
import re

# The id of the write in a file's name, and the mark behind it: names of earlier versions have none.
FILE_NAME = r"(?:^|/)ducklake-([0-9a-f]{32})(?:-([0-9a-f]{12}))?[-.]"
_FILE_NAME = re.compile(FILE_NAME)


def lake_mark(main_schema: str | None, catalog: str | None) -> str:
    """Return the mark of a lake.

    Args:
        main_schema: The id of the schema that the lake was made with.
        catalog: The name of the catalog: of its file, or of its database and schema; no host, and no folder.

    Returns:
        Twelve digits; nothing where the catalog has forgotten that schema.
    """
    if not main_schema:
        return ""
    return hashlib.blake2b(f"{main_schema}\n{catalog}".encode(), digest_size=6).hexdigest()


def file_prefix(write_id: str, mark: str) -> str:
    """Return what the names of all files of a write begin with."""
    return f"ducklake-{write_id}-{mark}" if mark else f"ducklake-{write_id}"


def origin(path: str) -> tuple[str | None, str | None]:
    """Return the id of the write that made a file, and the mark of its lake, as far as the name says."""
    found = _FILE_NAME.findall(path)
    return (found[-1][0], found[-1][1] or None) if found else (None, None)
