"""Change rows that are known by their row ids: what Spark has found to update, delete or insert."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.metadata import (
    DataFile,
    Metadata,
    TableDef,
    duckdb_type,
    position_name,
    row_id_name,
)
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.search import DuckDBFinder, Losses, MatchedPositions, RowPlan, placed_sql
from ducklake_orch.catalog.verbs.merge_source import Spool
from ducklake_orch.catalog.verbs.row_change import RowRequest, change_rows
from ducklake_orch.catalog.writing import FileQuery, explain, projection, source_columns
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import refuse_managed
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import DataError, SnapshotChangedError
from ducklake_orch.results import WriteResult

# Columns of the rows, beside those of the table: the id of the row that changes, and whether it is deleted.
ROW_ID, DELETED = "__ducklake_row_id", "__ducklake_deleted"
_SPOOL, _ROWS = "__ducklake_orch_spooled", "__ducklake_orch_changed"


@dataclass(frozen=True)
class ChangeByRowIdRequest(RowRequest):
    """The table, and what is known of the change.

    Attributes:
        mode: The name of the change in its result.
        where: A condition that all rows to update or delete meet; the change depends on no other rows.
    """

    mode: str = "merge"
    where: str | None = None


def change_by_row_id(config: LakeConfig, rows: Spool, request: ChangeByRowIdRequest) -> WriteResult:
    """Update, delete and insert rows in one snapshot.

    Args:
        config: The lake.
        rows: The rows, each with the id of the row that it updates or deletes; a new row has none. A row that is only
            deleted needs no values.
        request: The table. `expect_snapshot` is the snapshot that the ids were read at.
    """
    refuse_managed(config, f"changing rows of `{request.table}`")
    with working_connection(config, apart=True) as con:
        verb = _ChangeByRowId(con, rows, request)
        return change_rows(config, con, request, verb, verb)


class _ChangeByRowId(DuckDBFinder):
    """A change by row ids, both as the verb and as the finder of its rows."""

    engine = "spark"
    needs_values = False
    changes_every_match = False
    replays = True
    travels = False
    lent = ()

    def __init__(self, con: duckdb.DuckDBPyConnection, rows: Spool, request: ChangeByRowIdRequest) -> None:
        self.mode, self.where = request.mode, request.where
        self._con, self._source = con, rows
        self._columns: list[str] = []
        names = [folded(name) for name, _ in rows.types(con)]
        self._has_values = len(names) > len((ROW_ID, DELETED))
        rows.spool(con, _SPOOL)

    def check(self, metadata: Metadata, table: TableDef) -> TableDef:
        con = self._con
        source = f"(SELECT * EXCLUDE ({ROW_ID}, {DELETED}) FROM {self._source.relation(_SPOOL, table)})"
        values = ""
        if self._has_values:
            projection(con, table, source_columns(con, source))
            self._columns = [identifier(column.name) for column in table.columns]
            values = "".join(
                f", CAST({identifier(column.name)} AS {duckdb_type(column)}) AS {identifier(column.name)}"
                for column in table.columns
            )
        try:
            con.execute(
                f"CREATE OR REPLACE TEMP TABLE {_ROWS} AS"
                f" SELECT {ROW_ID}, {DELETED}{values} FROM {self._source.relation(_SPOOL, table)}"
            )
        except duckdb.Error as error:
            failure = explain(error, table)
            if failure is None:
                raise
            raise failure from None
        twice = (
            f"FROM {_ROWS} WHERE {ROW_ID} IS NOT NULL GROUP BY {ROW_ID} HAVING count(*) > 1 AND NOT bool_and({DELETED})"
        )
        if con.execute(f"SELECT 1 {twice} LIMIT 1").fetchone():
            raise DataError(
                f"Several source rows match the same row of `{table}`: which of them applies would be arbitrary.",
                remedy="Keep one of them before the merge.",
            )
        return table

    # --- finding -------------------------------------------------------------------------------------------------

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Put the positions of the rows to change into `hits`."""
        row_id, position = row_id_name(plan.needed), position_name(plan.needed)
        for file in files:
            self._con.execute(
                f"INSERT INTO {hits.TABLE} SELECT {file.data_file_id}, {position}"
                f" FROM ({placed_sql(plan, file, hits)}) WHERE {row_id} IN (SELECT {ROW_ID} FROM {_ROWS})"
            )

    def inlined(self, plan: RowPlan, hits: MatchedPositions) -> Mapping[str, tuple[int, ...]]:
        wanted = {row[0] for row in self._con.execute(f"SELECT DISTINCT {ROW_ID} FROM {_ROWS}").fetchall()}
        found = {name: tuple(filter(wanted.__contains__, ids)) for name, ids in plan.inlined_ids().items()}
        in_files = self._con.execute(f"SELECT count(*) FROM (SELECT DISTINCT * FROM {hits.TABLE})").fetchall()[0][0]
        if sum(map(len, found.values())) + in_files != len(wanted - {None}):
            raise SnapshotChangedError(
                f"Rows of `{plan.table}` have changed since they were read.", remedy="Run the statement again."
            )
        return found

    # --- writing -------------------------------------------------------------------------------------------------

    def changed(self, plan: RowPlan, losses: Losses, hits: MatchedPositions) -> list[FileQuery]:
        return []

    def changed_inlined(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        return self._rows(
            f"{ROW_ID} IS NOT NULL AND NOT {DELETED}", f", {ROW_ID} AS {row_id_name(plan.target.columns)}"
        )

    def added(self, plan: RowPlan, hits: MatchedPositions) -> list[str]:
        return self._rows(f"{ROW_ID} IS NULL", "")

    def _rows(self, condition: str, row_id: str) -> list[str]:
        if not self._columns or not self._con.execute(f"SELECT 1 FROM {_ROWS} WHERE {condition} LIMIT 1").fetchone():
            return []
        return [f"SELECT {', '.join(self._columns)}{row_id} FROM {_ROWS} WHERE {condition}"]
