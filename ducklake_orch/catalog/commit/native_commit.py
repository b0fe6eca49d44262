"""Commit finished files and retired rows as exactly one snapshot, in plain SQL on the metadata tables.

The entry points are `commit_change` for one table and `commit_changes` for several. Data files are written once, before
the commit: when a concurrent commit takes the snapshot id first, the next attempt only assigns new ids.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.commit import idempotency
from ducklake_orch.catalog.commit.recording import record_change
from ducklake_orch.catalog.commit.serializable_reads import Reads, judge_reads
from ducklake_orch.catalog.commit.staged_files import prepare_change
from ducklake_orch.catalog.commit.table_change import Committed, TableChange
from ducklake_orch.catalog.commit.table_commit import Numbers, TableCommit, refuse_own_key
from ducklake_orch.catalog.metadata import NOW, MetadataTransaction, Token, commit_metadata, format_tokens
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.stored_files import remove_superseded

Closing = Callable[[MetadataTransaction, int], None]


def commit_change(session: Session, write: Write, change: TableChange) -> Committed:
    """Commit a change of one table as one snapshot, exactly once; arguments and errors as in `commit_changes`."""
    return commit_changes(session, write, [change])[0]


def commit_changes(
    session: Session,
    write: Write,
    changes: Sequence[TableChange],
    *,
    key: str | None = None,
    reads: Reads | None = None,
    closing: Closing | None = None,
) -> list[Committed]:
    """Commit changes of different tables as one snapshot, exactly once.

    Args:
        session: The lake; it need not be entered.
        write: Identity of the write. Its id is stored in the snapshot, so that a lost answer to COMMIT can be resolved.
        changes: The changes to commit, at most one for each table.
        key: The caller's idempotency key for all changes together; if it is already committed, nothing is.
        reads: What no other commit may have changed.
        closing: Writes rows of ours in the transaction of the commit; it gets the id of the snapshot.

    Returns:
        The outcome of each change.

    Raises:
        TransientError: When a conflict stops this attempt, but the same work can succeed once it is planned again.
        UnknownOutcomeError: When the answer to COMMIT was lost and the catalog does not tell whether it committed.
    """
    root, written = session.instance.root, list[str]()
    ready = [prepare_change(root, change) for change in changes]
    if key is not None or any(change.keys for change in changes):
        idempotency.make_table(session)

    def work(transaction: MetadataTransaction) -> list[Committed]:
        parts = [TableCommit(transaction, write, *part, written) for part in zip(changes, ready, strict=True)]
        return _Commit(transaction, write, parts, key, reads, closing).run()

    results = commit_metadata(session, write, work)
    pairs = list(zip(changes, results, strict=True))
    for change, _ in pairs:
        record_change(session.config, change)
    added = [file.path for change, result in pairs if result.files_added for file in change.files]
    write.kept = frozenset([*added, *(path for result in results for path in result.delete_files)])
    deletes = [path for change in changes if change.deletes for path in change.deletes.paths]
    remove_superseded(session.config, write, [*written, *deletes])
    return results


@dataclass
class _Commit:
    """One attempt to commit changes of several tables as one snapshot."""

    transaction: MetadataTransaction
    write: Write
    parts: Sequence["TableCommit"]
    key: str | None = None
    reads: Reads | None = None
    closing: Closing | None = None

    def run(self) -> list[Committed]:
        """Check all changes for conflicts and write the snapshot, both against the latest state of the catalog."""
        transaction, latest = self.transaction, self.transaction.latest
        if self.key is not None or any(part.change.keys for part in self.parts):
            idempotency.make_table_in(transaction)
        if (
            self.key is not None
            and (committed := idempotency.find_in(transaction, idempotency.WHOLE_LAKE, self.key)) is not None
        ):
            refuse_own_key(committed[1], self.write)
            return [Committed(committed[0], latest.snapshot_id, replayed=True) for _ in self.parts]
        for part in self.parts:
            part.check()
        if not (pending := [part for part in self.parts if part.done is None]):
            return [part.outcome for part in self.parts]
        if self.reads is not None:
            judge_reads(transaction, self.reads)
        snapshot, numbers = latest.snapshot_id + 1, Numbers(latest.next_catalog_id, latest.next_file_id)
        for part in pending:
            part.number(numbers)
        # Retire inlined rows before inserting the snapshot. A writer that does not take the lake's lock first locks
        # such rows and then inserts its snapshot; the opposite order here would end in a deadlock.
        for part in pending:
            part.retire_inlined(snapshot)
        for part in pending:
            part.write_deletes(snapshot, numbers)
        version = latest.schema_version + int(any(part.new_version for part in pending))
        # Insert the snapshot before all other rows: its primary key is the last guard against writers that do not take
        # the lake's lock.
        self._add_snapshot(snapshot, numbers, version)
        for part in pending:
            part.insert(snapshot, version)
        self._finish(snapshot, [token for part in pending for token in part.tokens])
        return [part.outcome for part in self.parts]

    def _add_snapshot(self, snapshot: int, numbers: Numbers, version: int) -> None:
        row = {"snapshot_id": snapshot, "snapshot_time": NOW, "schema_version": version}
        # Readers take their cached statistics for current as long as `next_file_id` is the same, so every commit
        # increases it.
        next_file = max(numbers.file_id, self.transaction.latest.next_file_id + 1)
        row |= {"next_catalog_id": numbers.catalog_id, "next_file_id": next_file}
        self.transaction.insert_row("ducklake_snapshot", row)

    def _finish(self, snapshot: int, tokens: Sequence[Token]) -> None:
        write, info = self.write, self.write.info
        row = {"snapshot_id": snapshot, "changes_made": format_tokens(tokens), "author": info.author}
        row |= {"commit_message": info.message, "commit_extra_info": write.extra}
        self.transaction.insert_row("ducklake_snapshot_changes", row)
        if self.key is not None:
            idempotency.record(self.transaction, idempotency.WHOLE_LAKE, self.key, snapshot, write.write_id)
        if self.closing is not None:
            self.closing(self.transaction, snapshot)
