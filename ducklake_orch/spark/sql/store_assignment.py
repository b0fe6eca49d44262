"""Convert the result of a query to the types of a table's columns, as Spark's INSERT does."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ducklake_orch.errors import DataError
from ducklake_orch.spark.spark_quoting import name_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import DataType, StructField

_TIMES = ("date", "timestamp", "timestamp_ntz")


def assigned(frame: "DataFrame", columns: "Sequence[StructField]", table: str) -> "DataFrame":
    """Return a frame whose columns, by position, have the names and types of a table's columns.

    The rules are those of Spark's ANSI store assignment, whatever the session's settings are: numbers become other
    numbers if they fit, anything becomes a text, and a text becomes nothing else.

    Args:
        frame: The result of the query.
        columns: The columns that are assigned.
        table: The table, for messages.

    Raises:
        DataError: When there are more or fewer columns, or a type cannot be assigned.
    """
    found = frame.schema.fields
    if len(found) != len(columns):
        raise DataError(
            f"The query has {len(found)} columns for `{table}`, and {len(columns)} are assigned.",
            remedy="Name the columns to assign: `INSERT INTO table (a, b) SELECT …`.",
        )
    names = [f"ducklake_{number}" for number in range(len(found))]
    frame = frame.toDF(*names)
    pairs = zip(names, found, columns, strict=True)
    return frame.selectExpr(
        *(f"{assigned_sql(name, source, column, table)} AS {name_sql(column.name)}" for name, source, column in pairs)
    )


def assigned_sql(name: str, source: "StructField", column: "StructField", table: str) -> str:
    """Return the SQL of a value that fails if it does not fit, also where casts of the session do not.

    Args:
        name: The SQL of the value as it is.
        source: What it is.
        column: The column that it is assigned to.
        table: The table, for messages.

    Raises:
        DataError: When the type cannot be assigned.
    """
    kind = column.dataType.simpleString()
    if not _can_assign(source.dataType, column.dataType):
        raise DataError(
            f"Column `{column.name}` of `{table}` has the type {kind}, and the query gives it"
            f" {source.dataType.simpleString()}.",
            remedy=f"Cast it: `CAST({source.name} AS {kind.upper()})`.",
        )
    if source.dataType == column.dataType:
        return name
    cast = f"try_cast({name} AS {kind})"
    message = f"A value of `{source.name}` does not fit column `{column.name}` of type {kind}."
    return f"if({name} IS NOT NULL AND {cast} IS NULL, raise_error({_literal(message)}), {cast})"


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _can_assign(source: "DataType", target: "DataType") -> bool:
    from pyspark.sql.types import ArrayType, AtomicType, MapType, NullType, NumericType, StringType, StructType

    if source == target or isinstance(source, NullType):
        return True
    match source, target:
        case ArrayType(), ArrayType():
            return _can_assign(source.elementType, target.elementType)
        case MapType(), MapType():
            keys = _can_assign(source.keyType, target.keyType)
            return keys and _can_assign(source.valueType, target.valueType)
        case StructType(), StructType():
            pairs = zip(source.fields, target.fields, strict=False)
            same = [field.name for field in source.fields] == [field.name for field in target.fields]
            return same and all(_can_assign(left.dataType, right.dataType) for left, right in pairs)
    if isinstance(target, StringType):
        return isinstance(source, AtomicType)
    if isinstance(source, NumericType) and isinstance(target, NumericType):
        return True
    return source.typeName() in _TIMES and target.typeName() in _TIMES
