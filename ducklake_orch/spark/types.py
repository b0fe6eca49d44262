"""Convert between the types of Spark and DuckDB; a type that one side cannot hold is refused by name, with a remedy.

| Spark, written               | in DuckDB                  | DuckDB, read               | in Spark                   |
| ---------------------------- | -------------------------- | -------------------------- | -------------------------- |
| boolean, integers, floats    | the same                   | the same                   | the same                   |
|                              |                            | unsigned up to UINTEGER    | the next wider integer     |
| decimal(p, s)                | DECIMAL(p, s)              | UBIGINT; HUGEINT, UHUGEINT | decimal(20, 0); (38, 0)    |
| string, char, varchar        | VARCHAR (into JSON, UUID)  | VARCHAR, JSON, UUID, BIT   | string                     |
| timestamp, timestamp_ntz     | TIMESTAMPTZ, TIMESTAMP     | the same, TIMESTAMP_S, _MS | the same                   |
| time, interval day to second | TIME, INTERVAL             | TIME, TIMETZ, INTERVAL     | string                     |
| binary, geometry             | BLOB, GEOMETRY             | BLOB, GEOMETRY (as WKB)    | binary                     |
| array, map, struct           | the same, of these         | the same, of these         | the same, of these         |
| variant, as a column         | VARIANT                    | VARIANT, as a column       | variant                    |
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from ducklake_orch.catalog.metadata import ColumnDef
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import DataError, UnsupportedStatementError
from ducklake_orch.spark.variants import variant_parts

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_TO_DUCKDB = {
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
    "variant": "VARIANT",
}
_TO_SPARK = {
    "boolean": "boolean",
    "int8": "tinyint",
    "int16": "smallint",
    "int32": "int",
    "int64": "bigint",
    "int128": "decimal(38,0)",
    "uint8": "smallint",
    "uint16": "int",
    "uint32": "bigint",
    "uint64": "decimal(20,0)",
    "uint128": "decimal(38,0)",
    "float32": "float",
    "float64": "double",
    "date": "date",
    "timestamp": "timestamp_ntz",
    "timestamp_us": "timestamp_ntz",
    "timestamp_ms": "timestamp_ntz",
    "timestamp_s": "timestamp_ntz",
    "timestamptz": "timestamp",
    "varchar": "string",
    "json": "string",
    "uuid": "string",
    "time": "string",
    "timetz": "string",
    "interval": "string",
    "bit": "string",
    "blob": "binary",
    "geometry": "binary",
    "variant": "variant",
}
_CLASSES = {
    "boolean": "BooleanType",
    "tinyint": "ByteType",
    "smallint": "ShortType",
    "int": "IntegerType",
    "bigint": "LongType",
    "float": "FloatType",
    "double": "DoubleType",
    "date": "DateType",
    "timestamp": "TimestampType",
    "timestamp_ntz": "TimestampNTZType",
    "string": "StringType",
    "binary": "BinaryType",
    "variant": "VariantType",
}
# The DuckDB types to which values are cast so that Arrow, and then Spark, gets the type above.
_EXPORTED = {
    "smallint": "SMALLINT",
    "int": "INTEGER",
    "bigint": "BIGINT",
    "timestamp_ntz": "TIMESTAMP",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "string": "VARCHAR",
    "decimal(20,0)": "DECIMAL(20,0)",
    "decimal(38,0)": "DECIMAL(38,0)",
    "boolean": "BOOLEAN",
    "tinyint": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "binary": "BLOB",
}


# --- from Spark ------------------------------------------------------------------------------------------------------


def duckdb_columns(schema: "StructType") -> list[tuple[str, str]]:
    """Return the names of a DataFrame's columns and their types in DuckDB.

    A column without a type (`void`, for columns that hold only NULLs) gets the type `"NULL"`.

    Raises:
        DataError: When no lake can hold some columns; it names all of them.
    """
    if duplicates := repeated(field.name for field in schema.fields):
        raise DataError(
            f"The data have duplicate columns: {', '.join(duplicates)}.", remedy="Rename or drop all but one."
        )
    problems, found = [], []
    for field in schema.fields:
        kind = field.dataType
        try:
            found.append((field.name, "NULL" if kind.typeName() == "void" else duckdb_type(kind)))
        except DataError as error:
            problems.append(f"`{field.name}`: {error.message}")
    if problems:
        raise DataError("; ".join(problems), remedy="Cast such columns, or drop them.")
    return found


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once; DuckDB ignores case in names."""
    return sorted(name for name, times in Counter(map(folded, names)).items() if times > 1)


