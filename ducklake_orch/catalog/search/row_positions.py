"""The rows that a change matches, as positions in data files.

DuckDB in this process collects the positions in a temporary table. Spark tasks write the positions of each data file
to a file in the storage, and later tasks read them there: they never pass through this process.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import duckdb

from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, TableDef, free_column_name, position_name
from ducklake_orch.catalog.parquet import (
    FileColumn,
    FileLife,
    footers_of,
    parquet_sql,
    placed_rows_sql,
    read_versions,
    short,
)
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.writing import Lent, Loss, integers, write_delete_files
from ducklake_orch.engine.quoting import identifier

# The helper column with the id of a row's data file.
_FILE = "__ducklake_orch_file"
# The state of a data file: its id, its delete files and its number of inlined deletions. It determines the live rows.
_State = tuple[int, tuple[int, ...], int]


@dataclass(frozen=True)
class StoredPositions:
    """The matching positions of a data file, stored in a file with a column `pos`, and their number."""

    path: str
    count: int


class MatchedPositions:
    """The temporary table of matching positions: `file`, the id of a data file, and `pos`.

    Args:
        con: A connection that reaches the storage.

    Attributes:
        footers: Columns of the files whose footers were read, by path.
    """

    TABLE = "__ducklake_orch_hits"
    LENT = Lent(TABLE, integers("file", "pos"), "file, pos")

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.footers: dict[str, tuple[FileColumn, ...]] = {}
        self._known: dict[int, _State] = {}
        self._stored: dict[int, StoredPositions] = {}
        con.execute(f"CREATE OR REPLACE TEMP TABLE {self.TABLE} (file BIGINT, pos BIGINT)")

    def forget_changed(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Forget the positions of files that have changed; return the files to search: changed ones and new ones."""
        now = {file.data_file_id: _state(file) for file in files}
        changed = [file_id for file_id, state in self._known.items() if now.get(file_id) != state]
        for file_id in changed:
            del self._known[file_id]
            self._stored.pop(file_id, None)
        if changed:
            self.con.execute(f"DELETE FROM {self.TABLE} WHERE file IN ({', '.join(map(str, changed))})")
        return [file for file in files if file.data_file_id not in self._known]

    def searched(self, files: Iterable[DataFile]) -> None:
        """Record that files were searched and that their matching positions, if any, are in the table."""
        self._known |= {file.data_file_id: _state(file) for file in files}

    def counts(self) -> dict[int, int]:
        """Return the number of matching positions, by data file id."""
        counts = dict(self.con.execute(f"SELECT file, count(*) FROM {self.TABLE} GROUP BY file").fetchall())
        return counts | {file_id: stored.count for file_id, stored in self._stored.items()}

    def add_stored(self, hits: Mapping[int, StoredPositions]) -> None:
        """Record where the matching positions of data files are stored, by data file id."""
        self._stored |= hits

    def are_stored(self, file: DataFile) -> bool:
        """Return whether the matching positions of a file are in the storage, where tasks can read them."""
        return file.data_file_id in self._stored

    def positions_sql(self, file: DataFile) -> str:
        """Return the query for the matching positions of a file; if they are in the storage, it runs on any engine."""
        if (stored := self._stored.get(file.data_file_id)) is not None:
            return f"SELECT pos FROM {parquet_sql(stored.path)}"
        return f"SELECT pos FROM {self.TABLE} WHERE file = {file.data_file_id}"


def _state(file: DataFile) -> _State:
    return file.data_file_id, tuple(delete.delete_file_id for delete in file.deletes), file.inlined_deletes


class Finder(Protocol):
    """Finds the rows that meet a condition.

    Attributes:
        engine: Name of the engine.
    """

    engine: str

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Put the positions of all live rows that meet the plan's condition into `hits`.

        Args:
            plan: The plan of the scan.
            files: The files of the plan to search.
            hits: Receives the positions.
        """

    def write_deletes(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        write_id: str,
        losses: Sequence[Loss],
        hits: MatchedPositions,
    ) -> list[NewDeleteFile]:
        """Write a delete file for each data file that loses rows, in the given order."""

    def release(self) -> None:
        """Remove what the finder keeps in the storage; its results must not be read afterwards."""


def placed_sql(plan: ScanPlan, file: DataFile, hits: MatchedPositions) -> str:
    """Return the query for the live rows of a file: the columns that the plan needs, the row id and the position."""
    if file.path not in hits.footers:
        unread = [data_file for data_file in plan.files if data_file.path not in hits.footers]
        hits.footers |= footers_of(hits.con, unread, plan.layouts)
    footer = hits.footers[file.path]
    deleted = plan.inlined_deletes.get(file.data_file_id, ())
    return placed_rows_sql(file, footer, plan.stored(file, footer), plan.snapshot, deleted)


class DuckDBFinder:
    """Finds rows in this process."""

    engine = "duckdb"

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: MatchedPositions) -> None:
        """Search the files and put the matching positions into the table."""
        condition = f" WHERE {plan.where.sql}" if plan.where else ""
        # Rows are matched with the deletions of one file faster than with those of many files.
        for file in files:
            if file.deletes or file.inlined_deletes:
                positions = f"{file.data_file_id}, {position_name(plan.needed)} FROM ({placed_sql(plan, file, hits)})"
                hits.con.execute(f"INSERT INTO {hits.TABLE} SELECT {positions}{condition}")
        lives = [FileLife(file) for file in files if not (file.deletes or file.inlined_deletes)]
        if lives:
            versions = read_versions(hits.con, lives, plan.needed, plan.mappings, plan.layouts, hits.footers)
            data_file, position = free_column_name(_FILE, plan.needed), position_name(plan.needed)
            values = "".join(f", {short(column)} AS {identifier(column.name)}" for column in plan.needed)
            rows = (
                f"SELECT file AS {data_file}, pos AS {position}{values} FROM ({versions.sql})"
                f" WHERE began <= {plan.snapshot}"
            )
            hits.con.execute(f"INSERT INTO {hits.TABLE} SELECT {data_file}, {position} FROM ({rows}){condition}")

    def write_deletes(
        self,
        con: duckdb.DuckDBPyConnection,
        table: TableDef,
        write_id: str,
        losses: Sequence[Loss],
        hits: MatchedPositions,
    ) -> list[NewDeleteFile]:
        """Write the delete files in this process."""
        return write_delete_files(con, table, write_id, losses)

    def release(self) -> None:
        """Do nothing: this finder keeps nothing in the storage."""
