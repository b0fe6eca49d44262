"""Read the texts that the engine stores for inlined structs on SQLite and PostgreSQL, which it cannot read itself.

It writes a struct as an SQL expression, such as `{'day': CAST('2024-01-01' AS DATE), 'name': 'it''s'}`, and reads it as
DuckDB casts a text to a struct: that fails for the day, and loses the quote of the name. Lists and maps are in the form
of the cast, also inside a struct.
"""

import re

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.catalog.metadata.type_names import duckdb_type
from ducklake_orch.engine.quoting import identifier, literal

# The text of a literal, which a cast may surround, and what has no quotes: a number, a truth value or NULL.
_SCALAR = r"(?:(?:CAST\()?'((?:[^']|'')*)'(?: AS [^']*?\))?|([^\s,{}'\[\]]+))"
_LIST_OR_MAP = r"(NULL|(?s:[\[{].*[\]}]))"


def struct_value(stored: str, column: ColumnDef) -> str:
    """Return the SQL that reads a stored struct; a text in another form than the engine's is cast.

    Args:
        stored: The SQL of the stored text.
        column: The column of the struct.
    """
    groups: list[str] = []
    pattern, value = _struct(column, groups)
    text, names = literal(f"^{pattern}$"), ", ".join(map(literal, groups))
    return (
        f"CASE WHEN regexp_matches({stored}, {text})"
        f" THEN list_transform([regexp_extract({stored}, {text}, [{names}])], lambda m: {value})[1]"
        f" ELSE CAST({stored} AS {duckdb_type(column)}) END"
    )


def readable_structs_sql(table: str, column: ColumnDef) -> str:
    """Return the query for the stored structs to rewrite: each text, and the one that DuckDB casts to the same struct.

    Args:
        table: The inlined-data table.
        column: The column of the structs.
    """
    name, kind = identifier(column.name), duckdb_type(column)
    stored = f"SELECT DISTINCT {name} AS stored FROM {table}"
    values = (
        f"WITH stored AS MATERIALIZED ({stored}) SELECT stored, {struct_value('stored', column)} AS value FROM stored"
    )
    # The engine's texts begin with a brace: with a space before it, the new text is not taken for one of them.
    unlike = f"SELECT stored, value, ' ' || CAST(value AS VARCHAR) AS text FROM ({values})"
    unlike = f"{unlike} WHERE TRY_CAST(stored AS {kind}) IS DISTINCT FROM value"
    return f"SELECT stored, text FROM ({unlike}) WHERE CAST(text AS {kind}) IS NOT DISTINCT FROM value"


def _struct(column: ColumnDef, groups: list[str]) -> tuple[str, str]:
    """Return the pattern of a struct, and the SQL that makes the struct of the groups in it."""
    whole, patterns, values = _group(groups), [], []
    for field in column.children:
        pattern, value = _field(field, groups)
        patterns.append(f"{re.escape(literal(field.name))}: {pattern}")
        values.append(f"{identifier(field.name)} := {value}")
    made = f"CASE {whole} WHEN 'NULL' THEN NULL ELSE struct_pack({', '.join(values)}) END"
    return rf"(?:(NULL)|\{{{', '.join(patterns)}\}})", made


def _field(field: ColumnDef, groups: list[str]) -> tuple[str, str]:
    if field.type == "struct":
        return _struct(field, groups)
    if field.children:
        return _LIST_OR_MAP, f"CAST(nullif({_group(groups)}, 'NULL') AS {duckdb_type(field)})"
    quoted, bare = _group(groups), _group(groups)
    text = f"CASE {bare} WHEN '' THEN replace({quoted}, '''''', '''') WHEN 'NULL' THEN NULL ELSE {bare} END"
    return _SCALAR, f"CAST({text} AS {duckdb_type(field)})"


def _group(groups: list[str]) -> str:
    """Name the next group of the pattern, and return its SQL."""
    groups.append(f"g{len(groups)}")
    return f"m.{groups[-1]}"
