"""Commit new rows that replace rows in shared files: delete files and new data files in one snapshot.

The new data files are written once. If a concurrent commit changes the rows to replace, only the search is repeated.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ducklake_orch.catalog.commit import (
    Committed,
    Matching,
    Partitions,
    TableChange,
    commit_change,
    judge_table,
    partitions_condition,
)
from ducklake_orch.catalog.metadata import NewFile
from ducklake_orch.catalog.search import (
    Finder,
    MatchedPositions,
    RowChangeAttempts,
    RowSearch,
    plan_rows,
    planning,
    session_of,
    union_sql,
)
from ducklake_orch.catalog.writing import FileQuery, Workers, write_known_rows
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.retry import NO_LIMIT, retrying
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.stored_files import remove_unused
from ducklake_orch.errors import DuckLakeOrchError, StalePlanError


def commit_replacement(
    config: LakeConfig, write: Write, change: TableChange, finder: Finder, workers: Workers | None
) -> Committed:
    """Commit a replacement row by row.

    Args:
        config: The lake.
        write: Identity of the write.
        change: The change; it replaces rows that match a predicate, or partitions.
        finder: Finds the rows.
        workers: Writes the remaining rows of rewritten files on other machines; None to write them in this process.

    Raises:
        StalePlanError: When the new files no longer fit the table.
    """
    with working_connection(config, apart=True) as con:
        # Inlined rows come without files: then no file is rewritten either.
        search = RowSearch(config, con, finder, rewrites=not change.few)
        replacement = _Replacement(config, write, change, search, workers)
        turns = RowChangeAttempts(config, write.purpose)

        def attempt(number: int) -> Committed:
            with turns.attempt(number) as session:
                return replacement.attempt(session)

        try:
            return retrying(config.retry, write.purpose, attempt, attempts_for=replacement.is_worth)
        finally:
            finder.release()


@dataclass
class _Replacement:
    config: LakeConfig
    write: Write
    change: TableChange
    search: RowSearch
    workers: Workers | None
    fits: bool = True

    def is_worth(self, error: DuckLakeOrchError) -> int:
        """Return how many attempts an error is worth: all other errors were already retried where they occurred."""
        return NO_LIMIT if isinstance(error, StalePlanError) and self.fits else 1

    def attempt(self, held_session: Session | None) -> Committed:
        """Find the rows to replace, and commit.

        Args:
            held_session: The session of an attempt that holds the queue; None for an attempt that does not.
        """
        change = self.change
        with planning(self.config, f"Planning {self.write.purpose}", held_session) as metadata:
            latest = metadata.latest()
            table = metadata.find_table(change.table, latest.snapshot_id)
            self.fits = False
            judge_table(change, table)
            self.fits = True
            assert table is not None  # noqa: S101 - else it would have been judged
            where = _condition(change)
            plan = replace(plan_rows(metadata, table, latest, where, values=False), target=change.target)
        self.search.find(plan)
        losses = self.search.losses(plan)
        files = change.files
        if kept := self.search.kept(plan, losses):
            files += tuple(self._kept(kept))
        deletes = self.search.deletes(plan, losses, self.write.write_id)
        fault_point("rows.found")
        removal = self.search.removal(plan, where, losses, plan.inlined_ids())
        try:
            with session_of(self.config, held_session) as session:
                return commit_change(session, self.write, replace(change, files=files, remove=removal, deletes=deletes))
        except StalePlanError:
            written = [file.path for file in files[len(change.files) :]]
            remove_unused(self.config, [*written, *(deletes.paths if deletes else ())])
            raise

    def _kept(self, queries: Sequence[FileQuery]) -> list[NewFile]:
        con, target, write_id = self.search.con, self.change.target, self.write.write_id
        with self.search.working("Writing the remaining rows"):
            if self.workers and self.workers.are_worth([query.file for query in queries]):
                return self.workers.write(
                    con, target, queries, [MatchedPositions.LENT], write_id, kept=self.change.files
                )
            return write_known_rows(con, target, union_sql([query.sql for query in queries]), write_id)


def _condition(change: TableChange) -> str:
    match change.remove:
        case Matching(where):
            return where
        case Partitions(keys):
            return partitions_condition(change.target, keys)
    raise AssertionError("only `Matching` and `Partitions` are replaced row by row")
