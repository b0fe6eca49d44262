"""Create and alter tables in the same snapshot as the rows that need it, without the engine's DDL."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from ducklake_orch.catalog.metadata import (
    ColumnDef,
    MetadataTransaction,
    Relation,
    TableDef,
    Token,
    folder_name,
    inlines,
    quoted_path,
    stored_types,
    table_exists,
    text,
)
from ducklake_orch.engine.quoting import folded

_COLUMN = {
    "column_id": "BIGINT",
    "column_order": "BIGINT",
    "column_name": "VARCHAR",
    "column_type": "VARCHAR",
    "initial_default": "VARCHAR",
    "default_value": "VARCHAR",
    "nulls_allowed": "BOOLEAN",
    "parent_column": "BIGINT",
    "default_value_type": "VARCHAR",
    "default_value_dialect": "VARCHAR",
}

_ENDED_BY_DROP = (
    *("ducklake_table", "ducklake_column", "ducklake_column_tag", "ducklake_partition_info", "ducklake_sort_info"),
    *("ducklake_data_file", "ducklake_delete_file"),
)


@dataclass(frozen=True)
class NumberedTable:
    """A table to create or to alter, with all ids that it needs.

    Attributes:
        table: The table.
        makes_schema: Whether the commit also creates the table's schema.
        sort_id: Id of the table's sort spec, if it has one.
        next_id: The next free catalog id after those of the table.
    """

    table: TableDef
    makes_schema: bool
    sort_id: int
    next_id: int


def number_table(
    transaction: MetadataTransaction, table: TableDef, next_id: int, new_schemas: dict[str, int]
) -> NumberedTable:
    """Assign catalog ids to a new table, and to its schema if that is new too.

    Args:
        transaction: The commit.
        table: The table.
        next_id: The next free catalog id.
        new_schemas: Ids of the schemas that the commit creates, by their folded names; a new one is added.
    """
    schema = transaction.metadata.find_schema(table.schema, transaction.latest.snapshot_id)
    schema_id = schema[0] if schema else new_schemas.get(folded(table.schema))
    makes_schema = schema_id is None
    if schema_id is None:
        schema_id = new_schemas[folded(table.schema)] = next_id
        next_id += 1
    made = replace(table, table_id=next_id, schema_id=schema_id)
    return replace(number_keys(made, next_id + 1), makes_schema=makes_schema)


def number_keys(table: TableDef, next_id: int, known: TableDef | None = None) -> NumberedTable:
    """Assign catalog ids to the partition and sort keys of a table, unless they are those of the known table."""
    if known is not None and table.key_fields == known.key_fields:
        table = replace(table, partition=known.partition)
    elif table.partition is not None:
        table = replace(table, partition=replace(table.partition, partition_id=next_id))
        next_id += 1
    return NumberedTable(table, False, next_id, next_id + bool(table.sort))


def create_table(transaction: MetadataTransaction, new: NumberedTable, snapshot: int) -> list[Token]:
    """Create a table, and its schema if that is new too."""
    table, tokens = new.table, []
    if new.makes_schema:
        row = {"schema_id": table.schema_id, "schema_uuid": str(uuid4()), "begin_snapshot": snapshot}
        row |= {"schema_name": table.schema, "path": folder_name(table.schema), "path_is_relative": True}
        transaction.insert_row("ducklake_schema", row)
        tokens.append(Token("created_schema", name=quoted_path(table.schema)))
    row = {"table_id": table.table_id, "table_uuid": table.uuid, "begin_snapshot": snapshot}
    row |= {"schema_id": table.schema_id, "table_name": table.name}
    row |= {"path": folder_name(table.schema, table.name), "path_is_relative": True}
    transaction.insert_row("ducklake_table", row)
    tokens.append(Token("created_table", name=quoted_path(table.schema, table.name)))
    _add_columns(transaction, table.table_id, snapshot, list(_flat(table.columns)))
    _add_comments(transaction, table.table_id, snapshot, table.columns)
    _add_partition(transaction, table, snapshot)
    if table.sort:
        _add_sort(transaction, table, snapshot, new.sort_id)
    return tokens


def describe_table(
    transaction: MetadataTransaction, table_id: int, snapshot: int, comment: str | None, options: Mapping[str, str]
) -> None:
    """Set the comment of a table, if one is given, and the options of a new table; an empty comment removes it."""
    if comment is not None:  # `key` is a reserved word in MySQL, unless it is qualified
        end = f"UPDATE {{}} AS t SET end_snapshot = {snapshot} WHERE t.end_snapshot IS NULL"
        transaction.change("ducklake_tag", f"{end} AND t.object_id = {table_id} AND t.key = 'comment'")
    if comment:
        row = {"object_id": table_id, "begin_snapshot": snapshot, "key": "comment", "value": comment}
        transaction.insert_row("ducklake_tag", row)
    for key, value in options.items():
        row = {"key": key, "value": value, "scope": "table", "scope_id": table_id}
        transaction.insert_row("ducklake_metadata", row)


def alter_table(transaction: MetadataTransaction, known: TableDef, new: NumberedTable, snapshot: int) -> Token:
    """Add, change and drop columns at any nesting depth, and set partition keys, sort keys and comments of columns."""
    table, table_id = new.table, known.table_id
    end = f"UPDATE {{}} SET end_snapshot = {snapshot} WHERE table_id = {table_id} AND end_snapshot IS NULL"
    before, after = ({flat[0].column_id: flat for flat in _flat(columns)} for columns in (known.columns, table.columns))
    dropped = [number for number in before if number not in after]
    changed = [number for number in after if number not in before or _row(before[number]) != _row(after[number])]
    transaction.change_each("ducklake_column", f"{end} AND", "column_id", [*dropped, *before.keys() & changed])
    _add_columns(transaction, table_id, snapshot, [after[number] for number in changed])
    texts, earlier = table.comments, known.comments
    described = [number for number in earlier | texts if texts.get(number) != earlier.get(number)]
    transaction.change_each("ducklake_column_tag", f"{end} AND", "column_id", described)
    _add_comments(transaction, table_id, snapshot, [after[n][0] for n in described if n in after])
    if table.key_fields != known.key_fields:
        transaction.change("ducklake_partition_info", end)
        _add_partition(transaction, table, snapshot)
    if table.sort != known.sort:
        transaction.change("ducklake_sort_info", end)
        if table.sort:
            _add_sort(transaction, table, snapshot, new.sort_id)
    return Token("altered_table", table_id)


def _row(flat: tuple[ColumnDef, int | None, int]) -> ColumnDef:
    """Return what the catalog stores in the row of a column."""
    return replace(flat[0], children=())


def drop_table(transaction: MetadataTransaction, table: TableDef, snapshot: int) -> Token:
    """Drop a table; earlier snapshots keep it."""
    end = f"UPDATE {{}} SET end_snapshot = {snapshot} WHERE end_snapshot IS NULL AND"
    for name in _ENDED_BY_DROP:
        transaction.change(name, f"{end} table_id = {table.table_id}")
    transaction.change("ducklake_tag", f"{end} object_id = {table.table_id}")
    return Token("dropped_table", table.table_id)


def inlined_table(transaction: MetadataTransaction, table: TableDef) -> str | None:
    """Return the inlined-data table of the table's current schema version, or None.

    Flushes drop the inlined-data tables of earlier versions.
    """
    dialect, of_table = transaction.dialect, f"table_id = {table.table_id}"
    newest = f"select max(schema_version) from {dialect.table('ducklake_schema_versions')} where {of_table}"
    rows = transaction.ask(
        f"select {dialect.texts(['table_name'])} from {dialect.table('ducklake_inlined_data_tables')}"
        f" where {of_table} and schema_version >= ({newest}) order by schema_version desc limit 1"
    )
    name = text(rows[0][0]) if rows else None
    return name if name is not None and table_exists(transaction.metadata, name) else None


def add_inlined_table(transaction: MetadataTransaction, table: TableDef, version: int) -> str | None:
    """Create the inlined-data table of a new schema version, if the table can have inlined rows, and return its name.

    Without it, the engine would insert into the inlined-data table of the previous version. If there is none, the
    engine creates one under a version that no table has; after the next ALTER, a flush then reads those rows with the
    columns of an older version.
    """
    dialect = transaction.dialect
    # Where CREATE TABLE commits (MySQL), the engine inserts no inlined rows into a table that was created with rows.
    if not table.inlined and (dialect.create_commits or not inlines(transaction.config, table)):
        return None
    if (types := stored_types(dialect, table.columns)) is None:
        return None
    name = f"ducklake_inlined_data_{table.table_id}_{version}"
    if dialect.create_commits:
        # A process that dies before its COMMIT leaves this table in the catalog. With this suffix, the engine's next
        # ALTER does not use it as its own inlined-data table, whatever columns it has.
        name = f"{name}_own"
    columns = {"row_id": "BIGINT", "begin_snapshot": "BIGINT", "end_snapshot": "BIGINT"} | types
    if not transaction.create(name, columns):
        return None
    row = {"table_id": table.table_id, "table_name": name, "schema_version": version}
    transaction.insert_row("ducklake_inlined_data_tables", row)
    return name


def _flat(columns: Sequence[ColumnDef], parent: int | None = None) -> Iterator[tuple[ColumnDef, int | None, int]]:
    """Return all columns, nested ones included, with their parents and their order; the engine orders them by id."""
    for column in columns:
        yield column, parent, column.column_id
        yield from _flat(column.children, column.column_id)


def _add_columns(
    transaction: MetadataTransaction,
    table_id: int,
    snapshot: int,
    columns: Sequence[tuple[ColumnDef, int | None, int]],
) -> None:
    rows = [
        (
            column.column_id,
            order,
            column.name,
            column.type,
            column.initial_default,
            # The engine stores "no default" as the text NULL.
            column.default if column.default is not None else "NULL",
            column.nullable,
            parent,
            column.default_type if not column.children else "",
            "duckdb",
        )
        for column, parent, order in columns
    ]
    constants = {"table_id": table_id, "begin_snapshot": snapshot}
    transaction.insert("ducklake_column", Relation.of(_COLUMN, rows), constants=constants)


def _add_comments(transaction: MetadataTransaction, table_id: int, snapshot: int, columns: Sequence[ColumnDef]) -> None:
    rows = [(column.column_id, column.comment) for column in columns if column.comment is not None]
    if rows:
        relation = Relation.of({"column_id": "BIGINT", "value": "VARCHAR"}, rows)
        constants = {"table_id": table_id, "begin_snapshot": snapshot, "key": "comment"}
        transaction.insert("ducklake_column_tag", relation, constants=constants)


def _add_partition(transaction: MetadataTransaction, table: TableDef, snapshot: int) -> None:
    spec = table.partition
    if spec is None:
        return
    row = {"partition_id": spec.partition_id, "table_id": table.table_id, "begin_snapshot": snapshot}
    transaction.insert_row("ducklake_partition_info", row)
    columns = {"partition_key_index": "BIGINT", "column_id": "BIGINT", "transform": "VARCHAR"}
    rows = [(index, field.column_id, field.transform) for index, field in enumerate(spec.fields)]
    constants = {"partition_id": spec.partition_id, "table_id": table.table_id}
    transaction.insert("ducklake_partition_column", Relation.of(columns, rows), constants=constants)


def _add_sort(transaction: MetadataTransaction, table: TableDef, snapshot: int, sort_id: int) -> None:
    row = {"sort_id": sort_id, "table_id": table.table_id, "begin_snapshot": snapshot}
    transaction.insert_row("ducklake_sort_info", row)
    columns = {
        "sort_key_index": "BIGINT",
        "expression": "VARCHAR",
        "sort_direction": "VARCHAR",
        "null_order": "VARCHAR",
    }
    rows = [(index, key.expression, key.direction, key.nulls) for index, key in enumerate(table.sort)]
    constants = {"sort_id": sort_id, "table_id": table.table_id, "dialect": "duckdb"}
    transaction.insert("ducklake_sort_expression", Relation.of(columns, rows), constants=constants)
