"""Read the history of a table: its columns at every snapshot, and every partition spec of its files."""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from ducklake_orch.catalog.metadata.snapshot_reader import Metadata
from ducklake_orch.catalog.metadata.table_model import ColumnDef, ColumnVersion, PartitionSpec, TableDef
from ducklake_orch.catalog.metadata.table_reader import build_columns
from ducklake_orch.catalog.metadata.type_names import NESTED, duckdb_type


@dataclass(frozen=True)
class TableHistory:
    """A table's current and past columns and partition specs.

    Args:
        metadata: The metadata tables.
        table: The table.
    """

    metadata: Metadata
    table: TableDef

    def version_at(self, snapshot: int) -> int:
        """Return the version of the table's schema at a snapshot."""
        versions = self.table.schema_versions
        index = bisect_right(versions, snapshot, key=lambda entry: entry[0])
        return versions[max(index - 1, 0)][1] if versions else 0

    def columns(self, version: int) -> tuple[ColumnDef, ...]:
        """Return the columns of a version of the table's schema."""
        # If a table has no inlined-data table yet, the engine creates one under a version that did not alter the table.
        # So take the last alteration up to that version.
        begin = max((begin for begin, number in self.table.schema_versions if number <= version), default=0)
        return build_columns(self.table.past_columns, begin)

    @cached_property
    def layouts(self) -> dict[int, tuple[ColumnDef, ...]]:
        """The columns that the table has had, by their first snapshot, if its files are encrypted and show no ids."""
        versions = self.table.schema_versions if self.table.encrypted else ()
        return {begin: build_columns(self.table.past_columns, begin) for begin, _ in versions}

    @cached_property
    def types(self) -> dict[int, list[str]]:
        """All DuckDB types that each column with values has had, by column id, from the oldest to the newest."""
        by_column = defaultdict(list)
        for version in self._by_age:
            if version.column.type not in NESTED:
                by_column[version.column.column_id].append(duckdb_type(version.column))
        return by_column

    @cached_property
    def names(self) -> dict[int, str]:
        """The last name of every column that the table ever had, by column id."""
        return {version.column.column_id: version.column.name for version in self._by_age}

    @property
    def specs(self) -> tuple[PartitionSpec, ...]:
        """Every partition spec that a file may still have."""
        return self.table.past_specs

    @property
    def _by_age(self) -> list[ColumnVersion]:
        return sorted(self.table.past_columns, key=lambda version: version.begin_snapshot)
