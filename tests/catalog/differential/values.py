"""Types of columns, and edge-case values of each type."""

from collections.abc import Mapping
from dataclasses import dataclass

from ducklake_orch.engine.quoting import identifier, literal


@dataclass(frozen=True)
class Scalar:
    """A type without nested columns. Its values are texts that cast to the type."""

    name: str


@dataclass(frozen=True)
class ListOf:
    """A list type. Its values are tuples."""

    element: "Type"


@dataclass(frozen=True)
class StructOf:
    """A struct type. Its values are tuples with one item for each field."""

    fields: tuple[tuple[str, "Type"], ...]


@dataclass(frozen=True)
class MapOf:
    """A map type. Its values are tuples of pairs."""

    key: "Type"
    value: "Type"


@dataclass(frozen=True)
class Typed:
    """A value inside a VARIANT."""

    type: "Type"
    value: "Value"


Type = Scalar | ListOf | StructOf | MapOf
Value = str | Typed | tuple["Value", ...] | None


def sql_type(kind: Type) -> str:
    """Return the SQL of a type."""
    match kind:
        case ListOf(element):
            return f"{sql_type(element)}[]"
        case StructOf(fields):
            return f"STRUCT({', '.join(f'{identifier(name)} {sql_type(inner)}' for name, inner in fields)})"
        case MapOf(key, value):
            return f"MAP({sql_type(key)}, {sql_type(value)})"
        case Scalar(name):
            return name


def sql_value(value: Value, kind: Type) -> str:
    """Return the SQL of a value."""
    if value is None or isinstance(value, str):
        return f"CAST({literal(value)} AS {sql_type(kind)})"
    if isinstance(value, Typed):
        return f"CAST({sql_value(value.value, value.type)} AS VARIANT)"
    match kind:
        case ListOf(element):
            return f"CAST([{', '.join(sql_value(one, element) for one in value)}] AS {sql_type(kind)})"
        case StructOf(fields):
            parts = zip(value, fields, strict=True)
            return f"struct_pack({', '.join(f'{identifier(name)} := {sql_value(v, t)}' for v, (name, t) in parts)})"
        case MapOf(key, inner):
            pairs = [pair for pair in value if isinstance(pair, tuple)]
            keys = ", ".join(sql_value(pair[0], key) for pair in pairs)
            values = ", ".join(sql_value(pair[1], inner) for pair in pairs)
            return f"CAST(MAP([{keys}], [{values}]) AS {sql_type(kind)})"
    raise TypeError(f"{value!r} is no {kind}")


def sql_text(sql: str, kind: Type) -> str:
    """Return the SQL of a value's text, which is different for different values of a type."""
    text = f"CAST({sql} AS VARCHAR)"
    return f"variant_typeof({sql}) || ' ' || {text}" if kind == Scalar("VARIANT") else text


_INT, _TEXT = Scalar("INTEGER"), Scalar("VARCHAR")
_POINT = StructOf((("a", _INT), ("b", _TEXT)))
STRUCT = StructOf((("a", _INT), ("b", _TEXT), ("in", StructOf((("x", Scalar("DATE")), ("y", ListOf(_TEXT)))))))

TEXTS = (
    *("", "a b", "it's", "NULL", "null", "é€", "a/b=c%d", "__HIVE_DEFAULT_PARTITION__", " pad ", "+&;,.:#?*", "\\x41"),
    *("x" * 300, "é" * 200, "line\nbreak\ttab", '{"a": [1]}', '"q"', "'; DROP TABLE t; --", "%s {} $1", "Z", "z"),
    *("😀", "漢字", "a" + "\U0001d4b3" * 100),
)

