"""Find the rows of a table that a change removes, and decide how each file that holds them changes.

A file that loses all of its rows is retired. A file that has lost many of its rows is rewritten without them. Any
other file gets a delete file.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import duckdb

from ducklake_orch.catalog.commit import DeleteFiles, ExactRows
from ducklake_orch.catalog.metadata import DataFile, NewDeleteFile, TableDef, position_name, row_id_name
from ducklake_orch.catalog.parquet import count_rows
from ducklake_orch.catalog.search.row_plan import RowPlan
from ducklake_orch.catalog.search.row_positions import Finder, MatchedPositions, placed_sql
from ducklake_orch.catalog.writing import FileQuery, Loss, explain
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.engine.quoting import identifier

# A file that has lost more than this share of its rows is rewritten.
REWRITE_ABOVE = 0.3


@dataclass(frozen=True)
class Losses:
    """The planned changes of the files that lose rows.

    Attributes:
        whole: Files that lose all of their rows.
        rewritten: Files that have lost so many rows that the remaining ones are rewritten.
        marked: Files that get a delete file.
        rows: Number of rows that the files lose.
        kept: Number of rows that are rewritten.
    """

    whole: tuple[DataFile, ...] = ()
    rewritten: tuple[DataFile, ...] = ()
    marked: tuple[DataFile, ...] = ()
    rows: int = 0
    kept: int = 0

    @property
    def files(self) -> tuple[DataFile, ...]:
        """All files that lose rows."""
        return *self.whole, *self.rewritten, *self.marked


def plan_losses(
    files: Sequence[DataFile],
    certain: frozenset[int],
    counts: Mapping[int, int],
    *,
    rewrites: bool,
    counted_live: Mapping[int, int] | None = None,
) -> Losses:
    """Decide how each file changes.

    Args:
        files: The files.
        certain: Ids of the files that lose all of their rows.
        counts: Number of rows that the other files lose, by id.
        rewrites: Whether files may be rewritten.
        counted_live: Live rows by file id, counted for files whose number in the catalog may be wrong.
    """
    whole, rewritten, marked, rows, kept = [], [], [], 0, 0
    for file in files:
        live = file.record_count - sum(delete.delete_count for delete in file.deletes) - file.inlined_deletes
        live = (counted_live or {}).get(file.data_file_id, live)
        lost = live if file.data_file_id in certain else counts.get(file.data_file_id, 0)
        rows += lost
        if not lost:  # also if the file had no live rows before
            continue
        if lost >= live:
            whole.append(file)
        elif rewrites and file.record_count - live + lost > REWRITE_ABOVE * file.record_count:
            rewritten.append(file)
            kept += live - lost
        else:
            marked.append(file)
    return Losses(tuple(whole), tuple(rewritten), tuple(marked), rows, kept)


class RowSearch:
    """Searches a table repeatedly; files that have not changed since the last search are not searched again.

    Args:
        config: The lake.
        con: A connection that reaches the storage.
        finder: Finds the rows.
        rewrites: Whether files may be rewritten.
    """

    def __init__(
        self, config: LakeConfig, con: duckdb.DuckDBPyConnection, finder: Finder, *, rewrites: bool = True
    ) -> None:
        self.con = con
        self.finder = finder
        self.hits = MatchedPositions(con)
        self._config = config
        self._rewrites = rewrites
        self._table: TableDef | None = None

    def find(self, plan: RowPlan) -> None:
        """Find the rows of a plan in its files."""
        scan = plan.scan
        if self._table and self._table.columns != plan.table.columns:  # the condition may have another meaning now
            self.hits = MatchedPositions(self.con)
        self._table = plan.table
        unknown = self.hits.forget_changed([file for file in scan.files if file.data_file_id not in scan.certain])
        with self.working("Looking for rows"):
            self.finder.find(scan, unknown, self.hits)
        self.hits.searched(unknown)

    def losses(self, plan: RowPlan) -> Losses:
        """Return how the files change that hold rows which were found."""
        scan, counts = plan.scan, self.hits.counts()
        with self.working("Counting rows"):
            counted_live = self._counted(plan, counts)
        return plan_losses(scan.files, scan.certain, counts, rewrites=self._rewrites, counted_live=counted_live)

    def _counted(self, plan: RowPlan, counts: Mapping[int, int]) -> dict[int, int]:
        """Count the live rows of files that lose rows and whose deletions are stored in more than one place.

        Other programs can record a deletion of the same row in two places if they delete concurrently.
        The catalog's number of live rows is then too low, and a file with remaining rows would be retired.
        """
        scan = plan.scan
        return {
            file.data_file_id: count_rows(
                self.con, file, scan.snapshot, scan.inlined_deletes.get(file.data_file_id, ())
            )
            for file in scan.files
            if (file.data_file_id in counts or file.data_file_id in scan.certain)
            and len(file.deletes) + bool(file.inlined_deletes) > 1
        }

    def kept(self, plan: RowPlan, losses: Losses) -> list[FileQuery]:
        """Return queries for the remaining rows of rewritten files, with their row ids."""
        column_ids = {column.column_id for column in plan.table.columns}
        columns = ", ".join(
            f"{plan.as_target(column)} AS {identifier(column.name)}"
            for column in plan.target.columns
            if column.column_id in column_ids
        )
        position = position_name(plan.scan.needed)
        row_id = f"{row_id_name(plan.scan.needed)} AS {row_id_name(plan.target.columns)}"
        return [
            FileQuery(
                file,
                f"SELECT {columns}, {row_id} FROM ({placed_sql(plan.scan, file, self.hits)})"
                f" WHERE {position} NOT IN ({self.hits.positions_sql(file)})",
            )
            for file in losses.rewritten
        ]

    def removal(
        self, plan: RowPlan, where: str | None, losses: Losses, inlined: Mapping[str, tuple[int, ...]]
    ) -> ExactRows:
        """Return what the commit retires.

        Args:
            plan: The plan.
            where: The condition on all rows that the change depends on.
            losses: How the files change.
            inlined: Ids of the inlined rows to retire, by inlined table.
        """
        return ExactRows(
            snapshot=plan.latest.snapshot_id,
            where=where,
            seen=plan.scan.files,
            whole=(*losses.whole, *losses.rewritten),
            inlined_seen=plan.inlined_versions(),
            inlined=inlined,
            rows=losses.rows + sum(map(len, inlined.values())),
        )

    def deletes(self, plan: RowPlan, losses: Losses, write_id: str) -> DeleteFiles | None:
        """Write the delete files for the next snapshot and return them; None if no file needs one."""
        if not losses.marked:
            return None
        hits, finder, con = self.hits, self.finder, self.con

        def write(lost: Sequence[Loss]) -> list[NewDeleteFile]:
            return finder.write_deletes(con, plan.table, write_id, lost, hits)

        staged = DeleteFiles(write, hits.positions_sql, losses.marked, plan.inlined_deletes)
        with self.working("Writing deletions"):
            staged.numbered(plan.latest.snapshot_id + 1)
        return staged

    @contextmanager
    def working(self, doing: str) -> Iterator[None]:
        """Run queries in one transaction, so that `now()` returns the same value in all of them."""
        self.con.execute("BEGIN")
        try:
            yield
            self.con.execute("COMMIT")
            return
        except duckdb.Error as error:
            fault = explain(error, self._table) if self._table else None
            of_table = f" of `{self._table}`" if self._table else ""
            failure = fault or classify(error, self._config, f"{doing}{of_table} failed")
        finally:
            with suppress(duckdb.Error):  # no transaction is open any more
                self.con.execute("ROLLBACK")
        raise failure


def union_sql(queries: Sequence[str]) -> str:
    """Return the relation to put after FROM to read the rows of several queries."""
    return f"({' UNION ALL BY NAME '.join(queries)})"
