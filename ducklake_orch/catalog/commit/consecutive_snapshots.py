"""Commit inlined rows of several writers to one table in one transaction, as consecutive snapshots."""

from collections.abc import Sequence
from dataclasses import dataclass

from ducklake_orch.catalog.commit import idempotency
from ducklake_orch.catalog.commit.staged_files import PreparedFiles, prepare_inlined
from ducklake_orch.catalog.commit.table_change import Committed, TableChange
from ducklake_orch.catalog.commit.table_commit import TableCommit, refuse_own_key
from ducklake_orch.catalog.metadata import NOW, MetadataTransaction, Relation, Settings, Token, format_tokens
from ducklake_orch.engine.exactly_once import Write, commit_through
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import StalePlanError

_SNAPSHOTS = {"part": "BIGINT"}
_CHANGES = {"part": "BIGINT", "author": "VARCHAR", "commit_message": "VARCHAR", "commit_extra_info": "VARCHAR"}


@dataclass(frozen=True)
class Append:
    """What one of the writers appends.

    Attributes:
        write: Identity of the write.
        key: The caller's idempotency key.
        rows: The number of rows.
    """

    write: Write
    key: str | None
    rows: int


class KeysCommittedError(StalePlanError):
    """Some of the appends are committed already.

    Attributes:
        keys: Their idempotency keys.
    """

    keys: frozenset[str] = frozenset()


def commit_appends(
    session: Session, change: TableChange, appends: Sequence[Append], settings: Settings
) -> list[Committed]:
    """Commit appends to one table, each as a snapshot of its own, in the given order; either all or none are committed.

    Args:
        session: The lake; it need not be entered.
        change: All rows together; `few.part` names the column with the position of each row's append in `appends`.
        appends: The appends; their keys differ.
        settings: The options of the catalog that the rows were prepared with.

    Returns:
        The outcome of each append.

    Raises:
        KeysCommittedError: When keys of the appends are committed already.
        TransientError: When a conflict stops this attempt, but the same work can succeed once it is planned again.
        UnknownOutcomeError: When the answer to COMMIT was lost and the catalog does not tell whether it committed.
    """
    assert change.few is not None  # noqa: S101 - only inlined rows are committed together
    ready = prepare_inlined(session.instance.root, change.target, change.few)
    if any(append.key is not None for append in appends):
        idempotency.make_table(session)
    first = appends[0].write  # stands for all of them if the answer to COMMIT is lost

    def work(transaction: MetadataTransaction) -> list[Committed]:
        if transaction.metadata.settings() != settings:
            raise StalePlanError("The options of the lake have changed.")
        return _commit(transaction, change, ready, appends)

    with session.instance.one_thread():
        results = commit_through(MetadataTransaction, session, first, work, settle=False)
    begin = results[0].snapshot_id if first.after is None else first.after
    for number, append in enumerate(appends, begin):
        append.write.before, append.write.after, append.write.kept = number - 1, number, frozenset()
    return [
        Committed(number, number - 1, result.table_id, rows_added=result.rows_added)
        for number, result in enumerate(results, begin)
    ]


def _commit(
    transaction: MetadataTransaction, change: TableChange, ready: PreparedFiles, appends: Sequence[Append]
) -> list[Committed]:
    latest = transaction.latest
    part = TableCommit(transaction, appends[0].write, change, ready, [])
    part.check()
    table = part.current
    if table is None or part.new_version:
        raise StalePlanError(f"The catalog has no table for inlined rows of `{change.table}` yet.")
    keys = {append.key: append.write for append in appends if append.key is not None}
    if keys:
        idempotency.make_table_in(transaction)
        _refuse_committed(transaction, table.table_id, keys)
    first = latest.snapshot_id + 1
    transaction.insert(
        "ducklake_snapshot",
        Relation.of(_SNAPSHOTS, [(number,) for number in range(len(appends))]),
        constants={
            "snapshot_time": NOW,
            "schema_version": latest.schema_version,
            "next_catalog_id": latest.next_catalog_id,
        },
        # Every snapshot increases `next_file_id`, because readers take their cached statistics for current otherwise.
        shifts={"snapshot_id": ("part", first), "next_file_id": ("part", latest.next_file_id + 1)},
    )
    part.insert(first, latest.schema_version)
    infos = [(append.write.info.author, append.write.info.message, append.write.extra) for append in appends]
    transaction.insert(
        "ducklake_snapshot_changes",
        Relation.of(_CHANGES, [(number, *info) for number, info in enumerate(infos)]),
        constants={"changes_made": format_tokens([Token("inlined_insert", table.table_id)])},
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
        Committed(snapshot, snapshot - 1, table.table_id, rows_added=append.rows)
        for snapshot, append in enumerate(appends, first)
    ]


def _refuse_committed(transaction: MetadataTransaction, table_id: int, keys: dict[str, Write]) -> None:
    if not (committed := idempotency.find_each_in(transaction, table_id, list(keys))):
        return
    for key, write_id in committed.items():
        refuse_own_key(write_id, keys[key])
    failure = KeysCommittedError("Some of the rows are committed already.")
    failure.keys = frozenset(committed)
    raise failure
