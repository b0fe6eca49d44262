"""Reads an SQL file of an asset: its SELECT, the tables that the SELECT reads, and its parameters."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import duckdb

from ducklake_orch.dagster.select_lineage import TableRef
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ConfigError

# Tables of the catalog that every database has.
_SYSTEM_SCHEMAS = ("information_schema", "pg_catalog")
# A table without a schema whose name contains one of these is a file: `FROM 'orders.parquet'`.
_FILE_SIGNS = frozenset("./\\:*")


@dataclass(frozen=True)
class SelectFile:
    """An SQL file with one SELECT.

    Attributes:
        path: The file.
        query: Its text.
        tables: The tables that it reads, each with its schema; None for a table that is named without one.
        parameters: The names of its parameters: `$partition_key` is `partition_key`.
        select: The SELECT, as DuckDB's `json_serialize_sql` prints it.
    """

    path: Path
    query: str
    tables: frozenset[TableRef]
    parameters: frozenset[str]
    select: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a file. DuckDB only parses it, so its tables need not exist.

        Raises:
            ConfigError: If the file is not one SELECT.
        """
        query = path.read_text("utf-8")
        with duckdb.connect() as con:
            try:
                statements = con.extract_statements(query)
            except duckdb.Error as error:
                raise ConfigError(f"The file `{path}` is not valid SQL: {error}") from error
            parsed = json.loads(con.execute("SELECT json_serialize_sql(?)", [query]).fetchall()[0][0])
        if len(statements) != 1 or parsed["error"]:
            raise ConfigError(
                f"The file `{path}` is not one SELECT.",
                remedy="Write one SELECT. A PIVOT needs its values: `FROM (PIVOT … ON … IN (…) USING …)`.",
            )
        select = parsed["statements"][0]["node"]
        parameters = frozenset(map(folded, statements[0].named_parameters))
        return cls(path, query, frozenset(_tables(select, frozenset())), parameters, select)

    @property
    def version(self) -> str:
        """The version of the asset's code: a hash of the text."""
        return hashlib.sha256(self.query.encode()).hexdigest()[:16]

    @property
    def description(self) -> str | None:
        """The comment at the beginning of the file."""
        lines = []
        for line in self.query.splitlines():
            if not line.startswith("--"):
                break
            lines.append(line.removeprefix("--").strip())
        return "\n".join(lines) or None

    def with_values(self, values: Mapping[str, str]) -> str:
        """Return the query with the values of its parameters, as SQL, in their places.

        The relation of a query with parameters would hold its whole result in memory.
        """
        text, parts, end = self.query.encode(), [], 0
        names = sorted(self.parameters, key=len, reverse=True)  # one can begin with another
        for offset, kind in duckdb.tokenize(self.query):  # the offsets count bytes
            if kind != duckdb.token_type.operator or text[offset : offset + 1] != b"$":
                continue
            rest = folded(text[offset + 1 :].decode())
            if (name := next((name for name in names if rest.startswith(name)), None)) is not None:
                parts.append(f"{text[end:offset].decode()}({values[name]})")
                end = offset + 1 + len(name.encode())
        return "".join([*parts, text[end:].decode()])


def _tables(node: Any, ctes: frozenset[str]) -> Iterator[TableRef]:
    """Return the tables in a part of a parsed query.

    Args:
        node: The part, as DuckDB's `json_serialize_sql` prints it.
        ctes: The names of common table expressions, which hide tables.
    """
    if isinstance(node, list):
        for item in node:
            yield from _tables(item, ctes)
    if not isinstance(node, dict):
        return
    if node.get("type") == "RECURSIVE_CTE_NODE":
        ctes |= {folded(node["cte_name"])}
    for entry in node.get("cte_map", {}).get("map", ()):
        yield from _tables(entry["value"], ctes)
        ctes |= {folded(entry["key"])}  # later ones and the query itself see it
    if node.get("type") == "BASE_TABLE":
        schema, table = node["schema_name"] or None, node["table_name"]
        hidden = schema is None and (folded(table) in ctes or not _FILE_SIGNS.isdisjoint(table))
        if not hidden and schema not in _SYSTEM_SCHEMAS:
            yield schema, table
    for name, item in node.items():
        if name != "cte_map":
            yield from _tables(item, ctes)
