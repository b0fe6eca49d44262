"""Lay out a table's rows in files: partition keys as SQL, their folders, the sort order, and the options of COPY."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    PartitionField,
    TableDef,
    duckdb_type,
    field_ids,
    folder,
    longest_name,
)
from ducklake_orch.config.units import parse_size
from ducklake_orch.engine.quoting import folded, identifier, literal

DEFAULT_FILE_SIZE = 512 * 1024 * 1024
# The DuckDB types whose values the extension hashes as text.
_HASHED_AS_TEXT = re.compile(
    r"U(TINYINT|SMALLINT|INTEGER|BIGINT|HUGEINT|UID)|HUGEINT|DECIMAL\((19|[23]\d),.*|INTERVAL|VARIANT"
    r"|(STRUCT|MAP)\(.*|.*\[\d*\]",
    re.DOTALL,
)
# The transforms of format 1.1, which count units since 1970. Infinite moments have no count.
_SINCE_1970 = {
    "epoch_year": "year({0}) - 1970",
    "epoch_month": "12 * (year({0}) - 1970) + month({0}) - 1",
    "epoch_day": "date_diff('day', DATE '1970-01-01', CAST({0} AS DATE))",
    "epoch_hour": "CAST(floor(epoch({0}) / 3600) AS BIGINT)",
}
_MOMENTS = ("year", "month", "day", "hour")
# A LIKE pattern for the names of the files that ducklake-orch writes: the write's id, then an id of the file.
OWN_FILES = f"%ducklake-{'_' * 32}-%"


@dataclass(frozen=True)
class PartitionKey:
    """A key of a partition spec, as SQL and as a folder name.

    Attributes:
        field: The key.
        column: The key's column.
        folder: The decoded part of the folder's name before `=`.
        longest_folder: The number of bytes that a folder's name can have.
    """

    field: PartitionField
    column: ColumnDef
    folder: str
    longest_folder: int

    @property
    def sql(self) -> str:
        """The SQL of the key's value for a row."""
        return key_sql(self.field.transform, identifier(self.column.name), duckdb_type(self.column))

    @property
    def is_identity(self) -> bool:
        """Whether the key is the column itself."""
        return self.field.transform == "identity"

    def folder_of(self, encoded: str | None) -> str:
        """Return the folder of an already encoded value, as COPY names it if the name is not too long."""
        return folder(self.folder, encoded, self.longest_folder)


def key_sql(transform: str, value: str, kind: str) -> str:
    """Return the SQL of a transform of a value.

    Args:
        transform: The key's transform.
        value: The SQL of the value.
        kind: The value's DuckDB type.
    """
    if transform == "identity":
        return value
    if transform.startswith("bucket("):
        return bucket_sql(value, kind, str(int(transform[7:-1])))
    if transform in _SINCE_1970:
        return f"TRY({_SINCE_1970[transform].format(value)})"
    return f"{transform}({value})"


def bucket_sql(value: str, kind: str, buckets: str) -> str:
    """Return the SQL of the bucket that a value of a type belongs to."""
    hashed = f"CAST({value} AS VARCHAR)" if hashed_as_text(kind) else value
    return f"((murmur3_32({hashed}) & 2147483647) % {buckets})"


def hashed_as_text(kind: str) -> bool:
    """Return whether the extension hashes values of a type as text.

    For filtered rows, the extension hashes the text of another row or crashes. So ducklake-orch passes texts instead.
    """
    return _HASHED_AS_TEXT.fullmatch(kind) is not None


def depends_on_zone(table: TableDef, field: PartitionField) -> bool:
    """Return whether the value of a key depends on the writer's time zone; ducklake-orch uses UTC."""
    kind = duckdb_type(table.column(field.column_id))
    return field.transform in _MOMENTS and kind == "TIMESTAMP WITH TIME ZONE"


def partition_keys(table: TableDef) -> list[PartitionKey]:
    """Return the keys of a table with the folder names that the engine gives them."""
    keys: list[PartitionKey] = []
    for field in table.key_fields:
        column = table.column(field.column_id)
        name = column.name if field.transform == "identity" else field.transform.partition("(")[0]
        is_taken = any(folded(key.folder) == folded(name) for key in keys)
        name = f"{name}_{column.name}" if is_taken else name
        keys.append(PartitionKey(field, column, name, longest_name(table.folder)))
    return keys


def key_name(transform: str, column: str) -> str:
    """Return a partition key as users write it."""
    function, bracket, number = transform.partition("(")
    if transform == "identity":
        return column
    return f"{function}({number[:-1]}, {column})" if bracket else f"{function}({column})"


def key_names(table: TableDef) -> list[str]:
    """Return the partition keys of a table as users write them, such as `bucket(4, id)`."""
    return [key_name(field.transform, table.column(field.column_id).name) for field in table.key_fields]


def sort_sql(table: TableDef) -> str:
    """Return the ORDER BY for writes to a table; an empty text if the table's rows are not sorted on write."""
    if not table.sort or table.options.get("sort_on_insert") == "false":
        return ""
    return f" ORDER BY {', '.join(key.sql for key in table.sort)}"


def copy_options(table: TableDef, write_id: str) -> dict[str, str]:
    """Return the options of every COPY into a table, as SQL."""
    options = {
        "FORMAT": "parquet",
        "FIELD_IDS": field_ids(table.columns),
        # The name tells which lake and which write a file belongs to, so that files of failed writes can be found.
        "FILENAME_PATTERN": literal(f"{table.file_prefix(write_id)}-{{uuidv7}}"),
        "APPEND": "true",
        "RETURN_STATS": "true",
        # As in the engine's files, geometries have type and bounding box in the Parquet schema, without GeoParquet
        # metadata.
        "GEOPARQUET_VERSION": "'NONE'",
    }
    if any(column.type == "blob" for column in table.columns):
        # DuckDB searches Bloom filters for the printed form of bytes, so its readers would miss rows.
        options["WRITE_BLOOM_FILTER"] = "false"
    return options | dict(_parquet_options(table.options))


def file_size(options: Mapping[str, str]) -> int:
    """Return the target size of data files, in bytes."""
    return parse_size(options["target_file_size"]) if "target_file_size" in options else DEFAULT_FILE_SIZE


def _parquet_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if (compression := options.get("parquet_compression")) is not None:
        yield "COMPRESSION", literal(compression)
    level = options.get("parquet_compression_level")
    if level is not None and str(compression).lower() == "zstd":  # no other compression has levels
        yield "COMPRESSION_LEVEL", str(int(level))
    if (version := options.get("parquet_version")) is not None:
        yield "PARQUET_VERSION", literal(f"V{version.lower().removeprefix('v')}")
    if (rows := options.get("parquet_row_group_size")) is not None:
        yield "ROW_GROUP_SIZE", str(int(rows))
    # `parquet_row_group_size_bytes` is left out, because COPY supports it only if it need not preserve the row order.


def typed_default(column: ColumnDef) -> str:
    """Return the SQL of a column's default, which a row gets that does not name the column."""
    if column.default is None:
        value = "NULL"
    else:
        value = f"({column.default})" if column.default_type == "expression" else literal(column.default)
    return f"CAST({value} AS {duckdb_type(column)})"
