"""Write names and values in Spark's SQL, in forms whose meaning no session setting changes."""

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ducklake_orch.catalog.metadata import ColumnDef, duckdb_type
from ducklake_orch.engine.quoting import literal

if TYPE_CHECKING:
    import duckdb

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?")
_ZONE = re.compile(r"(?:Z|[+-]\d\d(?::?\d\d)?)$")
_PLAIN = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


def name_sql(name: str) -> str:
    """Quote a name."""
    return "`" + name.replace("`", "``") + "`"


def text_sql(value: str) -> str:
    """Write a text as bytes, because a setting decides what a backslash in quotes means."""
    return f"CAST(X'{value.encode().hex()}' AS STRING)"


def date_sql(text: str) -> str | None:
    """Write a date, None if the text is not a plain date."""
    if not _DATE.fullmatch(text) or _read(text) is None:
        return None
    return f"DATE '{text}'"


def moment_sql(text: str, *, zoned: bool) -> str | None:
    """Write a timestamp, None if the text is not a plain timestamp.

    Args:
        text: The timestamp as users write it; if a zone is needed and none is given, it is UTC.
        zoned: Whether the column is a TIMESTAMPTZ.
    """
    zone = _ZONE.search(text[10:])
    plain = text[: len(text) - len(zone.group())] if zone else text
    if (zone and not zoned) or not _MOMENT.fullmatch(plain):
        return None
    moment = _read(plain + (zone.group() if zone else ""))
    if moment is None:
        return None
    if not zoned:
        return f"TIMESTAMP_NTZ '{moment.isoformat(sep=' ', timespec='microseconds')}'"
    utc = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    past = utc - _EPOCH
    return f"timestamp_micros({(past.days * 86_400 + past.seconds) * 1_000_000 + past.microseconds}L)"


def _read(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def initial_sql(con: "duckdb.DuckDBPyConnection", column: ColumnDef) -> str | None:
    """Return the value of a column in rows that are older than it, None if Spark's SQL cannot express it.

    Args:
        con: Any connection; DuckDB parses the text of the default.
        column: The column.
    """
    from ducklake_orch.spark.types import spark_type

    ddl = spark_type(column).simpleString()
    if column.initial_default is None:
        return f"CAST(NULL AS {ddl_sql(column)})"
    value = f"CAST({literal(column.initial_default)} AS {duckdb_type(column)})"
    as_bytes = {"varchar": f"encode({value})", "json": f"encode({value}::VARCHAR)", "blob": value}
    if column.type in as_bytes:
        row = con.execute(f"SELECT hex({as_bytes[column.type]})").fetchone()
        return f"CAST(X'{row[0]}' AS {ddl})" if row else None
    row = con.execute(f"SELECT CAST({value} AS VARCHAR)").fetchone()
    text = str(row[0]) if row else ""
    if column.type in _PLAIN or column.type.startswith("decimal") or column.type in ("boolean", "float32", "float64"):
        return f"CAST({text_sql(text)} AS {ddl})"
    if column.type == "date":
        return date_sql(text)
    if column.type in ("timestamp", "timestamp_us", "timestamp_ms", "timestamp_s", "timestamptz"):
        return moment_sql(text, zoned=column.type == "timestamptz")
    return None


def ddl_sql(column: ColumnDef) -> str:
    """Return the type of a column in Spark's SQL, with quoted field names."""
    from ducklake_orch.spark.types import spark_type

    match column.type:
        case "list":
            return f"ARRAY<{ddl_sql(column.children[0])}>"
        case "map":
            return f"MAP<{ddl_sql(column.children[0])}, {ddl_sql(column.children[1])}>"
        case "struct":
            return f"STRUCT<{', '.join(f'{name_sql(child.name)}: {ddl_sql(child)}' for child in column.children)}>"
    return spark_type(column).simpleString()
