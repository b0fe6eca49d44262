"""What columns of a source travel as where Arrow has no place for their type, or DuckDB would cut Arrow's values."""

from collections.abc import Callable, Mapping
from typing import Any

from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import DataError

# Types of DuckDB that Arrow has not, or only with a smaller range: they travel as text.
_AS_TEXT = ("UUID", "JSON", "TIME WITH TIME ZONE", "INTERVAL", "BIT", "HUGEINT", "UHUGEINT")
# Parquet files hold these as rounded DOUBLE, and Arrow as this.
_WIDE = ("HUGEINT", "UHUGEINT")
EXACT_WIDE = "DECIMAL(38,0)"


def carried(relation: Any) -> tuple[Any, Mapping[str, str]]:
    """Return a relation of which Arrow loses nothing, and the real types of the columns that it then has as text.

    Args:
        relation: A relation of DuckDB.

    Raises:
        DataError: When a column is a VARIANT, which has no text that it could be read from again.
    """
    types = dict(zip(relation.columns, relation.types, strict=True))
    if wrong := [name for name, kind in types.items() if "VARIANT" in _leaves(kind)]:
        raise DataError(
            f"{', '.join(f'`{name}`' for name in wrong)} is VARIANT in the data, which no Arrow type holds.",
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
    """Return a type of DuckDB without the integers that files hold as rounded numbers."""
    import duckdb

    return _replaced(duckdb.sqltype(kind), lambda leaf: EXACT_WIDE if leaf in _WIDE else leaf)


def arrow_value(name: str, kind: Any) -> str:
    """Return the SQL of a column as Arrow can hold it: a VARIANT as the text of JSON.

    Args:
        name: Its name, as it stands in SQL.
        kind: Its type, one of DuckDB's own objects.
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
    """Return the types inside a type; None where it has none."""
    if kind.id in ("list", "array"):
        return [kind.children[0]]
    return list(kind.children) if kind.id in ("struct", "map") else None


def _replaced(kind: Any, leaf: Callable[[str], str]) -> str:
    """Return a type with other leaves."""
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


def landing(kind: Any) -> Any:
    """Return the Arrow type that a column is cast to, without loss, before DuckDB sees it; the same for most.

    DuckDB cuts nanoseconds of moments, durations and intervals, and parts of days, without a word; some it cannot read.
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
        inner = landing(kind.value_type)
        return kind if inner == kind.value_type else inner
    return _landing_inside(kind)


def _landing_inside(kind: Any) -> Any:
    import pyarrow as pa

    types = pa.types
    if types.is_struct(kind):
        fields = [field.with_type(landing(field.type)) for field in kind]
        return kind if fields == list(kind) else pa.struct(fields)
    if types.is_map(kind):
        key, item = landing(kind.key_type), landing(kind.item_type)
        return kind if (key, item) == (kind.key_type, kind.item_type) else pa.map_(key, item)
    if hasattr(kind, "value_field") and not types.is_map(kind):
        inner = landing(kind.value_type)
        if inner == kind.value_type:
            return kind
        field = kind.value_field.with_type(inner)
        return pa.list_(field, kind.list_size) if types.is_fixed_size_list(kind) else pa.large_list(field)
    return kind


def landed(name: str, column: Any, kind: Any) -> Any:
    """Return a column as the type that it lands as.

    Raises:
        DataError: When a value would be cut.
    """
    import pyarrow as pa

    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"Column `{name}`: a value of type {column.type} does not fit {kind}, which a lake holds: {error}",
            remedy="Round such values first; a lake keeps microseconds, and 38 digits.",
        ) from error


def refuse_cut(name: str, column: Any) -> None:
    """Refuse intervals that DuckDB would cut; Arrow has no cast that could tell.

    Raises:
        DataError: When there are some.
    """
    import pyarrow as pa

    if column.type != pa.month_day_nano_interval():
        return
    if any(one is not None and one.nanoseconds % 1000 for one in column.to_pylist()):
        raise DataError(f"Column `{name}`: a value of type {column.type} has nanoseconds, which no lake holds.")
