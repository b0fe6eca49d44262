"""Turn partition, sort and column specifications, as users write them, into SQL."""

import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple

import duckdb

from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.error_classes import KEYS_REMEDY
from ducklake_orch.engine.quoting import TableName, folded, identifier, is_storable, literal
from ducklake_orch.engine.scratch import scratch
from ducklake_orch.errors import ConfigError, MissingExtraError, UnsupportedStatementError
from ducklake_orch.install_commands import install_extra

_NOT_NULL = " NOT NULL"
# The ids of the types that have no defaults.
_NESTED = ("list", "array", "struct", "map", "union")
# Spark's types that Arrow has only as the structs of their parts.
_WITHOUT_ARROW_TYPE = {"variant": "VARIANT", "geometry": "GEOMETRY"}
# Further types of whose values the catalog has no bounds.
_WITHOUT_BOUNDS = ("hugeint", "uhugeint", "variant", "geometry", "interval", "time with time zone", "blob", "bit")
_MOST_CLUSTER_KEYS = 4
TRANSFORMS = ("identity", "year", "month", "day", "hour", "bucket")
_TEMPORAL = dict.fromkeys(("year", "month", "day"), "DATE|TIMESTAMP") | {"hour": "TIMESTAMP"}
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
_SORT_TAIL = re.compile(r"^(.*?)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*$", re.IGNORECASE | re.DOTALL)


class PartitionTransform(NamedTuple):
    """A partition key: the transform, including its number of buckets if it has one, and the column."""

    transform: str
    column: str

    @property
    def sql(self) -> str:
        """The key as SET PARTITIONED BY takes it."""
        if self.transform == "identity":
            return identifier(self.column)
        if self.transform.startswith("bucket("):
            return f"bucket({self.transform[7:-1]}, {identifier(self.column)})"
        return f"{self.transform}({identifier(self.column)})"


def partition_transforms(specs: Sequence[str], columns: Mapping[str, str]) -> list[PartitionTransform]:
    """Parse partition keys such as `day(ts)`, `bucket(16, id)` or `region`.

    Args:
        specs: The partition keys.
        columns: The types of the table's columns, by name.
    """
    return [_partition_key(spec, columns) for spec in _listed("partition_by", specs)]


def partition_sql(specs: Sequence[str], columns: Mapping[str, str]) -> str:
    """Return partition keys as SET PARTITIONED BY takes them."""
    return ", ".join(key.sql for key in partition_transforms(specs, columns))


def _partition_key(spec: str, columns: Mapping[str, str]) -> PartitionTransform:
    if (name := named_column(spec, columns)) is not None:
        return PartitionTransform("identity", name)
    match = _CALL.fullmatch(spec)
    if not match:
        raise ConfigError(f"The partition key `{spec}` is not a column.", remedy=nearest(spec, columns))
    transform, inner = match.group(1).lower(), match.group(2)
    if transform not in TRANSFORMS:
        raise ConfigError(f"Unknown transform `{transform}` in `{spec}`.", remedy=nearest(transform, TRANSFORMS))
    buckets = ""
    if transform == "bucket":
        count, comma, inner = inner.partition(",")
        if not (comma and count.strip().isdigit() and int(count) > 0):
            raise ConfigError(f"`{spec}` has no number of buckets.", remedy="Write it like `bucket(16, id)`.")
        buckets = f"({int(count)})"
    if (name := named_column(inner, columns)) is None:
        raise ConfigError(f"`{inner.strip()}` in `{spec}` is not a column.", remedy=nearest(inner.strip(), columns))
    # The engine would accept such a key and refuse every row later.
    types = _TEMPORAL.get(transform)
    if types and not re.match(types, columns[name]):
        raise ConfigError(f"`{spec}`: column `{name}` is of type {columns[name]}, which has no {transform}.")
    return PartitionTransform(f"{transform}{buckets}", name)


