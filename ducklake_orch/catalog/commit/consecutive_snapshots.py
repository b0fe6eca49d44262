"""Commit appends of several writers to one table in one transaction, as consecutive snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, islice

from ducklake_orch.catalog.commit import idempotency
from ducklake_orch.catalog.commit.staged_files import PreparedFiles, prepare_change
from ducklake_orch.catalog.commit.table_change import Committed, TableChange
from ducklake_orch.catalog.commit.table_commit import Numbers, TableCommit
from ducklake_orch.catalog.metadata import NOW, MetadataTransaction, NewFile, Relation, commit_metadata, format_tokens
from ducklake_orch.engine.exactly_once import Write, unknown_outcome
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import DuckLakeOrchError, StalePlanError

_SNAPSHOTS = {"part": "BIGINT", "next_file_id": "BIGINT"}
_CHANGES = {"part": "BIGINT", "author": "VARCHAR", "commit_message": "VARCHAR", "commit_extra_info": "VARCHAR"}


@dataclass(eq=False)
class Append:
    """What one of the writers appends.

    Attributes:
        write: Identity of the write.
        key: The caller's idempotency key.
        rows: The number of rows.
        files: The files that hold them; none if the rows are inlined.
        done: The outcome, once it is committed.
        committed_as: Identity of the commit of all appends, once it has begun.
    """

    write: Write
    key: str | None
    rows: int
    files: tuple[NewFile, ...] = ()
    done: Committed | None = None
    committed_as: Write | None = None

    def settled(self) -> Committed | None:
        """Return the outcome, or None if the append is certainly not committed.

        Raises:
            UnknownOutcomeError: When the thread that committed it was interrupted at that moment.
        """
        together = self.committed_as
        if self.done is None and together is not None and together.in_doubt:
            self.write.before, self.write.committing = together.before, True
            raise unknown_outcome(self.write, DuckLakeOrchError("the thread that committed it was interrupted"))
        return self.done


class KeysCommittedError(StalePlanError):
    """Some of the appends are committed already.

    Attributes:
        keys: Their idempotency keys.
    """

    keys: frozenset[str] = frozenset()


def commit_appends(session: Session, change: TableChange, appends: Sequence[Append]) -> None:
    """Commit appends to one table, each as a snapshot of its own, in the given order; either all or none are committed.

    The outcomes are stored in the appends.

    Args:
        session: The lake; it need not be entered.
        change: All files or all inlined rows together; `parts`, or the column `few.part`, has the position in `appends`
            of the append that each belongs to.
        appends: The appends; their keys differ.

    Raises:
        KeysCommittedError: When keys of the appends are committed already.
        TransientError: When a conflict stops this attempt, but the same work can succeed once it is planned again.
        UnknownOutcomeError: When the answer to COMMIT was lost and the catalog does not tell whether it committed.
    """
    ready = prepare_change(session.instance.root, change)
    if any(append.key is not None for append in appends):
        idempotency.make_table(session)
    first = appends[0].write  # stands for all of them if the answer to COMMIT is lost

    def work(transaction: MetadataTransaction) -> list[Committed]:
        return _commit(transaction, change, ready, appends)

    for append in appends:
        append.committed_as = first
    results = commit_metadata(session, first, work)
    for append, result in zip(appends, results, strict=True):
        append.done = result
    # Only now: until then, an interrupt leaves the outcome in doubt, and nothing is appended twice.
    first.kept = frozenset(file.path for file in appends[0].files)


def _commit(
    transaction: MetadataTransaction, change: TableChange, ready: PreparedFiles, appends: Sequence[Append]
) -> list[Committed]:
    latest = transaction.latest
    part = TableCommit(transaction, appends[0].write, change, ready, [])
    part.check()
    table = part.current
    if table is None or part.defines or part.new_version:
        raise StalePlanError(f"The table `{change.table}` changes with the write.")
    if keys := [append.key for append in appends if append.key is not None]:
        idempotency.make_table_in(transaction)
        _refuse_committed(transaction, table.table_id, keys)
    first = latest.snapshot_id + 1
    # Every snapshot increases `next_file_id`, because readers take their cached statistics for current otherwise.
    next_files = accumulate((max(len(append.files), 1) for append in appends), initial=latest.next_file_id)
    transaction.insert(
        "ducklake_snapshot",
        Relation.of(_SNAPSHOTS, [*enumerate(islice(next_files, 1, None))]),
        constants={
            "snapshot_time": NOW,
            "schema_version": latest.schema_version,
            "next_catalog_id": latest.next_catalog_id,
        },
        shifts={"snapshot_id": ("part", first)},
    )
    part.write_deletes(first, Numbers(latest.next_catalog_id, latest.next_file_id))
    part.insert(first, latest.schema_version)
    infos = [(append.write.info.author, append.write.info.message, append.write.extra) for append in appends]
    transaction.insert(
        "ducklake_snapshot_changes",
        Relation.of(_CHANGES, [(number, *info) for number, info in enumerate(infos)]),
        constants={"changes_made": format_tokens(part.tokens)},
        shifts={"snapshot_id": ("part", first)},
    )
    recorded = [
        (append.key, snapshot, append.write.write_id)
        for snapshot, append in enumerate(appends, first)
        if append.key is not None
    ]
    if recorded:
        idempotency.record_each(transaction, table.table_id, recorded)
    return [
        Committed(snapshot, snapshot - 1, rows_added=append.rows, files_added=len(append.files))
        for snapshot, append in enumerate(appends, first)
    ]


def _refuse_committed(transaction: MetadataTransaction, table_id: int, keys: Sequence[str]) -> None:
    if committed := idempotency.find_each_in(transaction, table_id, keys):
        failure = KeysCommittedError("Some of the rows are committed already.")
        failure.keys = committed
        raise failure