def stored_type(kind: "DataType") -> "DataType":
    """Return the type in which Spark stores a value: for a user-defined type it is `sqlType()`."""
    from pyspark.sql.types import UserDefinedType

    return stored_type(kind.sqlType()) if isinstance(kind, UserDefinedType) else kind


def duckdb_type(kind: "DataType") -> str:
    """Return the DuckDB type for a Spark type."""
    inner: Any = stored_type(kind)
    match inner.typeName():
        case "array":
            return f"{_nested_type(inner.elementType)}[]"
        case "map":
            return f"MAP({_nested_type(inner.keyType)}, {_nested_type(inner.valueType)})"
        case "struct":
            if not inner.fields:
                raise DataError("a lake cannot store a struct without fields.")
            if duplicates := repeated(field.name for field in inner.fields):
                raise DataError(f"a struct has duplicate fields: {', '.join(duplicates)}; rename all but one.")
            fields = ", ".join(f"{identifier(field.name)} {_nested_type(field.dataType)}" for field in inner.fields)
            return f"STRUCT({fields})"
        case "decimal":
            return f"DECIMAL({inner.precision},{inner.scale})"
    word = inner.simpleString()
    if word in _TO_DUCKDB:
        return _TO_DUCKDB[word]
    if word.startswith(("string", "char(", "varchar(")):
        return "VARCHAR"
    if word.startswith("time("):
        return "TIME"
    if word.startswith("interval") and ("day" in word or "hour" in word or "minute" in word or "second" in word):
        return "INTERVAL"
    if word.startswith("geometry"):
        return "GEOMETRY"
    raise DataError(f"a lake cannot store {word}: {_remedy(word)}.")


def _nested_type(kind: "DataType") -> str:
    found = duckdb_type(kind)
    if found == "VARIANT":
        raise DataError("DuckDB writes no file with a variant inside another value: write its `to_json(…)`.")
    return found


def variant_names(schema: "StructType") -> tuple[str, ...]:
    """Return the names of a DataFrame's columns that are variants."""
    return tuple(field.name for field in schema.fields if stored_type(field.dataType).typeName() == "variant")


def _remedy(word: str) -> str:
    months = word.endswith(("month", "year"))
    return "store its months as an integer" if months else _REMEDIES.get(word.partition("(")[0], "cast it")


_REMEDIES = {
    "void": "give the NULLs inside it a type",
    "interval": "store its parts as integers",
    "geography": "write its `ST_AsBinary(…)`",
}


def imported(kind: "DataType", sql: str) -> str:
    """Return the SQL that converts a value from Spark's Arrow batches to `duckdb_type(kind)`."""
    return _imported(kind, sql, 0)


def _imported(kind: "DataType", sql: str, depth: int) -> str:
    if not _differs(kind):
        return sql
    inner: Any = stored_type(kind)
    each = f"e{depth}"
    match inner.typeName():
        case "array":
            return f"list_transform({sql}, lambda {each}: {_imported(inner.elementType, each, depth + 1)})"
        case "map":
            key = _imported(inner.keyType, f"{each}.key", depth + 1)
            value = _imported(inner.valueType, f"{each}.value", depth + 1)
            entries = f"list_transform(map_entries({sql}), lambda {each}: {{key: {key}, value: {value}}})"
            return f"map_from_entries({entries})"
        case "struct":
            fields = ", ".join(
                f"{identifier(field.name)} := {_imported(field.dataType, f'({sql}).{identifier(field.name)}', depth)}"
                for field in inner.fields
            )
            return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({fields}) END"
    if inner.simpleString().startswith("geometry"):
        return f"ST_GeomFromWKB(({sql}).wkb)"
    return f"CAST({sql} AS {duckdb_type(kind)})"