def named_column(text: str, columns: Iterable[str]) -> str | None:
    """Return the column that a text names, with or without quotes; None if it names none."""
    wanted = text.strip()
    if wanted.startswith('"') and wanted.endswith('"') and len(wanted) > 1:
        wanted = wanted[1:-1].replace('""', '"')
    by_name = {folded(column): column for column in columns}
    return by_name.get(folded(wanted))


class SortTerm(NamedTuple):
    """A sort key: an SQL expression, `ASC` or `DESC`, `NULLS FIRST` or `NULLS LAST`; unspecified parts are empty."""

    expression: str
    direction: str
    nulls: str

    @property
    def sql(self) -> str:
        """The key as SET SORTED BY takes it."""
        return " ".join(part for part in self if part)


def sort_terms(specs: Sequence[str], columns: Sequence[str], argument: str = "sort_by") -> list[SortTerm]:
    """Parse sort keys such as `ts desc nulls last` or `lower(region)`."""
    return [_sort_term(spec, columns) for spec in _listed(argument, specs)]


def _listed(name: str, specs: Sequence[str]) -> Sequence[str]:
    if isinstance(specs, str) or not isinstance(specs, Sequence) or not all(isinstance(spec, str) for spec in specs):
        example = specs if isinstance(specs, str) else "region"
        raise ConfigError(f"`{name}` = {specs!r} is not a list of keys.", remedy=f'Write `{name}=["{example}"]`.')
    return specs


def sort_sql(specs: Sequence[str], columns: Sequence[str]) -> str:
    """Return sort keys as SET SORTED BY takes them."""
    return ", ".join(term.sql for term in sort_terms(specs, columns))


def _sort_term(spec: str, columns: Sequence[str]) -> SortTerm:
    import sqlglot

    match = _SORT_TAIL.match(spec)
    expression, direction, nulls = match.groups() if match else (spec, None, None)
    if (name := named_column(expression, columns)) is not None:
        sql = identifier(name)
    else:
        try:
            parsed = sqlglot.parse(expression, dialect="duckdb")
        except sqlglot.errors.SqlglotError:
            parsed = []
        if len(parsed) != 1 or parsed[0] is None or not isinstance(parsed[0], sqlglot.exp.Condition):
            raise ConfigError(
                f"The sort key `{spec}` is neither a column nor an expression.", remedy=nearest(spec, columns)
            )
        sql = expression.strip()
        known = {*map(folded, columns)}
        if (unknown := next((used for used in used_columns(sql) if used not in known), None)) is not None:
            raise ConfigError(
                f"The sort key `{spec}` uses `{unknown}`, which is not a column.", remedy=nearest(unknown, columns)
            )
    return SortTerm(sql, (direction or "").upper(), f"NULLS {nulls.upper()}" if nulls else "")


def cluster_columns(specs: Sequence[str], columns: Mapping[str, str]) -> list[str]:
    """Return the columns that cluster keys name.

    Args:
        specs: The keys.
        columns: The DuckDB types of all columns, by name.

    Raises:
        ConfigError: When a key is not a column, has a type without bounds, or is one too many.
    """
    names = list[str]()
    for spec in _listed("cluster_by", specs):
        if (name := named_column(spec, columns)) is None:
            raise ConfigError(f"The cluster key `{spec}` is not a column.", remedy=nearest(spec, columns))
        if name in names:
            raise ConfigError(f"The cluster key `{name}` is given twice.")
        if duckdb.sqltype(columns[name].removesuffix(_NOT_NULL)).id in (*_NESTED, *_WITHOUT_BOUNDS):
            raise ConfigError(
                f"`{name}` is {columns[name]} and cannot be a cluster key.",
                remedy="Choose a column of numbers, texts, dates, times, UUID or BOOLEAN.",
            )
        names.append(name)
    if len(names) > _MOST_CLUSTER_KEYS:
        raise ConfigError(
            f"{len(names)} cluster keys are too many.",
            remedy=f"Choose the {_MOST_CLUSTER_KEYS} columns that most queries have conditions on, or fewer.",
        )
    return names


