"""The `key=value` folders of files, as the engine names and finds them: encoded, and keys compared as they stand."""

from urllib.parse import quote, unquote

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.engine.quoting import folded

NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


def folder(key: str, encoded: str | None) -> str:
    """Return the folder of a value, which is encoded already, as COPY names it."""
    return f"{quote(key, safe='')}={NULL_FOLDER if encoded is None else encoded}/"


def path_folders(path: str) -> list[tuple[str, str]]:
    """Return the `key=value` folders of a path as the engine finds them, both still encoded."""
    folders = (one.partition("=") for one in path.split("/")[:-1])
    return [(key, value) for key, equals, value in folders if key and equals and "=" not in value]


def meant(key: str) -> str:
    """Return what spellings of a key have in common that mean the same column."""
    return folded(unquote(key))


def path_text(path: str, key: str) -> str | None:
    """Return the value that readers take for a key, still encoded: that of the first folder; None where none has it."""
    return next((value for name, value in path_folders(path) if name == key), None)


def path_value(text: str | None, column: ColumnDef | None) -> str | None:
    """Return what a folder's value says of a column, as text; without a column, of a number."""
    if text is None or text == NULL_FOLDER:
        return None
    if text.lower() in ("", "null") and (column is None or column.type != "varchar"):
        return None
    return unquote(text)
