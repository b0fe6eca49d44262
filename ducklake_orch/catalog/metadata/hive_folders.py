"""Write and parse `key=value` folders of file paths as the engine does: URL-encoded, with keys compared literally."""

from urllib.parse import quote, unquote

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.engine.quoting import folded

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def folder(key: str, encoded: str | None) -> str:
    """Return the folder of a key and an already encoded value, as COPY names it."""
    return f"{quote(key, safe='')}={NULL_FOLDER if encoded is None else encoded}/"


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
