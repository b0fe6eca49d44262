"""Compute the statistics of shredded variant fields, whose values all have one type: from COPY, and over several files.

A shredded field is stored as a Parquet column of its own.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, ColumnStats, VariantStats, duckdb_type, ducklake_type
from ducklake_orch.engine.quoting import identifier, literal

Stats = Mapping[str, Mapping[str, str]]
# Stands for the elements of a list in the path of a field; names of fields are quoted.
_ELEMENT = "element"


def variant_stats(column_id: int, path: str, stats: Stats) -> tuple[ColumnStats, tuple[VariantStats, ...]]:
    """Return the statistics of a variant and of its shredded fields.

    The number of NULLs is unknown, because COPY counts a NULL variant as a value.

    Args:
        column_id: The column.
        path: The quoted path of the column or struct field.
        stats: COPY's statistics of all parts of the file's columns, by their quoted paths.
    """
    size = sum(int(values["column_size_bytes"]) for part, values in stats.items() if part.startswith(f"{path}."))
    kind = duckdb.sqltype(stats[f'{path}."metadata"']["variant_type"])
    fields = tuple(
        VariantStats(column_id, ".".join(names) or "root", shredded, values)
        for names, shredded, values in _fields(path, kind, stats, ())
    )
    return ColumnStats(size, extra=_extra(fields) if fields else None), fields


def copied_stats(values: Mapping[str, str], extra: str | None = None) -> ColumnStats:
    """Return COPY's statistics of one part of a file's columns."""
    nulls, total, nan = int(values["null_count"]), int(values["num_values"]), values.get("has_nan")
    is_counted = nulls <= total  # in lists and maps, DuckDB counts the fields of a NULL struct twice
    return ColumnStats(
        int(values["column_size_bytes"]),
        total - nulls if is_counted else None,
        nulls if is_counted else None,
        values.get("min"),
        values.get("max"),
        None if nan is None else nan == "true",
        extra,
    )


def _fields(
    path: str, kind: Any, stats: Stats, names: Sequence[str]
) -> Iterator[tuple[Sequence[str], str, ColumnStats]]:
    """Yield the fully shredded fields, which have no values in the untyped part."""
    parts = dict(kind.children)
    untyped = stats.get(f'{path}."value"')
    if "typed_value" not in parts or (untyped is not None and not _only_null(untyped)):
        return
    typed, inside = parts["typed_value"], f'{path}."typed_value"'
    if typed.id == "struct":
        if _ELEMENT in names:  # whose fields are not counted correctly, see `copied_stats`
            return
        for name, child in typed.children:
            yield from _fields(f"{inside}.{identifier(name)}", child, stats, (*names, identifier(name)))
    elif typed.id == "list":
        yield from _fields(f'{inside}."element"', typed.children[0][1], stats, (*names, _ELEMENT))
    elif inside in stats:
        yield names, ducklake_type(str(typed)), copied_stats(stats[inside])


def _only_null(values: Mapping[str, str]) -> bool:
    """Return whether a part has no values, or only the single byte that stands for NULL inside a variant."""
    return values["null_count"] == values["num_values"] or values.get("min") == values.get("max") == "00"


def _extra(fields: Sequence[VariantStats]) -> str:
    entries = []
    for field in fields:
        values = field.stats
        entry = {"field_name": field.path, "shredded_type": field.shredded_type, "null_count": values.null_count}
        entry |= {"min": values.min_value, "max": values.max_value}
        entry |= {"num_values": (values.value_count or 0) + (values.null_count or 0)}
        entry |= {"contains_nan": values.contains_nan, "column_size_bytes": values.size_bytes, "any_valid": True}
        entries.append({name: value for name, value in entry.items() if value is not None})
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


def sum_variants(con: duckdb.DuckDBPyConnection, files: Sequence[Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """Sum up the statistics of a variant's fields over files; only fields that all files shred with the same type."""
    by_name = [{(field["field_name"], field["shredded_type"]): field for field in fields} for fields in files]
    return [
        _sum_field(con, key, [fields[key] for fields in by_name])
        for key in by_name[0]
        if all(key in fields for fields in by_name)
    ]


def _sum_field(
    con: duckdb.DuckDBPyConnection, key: tuple[str, str], parts: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    summed: dict[str, Any] = {"field_name": key[0], "shredded_type": key[1]}
    summed |= {name: sum(part[name] for part in parts) for name in ("null_count", "num_values", "column_size_bytes")}
    if all("contains_nan" in part for part in parts):
        summed["contains_nan"] = any(part["contains_nan"] for part in parts)
    for end in ("min", "max"):
        # A file in which all values are NULL has nothing to bound.
        bounds = [part.get(end) for part in parts if part["null_count"] < part["num_values"]]
        if bounds and (bound := _outermost(con, end, key[1], bounds)) is not None:
            summed[end] = bound
    return summed | {"any_valid": any(part["any_valid"] for part in parts)}


def _outermost(con: duckdb.DuckDBPyConnection, end: str, kind: str, bounds: Sequence[str | None]) -> str | None:
    """Return the lowest or highest of some bounds; None if one of them is unknown."""
    if None in bounds or len(set(bounds)) == 1:
        return None if None in bounds else bounds[0]
    value = f"TRY_CAST(text AS {duckdb_type(ColumnDef(0, '', kind, nullable=True))})"
    rows = ", ".join(f"({literal(bound)})" for bound in bounds)
    row = con.execute(
        f"SELECT CASE WHEN bool_and({value} IS NOT NULL) THEN arg_{end}(text, {value}) END FROM (VALUES {rows}) b(text)"
    ).fetchone()
    return row[0] if row else None
