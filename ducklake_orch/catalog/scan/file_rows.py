"""The rows of the metadata tables that describe the files of a table."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.scan.column_bounds import STATISTICS

FILE = (
    *("data_file_id", "path", "path_is_relative", "file_size_bytes", "footer_size", "record_count", "begin_snapshot"),
    *("row_id_start", "partition_id", "mapping_id", "partial_max", "encryption_key"),
)
DELETE_FILE = (
    *("delete_file_id", "path", "path_is_relative", "delete_count", "begin_snapshot", "end_snapshot", "partial_max"),
    *("file_size_bytes", "footer_size", "format", "encryption_key"),
)
_COLUMNS: Mapping[str, Sequence[str]] = MappingProxyType(
    {
        "ducklake_data_file": FILE,
        "ducklake_delete_file": ("data_file_id", *DELETE_FILE),
        "ducklake_file_column_stats": ("data_file_id", "column_id", *(name for name, _ in STATISTICS.values())),
        "ducklake_file_partition_value": ("data_file_id", "partition_key_index", "partition_value"),
    }
)
# The types of columns that are not numbers.
_TYPES = MappingProxyType(
    {
        "path": "VARCHAR",
        "path_is_relative": "BOOLEAN",
        "encryption_key": "VARCHAR",
        "format": "VARCHAR",
        "partition_value": "VARCHAR",
        **dict(STATISTICS.values()),
    }
)


class FileRows:
    """The rows of all files of a table, or of some.

    Args:
        metadata: The metadata tables.
        table_id: The table.
        ids: The query for the ids of the files, in the catalog's own SQL; None for all files of the table.
    """

    def __init__(self, metadata: Metadata, table_id: int, ids: str | None) -> None:
        self._metadata = metadata
        self._table_id = table_id
        self._ids = ids

    def source(self, name: str, condition: str = "true") -> str:
        """Return the rows of a metadata table as what follows FROM, without SELECT and GROUP BY.

        It is no subquery where a table will do: DuckDB's optimizer fails when a subquery on a MySQL table is grouped.

        Args:
            name: The metadata table.
            condition: A condition on its rows, in SQL that every catalog accepts.
        """
        columns, dialect = _COLUMNS[name], self._metadata.dialect
        of_files = f"table_id = {self._table_id}" if self._ids is None else f"data_file_id IN ({self._ids})"
        if self._ids is None and dialect.filters_scans:
            return f"{self._metadata.table_sql(name)} WHERE {of_files} AND {condition}"
        rows = dialect.query(f"SELECT {', '.join(columns)} FROM {dialect.table(name)} WHERE {of_files} AND {condition}")
        # SQLite returns texts.
        typed = ", ".join(f"CAST({column} AS {_TYPES.get(column, 'BIGINT')}) AS {column}" for column in columns)
        return f"(SELECT {typed} FROM ({rows}))"
