"""Names that ducklake-orch and the engine give to internal columns, and a table with columns of these names.

The names are read from the source, so a new internal name is tested as soon as it is written.
"""

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

import ducklake_orch
from ducklake_orch import DuckLake
from ducklake_orch.catalog.feed import OWN_COLUMNS
from ducklake_orch.catalog.metadata.reserved_names import RESERVED
from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.quoting import identifier, literal

# Internal columns of DuckDB, Spark, SQLite and the engine, keys of folders, and keywords of SQL.
FOREIGN = {
    *("rowid", "_rowid_", "oid", "filename", "file_row_number", "file_index", "_metadata", "_tmp", "row_index"),
    *("ordinal", "pos", "file_path", "snapshot_id", "snapshot_time", "change_type", "author", "idempotency_key"),
    *("ducklake_internal_row_id", "column id", "id_", "select", "table", "group", "order", "key", "value", "list"),
    *(
        "year",
        "month",
        "bucket",
        "identity",
        "a=b",
        "a/b",
        "a.b",
        'a"b',
        "a`b",
        "[a]",
        "a b",
        " ",
        "%s",
        "{}",
        "é",
        "É",
    ),
    *("x" * 300, "x" * 299 + "y", "ctid", "xmin", "tableoid", "1", "null", "true", "current_date", "__duckdb_field_id"),
}
SPARK_ALONE = "\u212aelvin"  # Spark folds its case, and DuckDB does not
_ALIAS = re.compile(r"\bAS (\w+)|(__ducklake_orch_\w+|_ducklake_internal_\w+)")


def internal_names() -> set[str]:
    """Return every alias in the SQL of the source, and every table that it creates."""
    names = set[str]()
    for path in Path(ducklake_orch.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= {alias or table for alias, table in _ALIAS.findall(node.value)}
    # Names are completed with a number, and made longer if they are taken.
    names |= {f"{name}0" for name in names if name.endswith("_")}
    return names | {f"{name}_" for name in names if name.startswith("_")}


def distinct(names: Sequence[str]) -> list[str]:
    """Return the names without those that DuckDB considers equal."""
    kept: dict[str, str] = {}
    for name in sorted(names):
        kept.setdefault("".join(letter.lower() if letter.isascii() else letter for letter in name), name)
    return [name for key, name in kept.items() if key not in ("id", "__duckdb_field_id")]


NAMES = distinct([*internal_names(), *FOREIGN, *RESERVED, *OWN_COLUMNS, SPARK_ALONE])
# Structs with the name of a table alias in a query: `alias.column` must not mean a field of the struct.
ALIASES = ["target", "source", "m", "f", "r", "d", "g", "s", "stored", "file", "row_id", "file_row_number", "rowid"]
Value = Callable[[Any, str], Any]
Rows = dict[int, tuple[Any, ...]]


def text(word: Any, name: str) -> str:
    return f"{word}:{name[:20]}"


def nested(word: Any, name: str) -> dict[str, str]:
    """Return a struct whose fields have the names of internal columns."""
    return dict.fromkeys(("pos", "file", "n", "action", "row_id", "c1", "key", "path"), text(word, name))


class Table:
    """A table with many columns, and its model.

    Args:
        lake: The lake.
        names: The columns of the table besides `id`.
        value: Returns the value of a column.
    """

    def __init__(self, lake: DuckLake, names: Sequence[str], value: Value) -> None:
        self.lake = lake
        self.names = names
        self.value = value
        self.rows: Rows = {}

    def row(self, word: Any) -> tuple[Any, ...]:
        return tuple(self.value(word, name) for name in self.names)

    def arrow(self, words: dict[int, Any]) -> pa.Table:
        kind = pa.scalar(self.value("", "")).type
        columns = {name: pa.array([self.value(word, name) for word in words.values()], kind) for name in self.names}
        return pa.table({"id": pa.array(list(words), pa.int64())} | columns)

    def holds(self, word: Any) -> str:
        """Return a condition that uses every column."""
        values = ", ".join(self.literal(word, name) for name in self.names)
        return f"[{', '.join(map(identifier, self.names))}] = [{values}]"

    def literal(self, word: Any, name: str) -> str:
        value = self.value(word, name)
        if isinstance(value, str):
            return literal(value)
        return "{" + ", ".join(f"{key}: {literal(text)}" for key, text in value.items()) + "}"

    def write(self, words: dict[int, Any], mode: str = "append", **options: Any) -> None:
        self.lake.write(self.arrow(words), "t", mode=mode, **options)
        self.rows |= {number: self.row(word) for number, word in words.items()}

    def drop(self, *numbers: int) -> None:
        for number in numbers:
            del self.rows[number]

    def check(self) -> None:
        columns = ", ".join(map(identifier, ["id", *self.names]))
        with plain(self.lake) as query:
            assert {row[0]: tuple(row[1:]) for row in query(f"SELECT {columns} FROM t")} == self.rows


def as_rows(table: pa.Table) -> Rows:
    return {row[0]: row[1:] for row in zip(*(column.to_pylist() for column in table.columns), strict=True)}


class plain:
    """DuckDB with the extension and without ducklake-orch; on a server, the engine of a session."""

    def __init__(self, lake: DuckLake) -> None:
        self.lake = lake
        self.con = duckdb.connect()

    def __enter__(self) -> Callable[[str], list[tuple[Any, ...]]]:
        catalog = self.lake.config.catalog
        if catalog.type not in ("sqlite", "duckdb"):
            return lambda sql: [tuple(row.values()) for row in self.lake.execute(sql).raise_for_error().rows]
        for extension in ("ducklake", "sqlite_scanner"):
            load_extension(self.con, extension)
        kind = "sqlite:" if catalog.type == "sqlite" else ""
        place = literal(f"ducklake:{kind}{catalog.path}")
        self.con.execute(f"ATTACH {place} AS lake; USE lake")
        return lambda sql: self.con.execute(sql).fetchall()

    def __exit__(self, *_: Any) -> None:
        self.con.close()
