"""Write and parse `key=value` folders of file paths as the engine does: URL-encoded, with keys compared literally."""

import hashlib
import re
from urllib.parse import quote, unquote

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.engine.quoting import folded

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_LONGEST_LOCAL_NAME = 255
# Object stores limit the whole key to 1024 bytes.
_LONGEST_REMOTE_NAME = 700
_CUT_NAME = 200
_HASH_DIGITS = 16


def longest_name(location: str) -> int:
    """Return the number of bytes that the name of a folder in a location can have."""
    return _LONGEST_REMOTE_NAME if "://" in location else _LONGEST_LOCAL_NAME


def folder(key: str, encoded: str | None, longest: int) -> str:
    """Return the folder of a key and an already encoded value, as COPY names it if that name is not too long.

    A name that is too long is cut and ends with a hash. Readers take partition values from the catalog, so a folder
    must only be the same for all files of a partition.
    """
    name = f"{quote(key, safe='')}={NULL_FOLDER if encoded is None else encoded}"
    return f"{name if len(name) <= longest else _cut(name)}/"


def _cut(name: str) -> str:
    kept = re.sub("%.?$", "", name[: _CUT_NAME - _HASH_DIGITS - 1])
    while not _is_text(kept):  # it ends with some of the bytes of a character
        kept = kept[: -len("%00")]
    return f"{kept}-{hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]}"


def _is_text(encoded: str) -> bool:
    try:
        unquote(encoded, errors="strict")
    except UnicodeDecodeError:
        return False
    return True


def path_folders(path: str) -> list[tuple[str, str]]:
    """Return the keys and values of a path's folders as the engine parses them, both still encoded."""
    folders = (part.partition("=") for part in path.split("/")[:-1])
    return [(key, value) for key, equals, value in folders if key and equals and "=" not in value]


def meant(key: str) -> str:
    """Return the canonical form of a folder key: decoded and case-folded, as column names are compared."""
    return folded(unquote(key))


def path_text(path: str, key: str) -> str | None:
    """Return the value that readers use for a key, still encoded: that of the first folder with it, or None."""
    return next((value for name, value in path_folders(path) if name == key), None)


def path_value(text: str | None, column: ColumnDef | None) -> str | None:
    """Return the value that a folder's text means for a column, or for a number if `column` is None; None for NULL."""
    if text is None or text == NULL_FOLDER:
        return None
    if text.lower() in ("", "null") and (column is None or column.type != "varchar"):
        return None
    return unquote(text)
