"""What the strategies of `lake.merge` have in common: they match rows of the table with source rows by keys."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import duckdb

from ducklake_orch.catalog.metadata import ColumnDef, DataFile, Metadata, TableDef, position_name, row_id_name
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.search import DuckDBFinder, Losses, MatchedPositions, RowPlan, inlined_sql, placed_sql
from ducklake_orch.catalog.verbs.merge_request import KeyedRequest
from ducklake_orch.catalog.verbs.merge_source import MergeSource
from ducklake_orch.catalog.writing import FileQuery, Lent, Workers, check_layout, evolved
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import folded
from ducklake_orch.errors import ObjectNotFoundError

# What a merge does to a row.
KEEP, UPDATE, DELETE, INSERT = range(4)


class KeyedVerb(DuckDBFinder, ABC):
    """A merge, both as the verb and as the finder of a row change.

    Args:
        con: A connection that nothing else uses during the merge.
        source: The source rows.
        request: The arguments that all strategies share.
        workers: Matches rows on other machines; None to match them all in this process.
    """

    mode = "merge"
    needs_values = True
    changes_every_match = False
    replays = True
    travels = True

    def __init__(
        self, con: duckdb.DuckDBPyConnection, source: MergeSource, request: KeyedRequest, workers: Workers | None
    ) -> None:
        self._con = con
        self._source = source
        self._keyed = request
        self._workers = workers
        self.where: str | None = None

    def first_rows(self) -> str:
        """Return the query for the rows of a new table."""
        return self._source.first_rows()

    @property
    def lent(self) -> Sequence[Lent]:
        """The temporary tables that queries read besides data files."""
        return ()

    # --- planning and finding ----------------------------------------------------------------------------------------

    @abstractmethod
    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        """Refuse a merge that the table does not allow; return the table as the merge will leave it."""

    @abstractmethod
    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        """Match the inlined rows; return the ids of those to retire, by inlined table."""

    def _target(self, metadata: Metadata, table: TableDef, keys: Mapping[str, Sequence[str]]) -> TableDef:
        """Refuse a layout or keys that are not the table's; return the table as the merge will leave it.

        Args:
            metadata: The metadata tables.
            table: The table.
            keys: Names of columns that the table must have, by argument.
        """
        request = self._keyed
        check_layout(metadata.con, table, request.partition_by, request.sort_by)
        known = {folded(column.name): column.name for column in table.columns}
        for argument, names in keys.items():
            for name in names:
                if folded(name) not in known:
                    raise ObjectNotFoundError(
                        f"`{argument}`: table `{table}` has no column `{name}`.",
                        remedy=nearest(name, list(known.values())),
                    )
        if request.schema_evolution == "error":
            return table
        types = self._source.stored_types(table)
        return evolved(metadata, table, types, promote=request.schema_evolution == "promote")

    def _forget(self, found: str, plan: ScanPlan, files: Sequence[DataFile]) -> None:
        """Remove what a temporary table has of files that are searched again, or that the plan no longer has."""
        again = {file.data_file_id for file in files}
        known = ", ".join(str(file.data_file_id) for file in plan.files if file.data_file_id not in again) or "NULL"
        self._con.execute(f"DELETE FROM {found} WHERE (file IN ({known})) IS NOT TRUE")

    def _collect(self, plan: ScanPlan, queries: Sequence[FileQuery], columns: tuple[ColumnDef, ...], into: str) -> None:
        """Put the rows of queries, each over one data file and the source rows, into a temporary table."""
        if self._workers and self.travels and self._workers.are_worth([query.file for query in queries]):
            self.engine = self._workers.engine
            lent = [self._source.lent_table]
            with self._workers.select(self._con, plan.table, queries, lent, columns) as found:
                self._con.execute(f"INSERT INTO {into} {found}")
        else:
            for query in queries:
                self._con.execute(f"INSERT INTO {into} {query.sql}")

    # --- writing -----------------------------------------------------------------------------------------------------

    @abstractmethod
    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for new rows."""

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        """Return queries for the rows that replace matching rows of data files."""
        return []

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for the rows that replace inlined rows."""
        return []


class UpdatingVerb(KeyedVerb):
    """A merge that gives rows other values.

    Attributes:
        actions: The temporary table that says what happens to rows: `file`, `pos` and `action`. A file is the id of a
            data file, or the negative number of an inlined table.
    """

    actions: str

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        """Return queries for the rows that replace matching rows of data files."""
        ids, position = self._updated(), position_name(plan.scan.needed)
        return [
            FileQuery(
                file, self._update_sql(plan, file.data_file_id, f"({placed_sql(plan.scan, file, hits)})", position)
            )
            for file in losses.files
            if file.data_file_id in ids
        ]

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        """Return queries for the rows that replace inlined rows."""
        ids = self._updated()
        return [
            self._update_sql(plan, -n, rows, row_id_name(plan.table.columns))
            for n, rows in enumerate(inlined_sql(self._con, plan), 1)
            if -n in ids
        ]

    def _updated(self) -> set[int]:
        query = f"SELECT DISTINCT file FROM {self.actions} WHERE action = {UPDATE}"
        return {int(row[0]) for row in self._con.execute(query).fetchall()}

    @abstractmethod
    def _update_sql(self, plan: RowPlan, number: int, rows: str, row_key: str) -> str:
        """Return the query for the rows that replace others.

        Args:
            plan: The plan.
            number: Identifies where the rows are: the id of a data file, or a negative number for an inlined table.
            rows: The relation to put after FROM.
            row_key: The column that identifies a row in it: a position or a row id.
        """
