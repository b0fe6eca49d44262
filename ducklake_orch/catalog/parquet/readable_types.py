"""Decide which Parquet types a column of the table can hold without loss, and advise what to do about all others."""

import re

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.catalog.parquet.file_schema import FileColumn

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)", re.IGNORECASE)
_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")
_UNSIGNED = ("UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
_TIMESTAMP_TZ = "TIMESTAMP WITH TIME ZONE"

# By DuckLake type: the DuckDB types of file columns that it can be read from; DuckDB's reader widens them by itself.
_HOLDS: dict[str, tuple[str, ...]] = {
    "boolean": ("BOOLEAN",),
    "int8": _SIGNED[:1],
    "int16": _SIGNED[:2] + _UNSIGNED[:1],
    "int32": _SIGNED[:3] + _UNSIGNED[:2],
    "int64": _SIGNED + _UNSIGNED[:3],
    "int128": _SIGNED + _UNSIGNED,
    "uint8": _UNSIGNED[:1],
    "uint16": _UNSIGNED[:2],
    "uint32": _UNSIGNED[:3],
    "uint64": _UNSIGNED,
    "uint128": _UNSIGNED,
    "float32": ("FLOAT",),
    "float64": ("FLOAT", "DOUBLE"),
    "date": ("DATE",),
    "time": ("TIME",),
    "time_ns": ("TIME", "TIME_NS"),
    "timetz": ("TIME WITH TIME ZONE",),
    # The engine truncates nanoseconds. It stores whole seconds as microseconds itself.
    "timestamp": ("TIMESTAMP", "TIMESTAMP_NS"),
    "timestamp_us": ("TIMESTAMP", "TIMESTAMP_NS"),
    "timestamp_ms": ("TIMESTAMP",),
    "timestamp_s": ("TIMESTAMP",),
    "timestamp_ns": ("TIMESTAMP", "TIMESTAMP_NS"),
    "timestamptz": (_TIMESTAMP_TZ,),
    "interval": ("INTERVAL",),
    "varchar": ("VARCHAR", "JSON"),
    "json": ("JSON",),
    "blob": ("BLOB",),
    "uuid": ("UUID",),
    "geometry": ("GEOMETRY",),
    "list": ("LIST",),
    "struct": ("STRUCT",),
    "map": ("MAP",),
}
_TO_READ = "cast the rows and write them with `lake.write`."


def holds(target: ColumnDef, source: FileColumn) -> bool:
    """Return whether a column of the table can be read from a column of a file; nested columns are not checked."""
    wanted, actual = _DECIMAL.fullmatch(target.type), _DECIMAL.fullmatch(source.type)
    if wanted and actual:
        (width, scale), (its_width, its_scale) = (tuple(map(int, match.groups())) for match in (wanted, actual))
        return its_scale <= scale and its_width - its_scale <= width - scale
    return source.type in _HOLDS.get(target.type, ())


def advice(target: ColumnDef, source: FileColumn) -> str:
    """Return the advice for a type that does not fit."""
    match target.type, source.type:
        case "timestamptz", "TIMESTAMP" | "TIMESTAMP_NS":
            if source.physical == "INT96":
                setting = "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS"
                return f"INT96 timestamps do not record that they are in UTC. Set {setting} in Spark."
            return "The file does not record the time zone of its timestamps."
        case "timestamp" | "timestamp_us" | "timestamp_ms" | "timestamp_s" | "timestamp_ns", "TIMESTAMP WITH TIME ZONE":
            return "The file's timestamps are instants in UTC. Make the column TIMESTAMPTZ, or write TIMESTAMP_NTZ."
        case "json", "VARCHAR":
            return f"Spark does not annotate text as JSON. Make the column VARCHAR. Otherwise: {_TO_READ}"
        case "uuid", "VARCHAR" | "BLOB":
            return f"Spark cannot write Parquet's UUID type. Make the column VARCHAR. Otherwise: {_TO_READ}"
        case "varchar", "BLOB":
            return "The bytes are not annotated as UTF-8 text; some old writers omit that."
        case "geometry", _:
            return "Only Parquet's own geometry type can be registered; GeoParquet 1 cannot."
        case "variant", _:
            return f"Files with VARIANT columns cannot be registered: {_TO_READ}"
        case _, "NULL":
            return "The file's column has no type, because all its values are NULL. Leave it out, or give it a type."
        case wanted, _ if source.type in _HOLDS.get("int64", ()) and wanted.startswith(("int", "uint")):
            return "Not every value would fit. Make the column wider."
    return _TO_READ.capitalize()
