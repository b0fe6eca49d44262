"""What a table has been: its columns at every snapshot, and every way in which its files were ever laid out."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ducklake_orch.catalog.metadata import Metadata, build_columns, text
from ducklake_orch.catalog.model import ColumnDef, PartitionField, PartitionSpec, TableDef
from ducklake_orch.catalog.types import NESTED, duckdb_type


@dataclass(frozen=True)
class TableHistory:
    """A table's columns and partition specs, those of the past included; two queries.

    Args:
        metadata: The metadata tables.
        table: The table.
    """

    metadata: Metadata
    table: TableDef

    def version_at(self, snapshot: int) -> int:
        """Return the version of the table's schema that held at a snapshot."""
        versions = self.table.schema_versions
        place = bisect_right(versions, snapshot, key=lambda one: one[0])
        return versions[max(place - 1, 0)][1] if versions else 0

    def columns(self, version: int) -> tuple[ColumnDef, ...]:
        """Return the columns of a version of the table's schema."""
        # Where a table has no place for inlined rows yet, the engine makes one under a version that altered nothing.
        begin = max((begin for begin, number in self.table.schema_versions if number <= version), default=0)
        return build_columns([row for row in self._rows if row[8] <= begin and (row[9] is None or row[9] > begin)])

    @cached_property
    def types(self) -> dict[int, list[str]]:
        """The types of DuckDB that a column has had, by its id, the last one last; for columns that hold values."""
        found = defaultdict(list)
        for row in sorted(self._rows, key=lambda row: int(row[8])):
            column = build_columns([(*row[:7], None)])[0]
            if column.type not in NESTED:
                found[column.column_id].append(duckdb_type(column))
        return found

    @cached_property
    def names(self) -> dict[int, str]:
        """The last name of every column that the table ever had, by its id."""
        return {int(row[0]): text(row[1]) or "" for row in sorted(self._rows, key=lambda row: int(row[8]))}

    @cached_property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """Every partition spec that a file may still have; ids are never used again."""
        name = self.metadata.table_sql
        rows = self.metadata.rows(f"""
            SELECT p.partition_id, c.column_id, c.transform FROM {name("ducklake_partition_info")} p
            JOIN {name("ducklake_partition_column")} c USING (partition_id)
            WHERE p.table_id = {self.table.table_id} ORDER BY p.partition_id, c.partition_key_index""")
        fields = defaultdict(list)
        for row in rows:
            fields[int(row[0])].append(PartitionField(int(row[1]), text(row[2]) or ""))
        return tuple(PartitionSpec(partition_id, tuple(found)) for partition_id, found in fields.items())

    @cached_property
    def _rows(self) -> Sequence[tuple[Any, ...]]:
        return self.metadata.rows(f"""
            SELECT column_id, column_name, column_type, nulls_allowed, initial_default, default_value,
                   default_value_type, parent_column, begin_snapshot, end_snapshot
            FROM {self.metadata.table_sql("ducklake_column")} WHERE table_id = {self.table.table_id}
            ORDER BY column_order, column_id""")