def used_columns(expression: str) -> list[str]:
    """Return the folded names of the top-level columns that an expression in DuckDB's SQL uses."""
    import sqlglot

    found = sqlglot.parse_one(expression, dialect="duckdb").find_all(sqlglot.exp.Column)
    # The parameters of a lambda look like columns.
    return [folded(column.parts[0].name) for column in found if column.find_ancestor(sqlglot.exp.Lambda) is None]


def column_types(schema: Any, con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return the column definitions of a pyarrow schema or a `{name: DuckDB type}` mapping."""
    if isinstance(schema, Mapping):
        return {name: _checked_type(name, str(given), con) for name, given in schema.items()}
    named: dict[str, str] = {}
    if type(schema).__module__.startswith("pyspark"):
        named, schema = _without_arrow_type(schema), _arrow_schema(schema)
    if not hasattr(schema, "empty_table"):
        raise ConfigError(
            f"A value of type {type(schema).__name__} is not a schema.",
            remedy="Give a pyarrow.Schema or {name: DuckDB type}.",
        )
    relation = con.from_arrow(schema.empty_table())
    types = [named.get(name, str(kind)) for name, kind in zip(relation.columns, relation.types, strict=True)]
    return {field.name: kind + ("" if field.nullable else _NOT_NULL) for field, kind in zip(schema, types, strict=True)}


def empty_rows(schema: Any) -> tuple[Any, list[str]]:
    """Return a pyarrow.Table without rows for a schema, given as for `column_types`, and its NOT NULL columns."""
    with scratch() as con:
        types = column_types(schema, con)
        columns = ", ".join(
            f"NULL::{kind.removesuffix(_NOT_NULL)} AS {identifier(name)}" for name, kind in types.items()
        )
        con.execute("SET arrow_lossless_conversion = true")
        rows = con.execute(f"SELECT {columns} WHERE false").to_arrow_table()
    return rows, [name for name, kind in types.items() if kind.endswith(_NOT_NULL)]


def column_comments(schema: Any) -> dict[str, str]:
    """Return the column comments of a Spark schema."""
    if not type(schema).__module__.startswith("pyspark"):
        return {}
    return {field.name: str(field.metadata["comment"]) for field in schema.fields if field.metadata.get("comment")}


def _arrow_schema(schema: Any) -> Any:
    try:
        from pyspark.sql.pandas.types import to_arrow_schema
    except ImportError as error:
        raise MissingExtraError("A Spark schema needs pyspark.", remedy=install_extra("spark")) from error
    # Spark 4.3 requires a zone for TIMESTAMP. Any zone is right, because a TIMESTAMP is an instant.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)


def _without_arrow_type(schema: Any) -> dict[str, str]:
    """Return the DuckDB types of a Spark schema's columns that Arrow has only as the structs of their parts.

    Raises:
        UnsupportedStatementError: When such a type is inside another one.
    """
    named = {}
    for field in schema.fields:
        kind = field.dataType.typeName()
        if kind in _WITHOUT_ARROW_TYPE:
            named[field.name] = _WITHOUT_ARROW_TYPE[kind]
        elif inside := _WITHOUT_ARROW_TYPE.keys() & _type_names(field.dataType):
            raise UnsupportedStatementError(
                f"Column `{field.name}` of a Spark schema has the type {inside.pop()} inside another type.",
                remedy="Give the schema as {name: DuckDB type}.",
            )
    return named


def _type_names(kind: Any) -> set[str]:
    parts = [getattr(kind, name, None) for name in ("elementType", "keyType", "valueType")]
    parts += [field.dataType for field in getattr(kind, "fields", ())]
    return {str(kind.typeName())}.union(*(_type_names(part) for part in parts if part is not None))


def _checked_type(name: str, given: str, con: duckdb.DuckDBPyConnection) -> str:
    if not is_storable(given):
        raise ConfigError(f"{given!r} cannot be the type of a column.")
    match = re.fullmatch(r"(.*?)(\s+not\s+null)?\s*", given, re.IGNORECASE | re.DOTALL)
    kind, not_null = (match.group(1), match.group(2)) if match else (given, None)
    if re.search(r"\b(?:primary\s+key|unique|references|foreign\s+key)\b", kind, re.IGNORECASE):
        raise UnsupportedStatementError(f"Column `{name}` declares a key: `{given}`.", remedy=KEYS_REMEDY)
    reason = "only NOT NULL may follow a type"
    try:
        # The engine parses the type and prints it: exactly one column, so that the text can hold nothing but a type.
        rows = con.execute(f"DESCRIBE SELECT CAST(NULL AS {kind}) AS c").fetchall()
        if len(rows) == 1 and rows[0][0] == "c":
            return str(rows[0][1]) + (_NOT_NULL if not_null else "")
    except duckdb.Error as error:
        reason = str(error).strip().splitlines()[0]
    raise ConfigError(f"Column `{name}` has a type that DuckDB does not know: `{given}` ({reason}).")


def default_texts(
    values: Mapping[str, Any], types: Mapping[str, str], con: duckdb.DuckDBPyConnection
) -> dict[str, str]:
    """Return the defaults of columns as texts, by the names of the columns.

    Args:
        values: The defaults; None means none.
        types: The definitions of the columns, as `column_types` returns them.
        con: A connection.
    """
    texts = {}
    for given, value in values.items():
        name = next((known for known in types if folded(known) == folded(given)), None)
        if name is None:
            raise ConfigError(f"`defaults`: there is no column `{given}`.", remedy=nearest(given, types))
        text = default_text(name, types[name].removesuffix(_NOT_NULL), value, con)
        if text is not None:
            texts[name] = text
    return texts


def default_text(column: str, kind: str, value: Any, con: duckdb.DuckDBPyConnection) -> str | None:
    """Return the default of a column as the text that a catalog has; None for no default.

    Args:
        column: The name of the column.
        kind: Its type in DuckDB.
        value: The default.
        con: A connection.
    """
    if value is None:
        return None
    try:
        is_nested = duckdb.sqltype(kind).id in _NESTED
        rows = [] if is_nested else con.execute(f"SELECT CAST(CAST(? AS {kind}) AS VARCHAR)", [value]).fetchall()
    except (duckdb.Error, RuntimeError):  # the client raises the latter for a text that is not Unicode
        rows = []
    if not rows:
        raise ConfigError(f"{value!r} cannot be the default of `{column}`, which is {kind}.")
    if (text := str(rows[0][0])) == "NULL":
        raise ConfigError(f"The default of `{column}` cannot be the text NULL: in a catalog, it stands for no default.")
    return text


def create_table_sql(
    alias: str,
    table: TableName,
    columns: Mapping[str, str],
    defaults: Mapping[str, str],
    *,
    partition_by: Sequence[str] | None,
    sort_by: Sequence[str] | None,
    comment: str | None,
    comments: Mapping[str, str],
) -> list[str]:
    """Return the statements that create a table and set its layout before any row is written."""
    names, target = list(columns), table.sql(alias)
    ends = {name: f" DEFAULT {literal(text)}" for name, text in defaults.items()}
    body = ", ".join(f"{identifier(name)} {kind}{ends.get(name, '')}" for name, kind in columns.items())
    statements = [
        f"CREATE SCHEMA IF NOT EXISTS {identifier(alias)}.{identifier(table.schema)}",
        f"CREATE TABLE {target} ({body})",
    ]
    if partition_by:
        statements.append(f"ALTER TABLE {target} SET PARTITIONED BY ({partition_sql(partition_by, columns)})")
    if sort_by:
        statements.append(f"ALTER TABLE {target} SET SORTED BY ({sort_sql(sort_by, names)})")
    return statements + comment_sql(target, comment, comments)


def comment_sql(target: str, comment: str | None, comments: Mapping[str, str]) -> list[str]:
    """Return the statements that set the comments of a table and its columns."""
    statements = [] if comment is None else [f"COMMENT ON TABLE {target} IS {literal(comment)}"]
    return statements + [
        f"COMMENT ON COLUMN {target}.{identifier(name)} IS {literal(text)}" for name, text in comments.items()
    ]
