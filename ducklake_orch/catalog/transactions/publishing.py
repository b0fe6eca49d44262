"""Commit what a transaction did to its draft to the lake, as one snapshot."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ducklake_orch.catalog.commit import (
    WHOLE_LAKE,
    Closing,
    Committed,
    NotAlignedError,
    Reads,
    TableChange,
    commit_changes,
    find_key,
    has_keys,
)
from ducklake_orch.catalog.metadata import origin, paths_of_tables, scheduled_paths
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions.draft import Draft
from ducklake_orch.catalog.transactions.net_change import BLIND, drafted_tables, net_change
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.stored_files import remove_leftovers, remove_unused
from ducklake_orch.errors import (
    ConflictError,
    DuckLakeOrchError,
    LakeNotFoundError,
    ObjectExistsError,
    SchemaConflictError,
    SnapshotChangedError,
    SnapshotNotFoundError,
    StageConflictError,
    StalePlanError,
)

log = logging.getLogger("ducklake_orch")
# Errors that tell what another commit has changed.
CONFLICTS = (StalePlanError, NotAlignedError, ObjectExistsError, SchemaConflictError)


class LakeDraft:
    """A draft whose end commits to the lake what was done in it.

    Args:
        lake: The lake.
        write: The transaction.
        key: The caller's idempotency key.

    Attributes:
        draft: The draft.
        earlier: An earlier commit with the same key; if there is one, the verbs do nothing.
    """

    def __init__(self, lake: LakeConfig, write: Write, key: str | None = None) -> None:
        self.earlier = published_before(lake, key) if key is not None else None
        self.draft = Draft(lake, write)
        self._write, self._key = write, key

    def end(self, *, expect_snapshot: int | None = None, reads: Reads | None = None) -> Committed:
        """Commit everything as one snapshot."""
        return publish(self.draft, self._write, key=self._key, expect_snapshot=expect_snapshot, reads=reads)


def publish(
    draft: Draft,
    write: Write,
    *,
    key: str | None = None,
    expect_snapshot: int | None = None,
    reads: Reads | None = None,
    staged_keys: Mapping[TableName, Mapping[str, bool]] = MappingProxyType({}),
    closing: Closing | None = None,
    stage: str | None = None,
) -> Committed:
    """Commit the changes of all tables as one snapshot, and return the outcome of the newest.

    Args:
        draft: The draft.
        write: Identity of the transaction.
        key: The caller's idempotency key.
        expect_snapshot: Refuse to replace rows that have changed since this snapshot.
        reads: What no other commit may have changed.
        staged_keys: The keys of staged work, by the keys of the tables' names, each with whether it replays.
        closing: Writes ducklake-orch's own rows in the transaction of the commit; called with the snapshot id.
        stage: The name of the stage that is committed. A stage never replaces rows that other commits have changed
            since it was created, not even by an overwrite of the whole table.

    Raises:
        ConflictError: When another commit changed what the transaction depends on.
        StageConflictError: When another commit changed what the stage depends on.
    """
    changes: list[TableChange] = []
    conflicts = (*CONFLICTS, SnapshotChangedError, SnapshotNotFoundError) if stage else CONFLICTS
    try:
        with planning(draft.config, "Reading the changes of a transaction", reads=True) as drafted:
            for table in drafted_tables(draft):
                if (change := net_change(draft, drafted, table, write.write_id)) is not None:
                    blind = stage and isinstance(change.remove, BLIND)
                    expected = draft.base.snapshot_id if blind else expect_snapshot
                    keys = staged_keys.get(table.name.key, {})
                    changes.append(replace(change, expect_snapshot=expected, staged_keys=keys))
        fault_point("files.written")
        with draft.lake_session() as session:
            results = commit_changes(session, write, changes, key=key, reads=reads, closing=closing)
    except conflicts as error:
        what = f"stage `{stage}`" if stage else "transaction"
        remedy = (
            "`ducklake-orch diff` shows its rows. Discard it with `ducklake-orch discard`, then stage its work again."
            if stage
            else "Run the transaction again."
        )
        failure = (StageConflictError if stage else ConflictError)(
            f"The {what} that began from snapshot {draft.base.snapshot_id} cannot be committed. {error.message}",
            remedy=remedy,
        )
    else:
        return _published(draft, write, results)
    raise failure


def published_before(lake: LakeConfig, key: str) -> Committed | None:
    """Return the transaction that was committed with a key, or None."""
    try:
        with planning(lake, "Looking for an earlier commit of a transaction", reads=True) as metadata:
            snapshot = find_key(metadata, WHOLE_LAKE, key) if has_keys(metadata) else None
            return None if snapshot is None else Committed(snapshot, snapshot - 1, replayed=True)
    except LakeNotFoundError:  # the transaction creates the lake, or reports why it cannot
        return None


def _published(draft: Draft, write: Write, results: Sequence[Committed]) -> Committed:
    if not results:
        return Committed(draft.base.snapshot_id, draft.base.snapshot_id)
    newest = max(results, key=lambda result: result.snapshot_id)
    if newest.replayed:
        log.warning("%s was already committed as snapshot %d", write.purpose, newest.snapshot_id)
        newest = replace(newest, previous_snapshot_id=newest.snapshot_id - 1)
    return newest


def remove_unpublished(draft: Draft, write: Write) -> None:
    """Delete the files that a transaction wrote and that no snapshot of the lake refers to.

    None is deleted while the outcome of the commit is unknown. The files of other programs stay. A failure is only
    logged: raising it would hide the outcome of the transaction, and maintenance finds the files.
    """
    if write.in_doubt:
        log.warning("the files of %s are kept: its COMMIT may have succeeded", write.purpose)
        return
    try:
        with planning(draft.config, "Listing the files of a transaction", reads=True) as metadata:
            listed = {*paths_of_tables(metadata), *scheduled_paths(metadata).values()}
    except DuckLakeOrchError as error:
        log.warning("the files of %s that are not used are left to maintenance: %s", write.purpose, error)
        return
    own = {path for path in listed if origin(path)[0] in draft.recording.write_ids}
    if unused := sorted(own - (write.kept or frozenset())):
        remove_unused(draft.lake, unused)
    # Files that were written for the commit itself carry the id of the transaction. A folder is listed for those of
    # attempts that failed: of all tables if nothing was committed, else of the tables whose commit needs such files.
    folders = {change.target.folder for change in draft.recording.changes}
    if write.kept:
        needed = [path for path in write.kept if origin(path)[0] == write.write_id]
        folders = {folder for folder in folders if any(path.startswith(folder) for path in needed)}
    for folder in folders:
        remove_leftovers(draft.lake, write, folder)
