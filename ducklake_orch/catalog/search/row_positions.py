"""Which rows of a table's files a change hits, as positions in the files.

DuckDB in this process puts the positions into a table. Spark's tasks put those of each data file into a file of the
storage, where whoever needs them reads them: no position comes here.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import duckdb

from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, TableDef, position_name
from ducklake_orch.catalog.parquet import FileColumn, parquet_sql, placed_rows_sql, read_columns, stored_columns
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.catalog.writing import Lent, Loss, integers, write_delete_files

# What makes a file's rows what they are: the file, and what it has lost.
_State = tuple[int, tuple[int, ...], int]


@dataclass(frozen=True)
class StoredHits:
    """The positions hit in a data file, in a file of the storage: its column `pos`, and how many there are."""

    path: str
    count: int


class Hits:
    """A table of positions: `file`, the id of a data file, and `pos`.

    Args:
        con: A connection that reaches the storage.

    Attributes:
        footers: What columns files have that were read, by path.
    """

    TABLE = "__ducklake_orch_hits"
    LENT = Lent(TABLE, integers("file", "pos"), "file, pos")

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.footers: dict[str, tuple[FileColumn, ...]] = {}
        self._known: dict[int, _State] = {}
        self._stored: dict[int, StoredHits] = {}
        con.execute(f"CREATE OR REPLACE TEMP TABLE {self.TABLE} (file BIGINT, pos BIGINT)")

    def forget_changed(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Keep what is known of files that are as they were; return the others, which are to be searched."""
        now = {file.data_file_id: _state(file) for file in files}
        gone = [file_id for file_id, state in self._known.items() if now.get(file_id) != state]
        for file_id in gone:
            del self._known[file_id]
            self._stored.pop(file_id, None)
        if gone:
            self.con.execute(f"DELETE FROM {self.TABLE} WHERE file IN ({', '.join(map(str, gone))})")
        return [file for file in files if file.data_file_id not in self._known]

    def searched(self, files: Iterable[DataFile]) -> None:
        """Note that the hits of files are in the table, if they have any."""
        self._known |= {file.data_file_id: _state(file) for file in files}

    def counts(self) -> dict[int, int]:
        """Return how many hits there are, by data file."""
        counts = dict(self.con.execute(f"SELECT file, count(*) FROM {self.TABLE} GROUP BY file").fetchall())
        return counts | {file_id: one.count for file_id, one in self._stored.items()}

    def add_stored(self, hits: Mapping[int, StoredHits]) -> None:
        """Note where the positions are that are hit in data files, by their ids."""
        self._stored |= hits

    def are_stored(self, file: DataFile) -> bool:
        """Whether the positions hit in a file are in the storage, where tasks can read them."""
        return file.data_file_id in self._stored

    def positions_sql(self, file: DataFile) -> str:
        """Return the query for the positions hit in a file; one of stored positions runs anywhere."""
        if (stored := self._stored.get(file.data_file_id)) is not None:
            return f"SELECT pos FROM {parquet_sql(stored.path)}"
        return f"SELECT pos FROM {self.TABLE} WHERE file = {file.data_file_id}"


def _state(file: DataFile) -> _State:
    return file.data_file_id, tuple(one.delete_file_id for one in file.deletes), file.inlined_deletes


class Finder(Protocol):
    """What finds the rows that meet a condition.

    Attributes:
        engine: Its name.
    """

    engine: str

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: Hits) -> None:
        """Put the positions of all live rows that meet the plan's condition into `hits`.

        Args:
            plan: The plan of the scan.
            files: Those of its files to search.
            hits: Where the positions go.
        """

    def write_deletes(
        self, con: duckdb.DuckDBPyConnection, table: TableDef, write_id: str, losses: Sequence[Loss], hits: Hits
    ) -> list[NewDeleteFile]:
        """Write a delete file for each data file that loses rows that were found, in their order."""

    def release(self) -> None:
        """Remove what it keeps in the storage; nothing that it found is read any more."""


def placed_sql(plan: ScanPlan, file: DataFile, hits: Hits) -> str:
    """Return the query for the live rows of a file: the columns that the plan needs, the row's id, and its place."""
    if file.path not in hits.footers:
        hits.footers |= read_columns(hits.con, [one.path for one in plan.files if one.path not in hits.footers])
    found = hits.footers[file.path]
    names = None if file.mapping_id is None else plan.mappings[file.mapping_id]
    return placed_rows_sql(
        file,
        found,
        stored_columns(plan.needed, found, names, file.path),
        plan.snapshot,
        plan.inlined_deletes.get(file.data_file_id, ()),
    )


class DuckDBFinder:
    """Finds rows in this process, file by file."""

    engine = "duckdb"

    def find(self, plan: ScanPlan, files: Sequence[DataFile], hits: Hits) -> None:
        """Read the files, and put the positions that are hit into the table."""
        condition = f" WHERE {plan.where.sql}" if plan.where else ""
        for file in files:
            found = f"{file.data_file_id}, {position_name(plan.needed)} FROM ({placed_sql(plan, file, hits)})"
            hits.con.execute(f"INSERT INTO {hits.TABLE} SELECT {found}{condition}")

    def write_deletes(
        self, con: duckdb.DuckDBPyConnection, table: TableDef, write_id: str, losses: Sequence[Loss], hits: Hits
    ) -> list[NewDeleteFile]:
        """Write the delete files in this process."""
        return write_delete_files(con, table, write_id, losses)

    def release(self) -> None:
        """Do nothing: it keeps nothing in the storage."""
