"""Read values that were written with an earlier schema as columns of a later one.

Columns are matched by id, so their names may differ.
"""

from ducklake_orch.catalog.metadata.table_model import ColumnDef
from ducklake_orch.catalog.metadata.type_names import duckdb_type
from ducklake_orch.engine.quoting import identifier, literal


def read_as(sql: str, old: ColumnDef | None, new: ColumnDef) -> str:
    """Return the SQL that reads a value as a column of a later schema.

    Args:
        sql: The SQL of the value as it was written; it may occur more than once in the result.
        old: The column as it was when the value was written; None if it did not exist yet.
        new: The column as the value is read.
    """
    if old is None:
        return initial_value(new)
    if _same(old, new):
        return sql
    inside = {child.column_id: child for child in old.children}
    match new.type:
        case "struct":
            fields = ", ".join(
                f"{identifier(child.name)} := "
                + read_as(_field(sql, inside.get(child.column_id)), inside.get(child.column_id), child)
                for child in new.children
            )
            return f"CASE WHEN {sql} IS NOT NULL THEN struct_pack({fields}) END"
        case "list":
            name = f"e{new.column_id}"
            item = read_as(name, old.children[0], new.children[0])
            return f"list_transform({sql}, lambda {name}: {item})"
        case "map":
            name = f"e{new.column_id}"
            pairs = zip(("key", "value"), old.children, new.children, strict=True)
            entry = ", ".join(f"{part}: {read_as(f'{name}.{part}', was, now)}" for part, was, now in pairs)
            return f"map_from_entries(list_transform(map_entries({sql}), lambda {name}: {{{entry}}}))"
    return f"CAST({sql} AS {duckdb_type(new)})"


def initial_value(column: ColumnDef) -> str:
    """Return the SQL of the value that a column has in rows that were written before it was added."""
    return f"CAST({literal(column.initial_default)} AS {duckdb_type(column)})"


def _field(sql: str, child: ColumnDef | None) -> str:
    return f"struct_extract({sql}, {literal(child.name)})" if child else sql


def _same(old: ColumnDef, new: ColumnDef) -> bool:
    """Return whether a value needs no conversion; a column's own name does not matter, names of struct fields do."""
    return (
        old.type == new.type
        and len(old.children) == len(new.children)
        and all(
            old_child.column_id == new_child.column_id
            and (old_child.name == new_child.name or new.type != "struct")
            and _same(old_child, new_child)
            for old_child, new_child in zip(old.children, new.children, strict=True)
        )
    )
