"""Choose lossless intermediate types for columns that Arrow cannot represent or whose values DuckDB would truncate."""

from collections.abc import Callable, Mapping
from typing import Any

from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DataError

# DuckDB types that Arrow lacks or has only with a smaller range; their values are passed as text.
_AS_TEXT = ("UUID", "JSON", "TIME WITH TIME ZONE", "INTERVAL", "BIT", "HUGEINT", "UHUGEINT")
# Parquet files store these integers as rounded DOUBLE; Arrow stores them exactly, as `EXACT_WIDE`.
_WIDE = ("HUGEINT", "UHUGEINT")
EXACT_WIDE = "DECIMAL(38,0)"


def carried(relation: Any) -> tuple[Any, Mapping[str, str]]:
    """Return a relation that Arrow represents without loss, and the actual types of the columns that it has as text.

    Args:
        relation: A DuckDB relation.

    Raises:
        DataError: When a column is a VARIANT, which cannot be restored from text.
    """
    types = dict(zip(relation.columns, relation.types, strict=True))
    if wrong := [name for name, kind in types.items() if "VARIANT" in _leaves(kind)]:
        raise DataError(
            f"{', '.join(f'`{name}`' for name in wrong)} is VARIANT in the data, which Arrow cannot represent.",
            remedy="Cast it to JSON or to the type of its values, or drop it.",
        )
    lost = {name: kind for name, kind in types.items() if not _leaves(kind).isdisjoint(_AS_TEXT)}
    if not lost or len(types) < len(relation.columns):  # columns of one name are refused later
        return relation, {}
    text = {name: _replaced(kind, lambda leaf: "VARCHAR" if leaf in _AS_TEXT else leaf) for name, kind in lost.items()}
    columns = (
        f"CAST({identifier(name)} AS {text[name]}) AS {identifier(name)}" if name in text else identifier(name)
        for name in types
    )
    return relation.project(", ".join(columns)), {name: _replaced(kind, str) for name, kind in lost.items()}


def exact_wide(kind: str) -> str:
    """Return a DuckDB type in which wide integers, which files would round, are replaced by `EXACT_WIDE`."""
    import duckdb

    return _replaced(duckdb.sqltype(kind), lambda leaf: EXACT_WIDE if leaf in _WIDE else leaf)


def arrow_value(name: str, kind: Any) -> str:
    """Return the SQL of a column in a type that Arrow has: a VARIANT becomes JSON text.

    Args:
        name: The column's name, as SQL.
        kind: The column's type, as a DuckDB type object.
    """
    if "VARIANT" not in _leaves(kind):
        return name
    text = f"CAST({name} AS {_replaced(kind, lambda leaf: 'JSON' if leaf == 'VARIANT' else leaf)})"
    # The text of a VARIANT that is NULL is `null`.
    return f"CASE WHEN {name} IS NOT NULL THEN {text} END"


def _leaves(kind: Any) -> set[str]:
    inner = _inner(kind)
    return {str(kind)} if inner is None else {leaf for _, child in inner for leaf in _leaves(child)}


def _inner(kind: Any) -> list[tuple[str, Any]] | None:
    """Return the names and types nested in a type; None if it is not nested."""
    if kind.id in ("list", "array"):
        return [kind.children[0]]
    return list(kind.children) if kind.id in ("struct", "map") else None


def _replaced(kind: Any, leaf: Callable[[str], str]) -> str:
    """Return a type as SQL, with each type that is not nested replaced by `leaf` of it."""
    inner = [(name, _replaced(child, leaf)) for name, child in _inner(kind) or ()]
    match kind.id:
        case "list":
            return f"{inner[0][1]}[]"
        case "array":
            return f"{inner[0][1]}[{kind.children[1][1]}]"
        case "struct":
            named = (f"{identifier(name)} {child}" if name else child for name, child in inner)
            return f"STRUCT({', '.join(named)})"
        case "map":
            return f"MAP({inner[0][1]}, {inner[1][1]})"
    return leaf(str(kind))


def arrow_storage_type(kind: Any) -> Any:
    """Return the Arrow type to which a column is cast, without loss, before DuckDB reads it; most types stay the same.

    DuckDB silently truncates nanoseconds of timestamps, durations and intervals, and fractions of days in dates. Some
    Arrow types it cannot read at all.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind) and kind.unit == "ns" and kind.tz:
        return pa.timestamp("us", kind.tz)
    if types.is_duration(kind) and kind.unit == "ns":
        return pa.duration("us")
    if types.is_date64(kind):
        return pa.date32()
    if types.is_float16(kind):
        return pa.float32()
    if types.is_decimal256(kind):
        return pa.decimal128(38, kind.scale) if kind.precision > 38 else pa.decimal128(kind.precision, kind.scale)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        inner = arrow_storage_type(kind.value_type)
        return kind if inner == kind.value_type else inner
    return _landing_inside(kind)


def _landing_inside(kind: Any) -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        fields = [field.with_type(arrow_storage_type(field.type)) for field in kind]
        return kind if fields == list(kind) else pa.struct(fields)
    if types.is_map(kind):
        key, item = arrow_storage_type(kind.key_type), arrow_storage_type(kind.item_type)
        return kind if (key, item) == (kind.key_type, kind.item_type) else pa.map_(key, item)
    if hasattr(kind, "value_field") and not types.is_map(kind):
        inner = arrow_storage_type(kind.value_type)
        if inner == kind.value_type:
            return kind
        field = kind.value_field.with_type(inner)
        return pa.list_(field, kind.list_size) if types.is_fixed_size_list(kind) else pa.large_list(field)
    return kind


def cast_to_storage_type(name: str, column: Any, kind: Any) -> Any:
    """Cast a column to its type from `arrow_storage_type`.

    Raises:
        DataError: When a value would be truncated.
    """
    import pyarrow as pa

    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"Column `{name}`: a value of type {column.type} does not fit {kind}, which a lake stores: {error}",
            remedy="Round such values first: a lake stores microseconds and 38 digits.",
        ) from error


def refuse_truncated_intervals(name: str, column: Any) -> None:
    """Refuse intervals that DuckDB would truncate; Arrow has no cast that would detect them.

    Raises:
        DataError: When there are such intervals.
    """
    import pyarrow as pa

    if column.type != pa.month_day_nano_interval():
        return
    if any(interval is not None and interval.nanoseconds % 1000 for interval in column.to_pylist()):
        raise DataError(f"Column `{name}`: a value of type {column.type} has nanoseconds, which a lake cannot store.")
