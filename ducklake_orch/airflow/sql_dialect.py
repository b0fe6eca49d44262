"""What common.sql asks of a database: an inspector of its tables, and a dialect that writes statements for rows."""

from typing import Any

from airflow.providers.common.sql.dialects.dialect import Dialect

from ducklake_orch.engine.quoting import identifier, table_name
from ducklake_orch.errors import UnsupportedStatementError
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
    """Writes INSERT statements, and knows the names in the lake."""

    @classmethod
    def extract_schema_from_table(cls, table: str) -> tuple[str, str | None]:
        """Return the unquoted name of a table, and that of its schema if it is given."""
        name = table_name(table, schema="")
        return name.table, name.schema or None

    def column_types(self, table: str) -> dict[str, str]:
        """Return the names and types of a table's columns."""
        columns = self.inspector.get_columns(*self.extract_schema_from_table(table))
        return {column["name"]: str(column["type"]) for column in columns}

    def generate_replace_sql(self, *_: Any, **__: Any) -> str:
        """Refuse to write a statement that replaces rows: DuckDB has none for tables without keys."""
        raise UnsupportedStatementError(
            "DuckDB has no statement that replaces rows of a table without keys.",
            remedy="Use `insert_rows(replace=True, replace_index=…)`, or MERGE INTO in SQL.",
        )


def _described(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "nullable": column.nullable,
        "default": column.default,
        "comment": column.comment,
        "autoincrement": False,
    }
