"""What common.sql asks of a database: an inspector of its tables, and a dialect that writes statements for rows."""

from collections.abc import Iterable, Sequence
from typing import Any

from airflow.providers.common.sql.dialects.dialect import Dialect

from ducklake_orch.airflow.insert_statements import replace_sql
from ducklake_orch.engine.quoting import identifier, table_name
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import Column


class LakeInspector:
    """Lists schemas, tables and columns with the methods of SQLAlchemy's Inspector, which has no DuckLake dialect.

    Args:
        lake: The lake.
        default_schema_name: The schema of names without a schema.
    """

    def __init__(self, lake: DuckLake, default_schema_name: str) -> None:
        self.default_schema_name = default_schema_name
        self._lake = lake

    def get_schema_names(self) -> list[str]:
        """Return the names of the schemas."""
        sql = "SELECT schema_name FROM duckdb_schemas() WHERE database_name = current_database() ORDER BY 1"
        return [str(row["schema_name"]) for row in self._lake.execute(sql, max_rows=None).raise_for_error().rows]

    def get_table_names(self, schema: str | None = None) -> list[str]:
        """Return the names of a schema's tables."""
        wanted = (schema or self.default_schema_name).lower()
        return [entry.table for entry in self._lake.tables() if entry.schema.lower() == wanted]

    def has_table(self, table_name: str, schema: str | None = None) -> bool:
        """Return whether a schema has a table."""
        return self._lake.exists(self._name(table_name, schema))

    def get_columns(self, table_name: str, schema: str | None = None) -> list[dict[str, Any]]:
        """Return a table's columns."""
        return [_described(column) for column in self._lake.table(self._name(table_name, schema)).schema()]

    def get_pk_constraint(self, table_name: str, schema: str | None = None) -> dict[str, Any]:
        """Return a primary key without columns: a lake has no keys."""
        return {"name": None, "constrained_columns": []}

    def _name(self, table: str, schema: str | None) -> str:
        return f"{identifier(schema or self.default_schema_name)}.{identifier(table)}"


class LakeDialect(Dialect):
    """Writes statements for DuckDB. `replace_index` names the columns by which a row replaces another."""

    @classmethod
    def extract_schema_from_table(cls, table: str) -> tuple[str, str | None]:
        """Return the unquoted name of a table, and that of its schema if it is given."""
        name = table_name(table, schema="")
        return name.table, name.schema or None

    def column_types(self, table: str) -> dict[str, str]:
        """Return the names and types of a table's columns."""
        columns = self.inspector.get_columns(*self.extract_schema_from_table(table))
        return {column["name"]: str(column["type"]) for column in columns}

    def generate_replace_sql(
        self,
        table: str,
        values: Sequence[Any],
        target_fields: Iterable[str] | None,
        replace_index: str | Sequence[str] = (),
        **_: Any,
    ) -> str:
        """Return the statement that replaces or inserts one row, with placeholders for its values."""
        types = self.column_types(table)
        row = [self.placeholder] * len(values)
        return replace_sql(table, list(target_fields or types), [row], keys=names(replace_index), types=types)


def names(given: str | Iterable[str]) -> list[str]:
    """Return one or several names as a list."""
    return [given] if isinstance(given, str) else list(given)


def _described(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "nullable": column.nullable,
        "default": column.default,
        "comment": column.comment,
        "autoincrement": False,
    }