def _differs(kind: "DataType") -> bool:
    """Whether the type in Arrow batches differs from DuckDB's, at any depth."""
    inner: Any = stored_type(kind)
    match inner.typeName():
        case "array":
            return _differs(inner.elementType)
        case "map":
            return _differs(inner.keyType) or _differs(inner.valueType)
        case "struct":
            return any(_differs(field.dataType) for field in inner.fields)
    return bool(inner.simpleString().startswith(("geometry", "time(", "interval")))


# --- to Spark --------------------------------------------------------------------------------------------------------


def spark_schema(columns: Iterator[ColumnDef]) -> "StructType":
    """Return the columns of a table as a DataFrame has them.

    Raises:
        UnsupportedStatementError: When Spark cannot hold some columns; it names all of them.
    """
    from pyspark.sql.types import StructField, StructType

    problems, fields = [], []
    for column in columns:
        try:
            about = {"comment": column.comment} if column.comment is not None else None
            fields.append(StructField(column.name, spark_type(column), True, about))
        except UnsupportedStatementError as error:
            problems.append(f"`{column.name}`: {error.message}")
    if problems:
        raise UnsupportedStatementError(
            f"Spark cannot read {'; '.join(problems)}.", remedy="Leave such columns out with `columns=`."
        )
    return StructType(fields)


def spark_type(column: ColumnDef) -> "DataType":
    """Return Spark's type for a column."""
    from pyspark.sql import types

    match column.type:
        case "list":
            return types.ArrayType(_nested_spark_type(column.children[0]), True)
        case "map":
            key, value = (_nested_spark_type(child) for child in column.children)
            return types.MapType(key, value, True)
        case "struct":
            fields = [types.StructField(child.name, _nested_spark_type(child), True) for child in column.children]
            return types.StructType(fields)
    word = _spark_word(column)
    if word.startswith("decimal("):
        precision, scale = (int(number) for number in word[8:-1].split(","))
        return types.DecimalType(precision, scale)
    return getattr(types, _CLASSES[word])()  # type: ignore[no-any-return]


def _nested_spark_type(column: ColumnDef) -> "DataType":
    if column.type == "variant":
        raise UnsupportedStatementError("a VARIANT inside another value, of which DuckDB writes no file")
    return spark_type(column)


def _spark_word(column: ColumnDef) -> str:
    if column.type.startswith("decimal("):
        return column.type
    if column.type not in _TO_SPARK:
        raise UnsupportedStatementError(f"{column.type} has no type in Spark")
    return _TO_SPARK[column.type]


# Types that Spark's own Parquet reader cannot read as the type above. In the variants that DuckDB writes, it does not
# find all keys, see `variant_parts`.
_DUCKDB_READS = {"int128", "uint128", "uuid", "time", "timetz", "interval", "bit", "variant"}


def native(column: ColumnDef) -> bool:
    """Whether Spark's own Parquet reader reads the column's values as `spark_type(column)`."""
    return all(leaf.type not in _DUCKDB_READS for leaf in column.leaves())


def exported(column: ColumnDef, sql: str) -> str:
    """Return the SQL that converts a column's value so that Arrow passes it to Spark as `spark_type(column)`."""
    if not _changes(column):
        return sql
    each = f"x{column.column_id}"
    match column.type:
        case "list":
            return f"list_transform({sql}, lambda {each}: {exported(column.children[0], each)})"
        case "map":
            key, value = (
                exported(child, f"{each}.{part}") for part, child in zip(("key", "value"), column.children, strict=True)
            )
            entries = f"list_transform(map_entries({sql}), lambda {each}: {{key: {key}, value: {value}}})"
            return f"map_from_entries({entries})"
        case "struct":
            fields = ", ".join(
                f"{identifier(child.name)} := {exported(child, f'({sql}).{identifier(child.name)}')}"
                for child in column.children
            )
            return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({fields}) END"
        case "geometry":
            return f"ST_AsWKB({sql})"
        case "variant":
            return variant_parts(sql)
    return f"CAST({sql} AS {_EXPORTED[_spark_word(column)]})"


_SAME = {"boolean", "int8", "int16", "int32", "int64", "float32", "float64", "date", "varchar", "blob", "timestamptz"}
_SAME |= {"timestamp", "timestamp_us"}


def _changes(column: ColumnDef) -> bool:
    if column.children:
        return any(_changes(child) for child in column.children)
    return not (column.type in _SAME or column.type.startswith("decimal("))