SAMPLES: Mapping[Type, tuple[Value, ...]] = {
    Scalar("BOOLEAN"): ("true", "false"),
    Scalar("TINYINT"): ("-128", "0", "127"),
    Scalar("SMALLINT"): ("-32768", "0", "32767"),
    _INT: ("-2147483648", "-1", "0", "1", "7", "2147483647"),
    Scalar("BIGINT"): ("-9223372036854775808", "0", "5", "9223372036854775807"),
    Scalar("UTINYINT"): ("0", "200", "255"),
    Scalar("USMALLINT"): ("0", "65535"),
    Scalar("UINTEGER"): ("0", "4294967295"),
    Scalar("UBIGINT"): ("0", "9223372036854775808", "18446744073709551615"),
    # The engine writes 128-bit integers as DOUBLE, so these are values that DOUBLE holds exactly.
    Scalar("HUGEINT"): ("-1152921504606846976", "0", "1267650600228229401496703205376"),
    Scalar("UHUGEINT"): ("0", "7", "1267650600228229401496703205376"),
    Scalar("DECIMAL(9,2)"): ("-1234567.89", "0.00", "0.01", "9999999.99"),
    Scalar("DECIMAL(38,10)"): ("-1234567890123456789012345678.0123456789", "0.0000000001", "10.0000000000"),
    # One zero only, because the engine writes both zeros as one to a file's dictionary. Conditions use the other zero.
    Scalar("FLOAT"): ("nan", "inf", "-inf", "0.1", "-0.0", "1.5", "-3e30", "1e-45"),
    Scalar("DOUBLE"): ("nan", "inf", "-inf", "0.1", "-0.0", "1.5", "1e308", "-5e-324"),
    _TEXT: TEXTS,
    Scalar("JSON"): ('{"a":[1,null,"it\'s"]}', "null", '"x"', "[]", "12"),
    Scalar("BLOB"): ("", "abc", "\\x00\\xFF", "\\x00", "it's"),
    Scalar("UUID"): (
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "7fffffff-ffff-ffff-ffff-ffffffffffff",
        "80000000-0000-0000-0000-000000000000",
    ),
    Scalar("DATE"): (
        "infinity",
        "-infinity",
        "2024-02-29",
        "2024-03-01",
        "1969-12-31",
        "0001-01-01",
        "0044-03-15 (BC)",
    ),
    Scalar("TIME"): ("00:00:00", "12:00:00.5", "23:59:59.999999"),
    # Files cannot store an offset, a negative interval, or the infinity of a TIMESTAMP_S.
    Scalar("TIME WITH TIME ZONE"): ("00:00:00+00", "12:30:00.5+00"),
    Scalar("INTERVAL"): ("00:00:00", "1 month 2 days 03:04:05.006"),
    Scalar("TIMESTAMP"): (
        "infinity",
        "-infinity",
        "2024-02-29 12:30:00.000001",
        "2024-02-29 13:00:00",
        "1969-12-31 23:59:59.999999",
        "2023-02-28 12:30:00",
        "0001-01-01 00:00:00",
    ),
    Scalar("TIMESTAMP_S"): ("2024-02-29 12:30:01", "1969-12-31 23:59:59", "2023-01-01 00:00:00"),
    Scalar("TIMESTAMP_MS"): ("infinity", "2024-02-29 12:30:01.001", "1969-12-31 23:59:59.999"),
    Scalar("TIMESTAMP_NS"): ("infinity", "2024-02-29 12:30:01.000000001", "1969-12-31 23:59:59.999999999"),
    Scalar("TIMESTAMP WITH TIME ZONE"): (
        "infinity",
        "-infinity",
        "2024-02-29 23:30:00+00",
        "2024-03-01 01:30:00.5+05",
        "2024-01-01 00:00:00+00",
        "1969-12-31 23:59:59.999999+00",
    ),
    Scalar("GEOMETRY"): ("POINT (1 2)", "LINESTRING (0 0, 1 1)", "POINT (-3 0.5)"),
    Scalar("VARIANT"): (
        Typed(_INT, "42"),
        Typed(_INT, "-1"),
        Typed(_TEXT, "it's"),
        Typed(_TEXT, "42"),
        Typed(_POINT, ("1", "x")),
        Typed(ListOf(_INT), ("1", "2")),
    ),
    ListOf(_INT): ((), (None,), ("1", None, "2"), ("7",)),
    ListOf(_TEXT): ((), ("it's", "", "NULL", None, "a,b", '"q"', "x]y", " p "), ("é",)),
    ListOf(ListOf(_INT)): ((), (("1", "2"), (), None), ((None,),)),
    STRUCT: (
        (None, None, None),
        ("1", "it's", ("2024-02-29", ("x, y: {z}", None, '"q"'))),
        ("2", "", ("infinity", ())),
        ("-1", "NULL", (None, None)),
    ),
    ListOf(_POINT): ((), (("1", "x"), None, (None, "it's")), ((None, None),)),
    MapOf(_TEXT, _INT): ((), (("k", "1"), ("it's", None)), (("", "7"),)),
    MapOf(_INT, StructOf((("x", Scalar("DATE")), ("y", ListOf(Scalar("DOUBLE")))))): (
        (),
        (("1", ("infinity", ("0.5", "nan"))), ("2", None)),
        (("-1", (None, None)),),
    ),
}

# The promotions of a column's type.
PROMOTIONS = {
    "TINYINT": ("SMALLINT", "INTEGER", "BIGINT"),
    "SMALLINT": ("INTEGER", "BIGINT"),
    "INTEGER": ("BIGINT",),
    "UTINYINT": ("USMALLINT", "UINTEGER", "UBIGINT"),
    "USMALLINT": ("UINTEGER", "UBIGINT"),
    "UINTEGER": ("UBIGINT",),
    "FLOAT": ("DOUBLE",),
}


def is_nested(kind: Type) -> bool:
    """Return whether a type has nested columns."""
    return not isinstance(kind, Scalar)
