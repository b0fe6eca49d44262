"""Run verbs in a draft with the tables of a stage, and store in the stage what they did."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from ducklake_orch.catalog.commit import (
    Committed,
    ExactRows,
    Reads,
    TableChange,
    commit_changes,
    snapshot_of_key,
)
from ducklake_orch.catalog.metadata import Metadata, origin
from ducklake_orch.catalog.scan import count
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions.draft import Draft
from ducklake_orch.catalog.transactions.net_change import DraftedTable, drafted_tables, net_change
from ducklake_orch.catalog.transactions.restored_draft import RestoredDraft, as_conflicts
from ducklake_orch.catalog.transactions.stage_rows import (
    StagedBeforeError,
    StagedMeanwhileError,
    find_stage,
    open_stage,
    store_changes,
)
from ducklake_orch.catalog.transactions.stored_change import StoredChange
from ducklake_orch.catalog.transactions.stored_stage import StageHead, StoredStage, StoredWork, parsed_key
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import ConflictError, DuckLakeOrchError, TableDroppedError, UnknownOutcomeError

log = logging.getLogger("ducklake_orch")
_AGAIN = "Run the task again."
Changes = dict[TableName, StoredChange | None]


class StageDraft:
    """A draft with what a stage holds, whose end adds to the stage what was done in it.

    Args:
        lake: The lake.
        stage: The stage as it was read.
        write: The work.
        key: The idempotency key of the work and what it covers.
        replays: Whether work with the key that is staged or committed is not repeated; if not, the key is stored again.

    Attributes:
        draft: The draft.
        earlier: Work with the same key that is staged or committed; if there is some, the verbs do nothing.
    """

    def __init__(
        self, lake: LakeConfig, stage: StoredStage, write: Write, key: str | None = None, *, replays: bool = True
    ) -> None:
        self._stage, self._write, self._key, self._replays = stage, write, key, replays
        published = stage.head.snapshot_id
        earlier: int | None = None
        if key is not None and (replays or published):
            if key in stage.keys.values():
                earlier = stage.head.base_snapshot if published is None else published
            else:
                earlier = _committed_snapshot(lake, key)
        self.earlier = None if earlier is None else Committed(earlier, earlier, replayed=True)
        self.draft = RestoredDraft(lake, stage, write)

    def end(self, *, expect_snapshot: int | None = None, reads: Reads | None = None) -> Committed:
        """Store what verbs did since the stage was read.

        Raises:
            ConflictError: When another task has staged a table meanwhile whose rows the verbs read or changed.
            UnknownOutcomeError: When the answer of the catalog was lost.
        """
        base = self._stage.head.base_snapshot
        try:
            self._store(self.draft.own_changes)
        except StagedBeforeError:
            return Committed(base, base, replayed=True)
        return Committed(base, base)

    def _store(self, own: Sequence[TableChange]) -> None:
        lake, stage = self.draft.lake, self._stage
        changes = self._net_changes(self.draft, stage, {change.table.key for change in own})
        while changes or self._key is not None:
            fault_point("files.written")
            try:
                self._store_once(stage, changes)
                return
            except StagedMeanwhileError:
                with planning(lake, f"Reading the stage `{stage.head.name}`", reads=True) as metadata:
                    latest = open_stage(metadata, stage.head)
                before, now = stage.versions(changes), latest.versions(changes)
                contested = {key for key in changes if before[key] != now[key]}
                others = {key: change for key, change in changes.items() if key not in contested}
                changes = others | self._on_top(latest, contested, own)
                stage = latest

    def _store_once(self, stage: StoredStage, changes: Changes) -> None:
        """Store net changes, and tell from then on which files of the draft must not be deleted."""
        lake, name, write = self.draft.lake, stage.head.name, self._write
        ids = (write.write_id, *self.draft.recording.write_ids)
        paths = frozenset(path for change in changes.values() if change for path in change.paths)
        own = tuple(sorted(path for path in paths if origin(path)[0] in ids))
        storing = Write(f"staging in `{name}`", marked=False, repeatable=True)
        failure: Exception | None = None
        try:
            store_changes(lake, stage, changes, StoredWork(write.write_id, self._key, ids, own, self._replays), storing)
        except (DuckLakeOrchError, StagedMeanwhileError, StagedBeforeError) as error:
            failure = error
        finally:
            write.committing = storing.committing
        if failure is not None and (not storing.committing or self._is_certainly_not_stored()):
            write.committing = False
            raise failure
        write.kept = paths

    def _is_certainly_not_stored(self) -> bool:
        """Search for work whose COMMIT was sent; a server may still be committing what is not there yet.

        Raises:
            UnknownOutcomeError: When the search cannot tell.
        """
        lake, name, found = self.draft.lake, self._stage.head.name, None
        try:
            with planning(lake, "Searching for staged work", reads=True) as metadata:
                found = find_stage(metadata, name)
            is_certain = lake.catalog.is_file
        except DuckLakeOrchError as error:
            log.debug("searching for staged work: %s", type(error).__name__)
            is_certain = False
        is_stored = found is not None and self._write.write_id in found.keys
        if not is_stored and not is_certain:
            raise UnknownOutcomeError(
                f"staging in `{name}`: the answer to COMMIT was lost.",
                remedy="Look at `stage.tables()` before you run it again, or give it an idempotency key.",
            )
        return not is_stored

    def _on_top(self, latest: StoredStage, contested: set[TableName], own: Sequence[TableChange]) -> Changes:
        """Return the net changes of tables that other tasks staged meanwhile, with what the verbs did on top.

        Only verbs that look at no rows can be done again; files of the others may lack rows that were staged since.
        """
        again = [change for change in own if change.table.key in contested]
        for key in contested:
            of_table = [change for change in again if change.table.key == key]
            if not of_table or any(isinstance(change.remove, ExactRows) or change.drops for change in of_table):
                raise ConflictError(
                    f"Another task has staged `{key}` meanwhile, whose rows this one changes.",
                    remedy=_AGAIN,
                )
        draft = RestoredDraft(self.draft.lake, latest, self._write)
        try:
            with as_conflicts(latest, _AGAIN):
                for change in again:
                    _repeat(draft, change)
            return self._net_changes(draft, latest, contested)
        finally:
            draft.remove()

    def _net_changes(self, draft: Draft, stage: StoredStage, touched: Iterable[TableName]) -> Changes:
        """Return the net changes of tables; None for those of the stage of which nothing is left."""
        found: Changes = dict.fromkeys(touched)
        with (
            as_conflicts(stage, _AGAIN),
            planning(draft.config, "Reading the changes of a stage", reads=True) as drafted,
        ):
            latest = drafted.latest().snapshot_id
            for table in drafted_tables(draft):
                if table.adopted is None and drafted.find_table(table.name, latest) is None:
                    found[table.name.key] = None  # the stage created it, and a verb dropped it
                elif table.name.key in found:
                    if (change := net_change(draft, drafted, table, self._write.write_id)) is not None:
                        found[table.name.key] = StoredChange.of(change, _rows_removed(draft, drafted, table, change))
        return {key: change for key, change in found.items() if change or stage.table(key)}


@contextmanager
def refusing_ended(lake: LakeConfig, head: StageHead) -> Iterator[None]:
    """Raise in a block that a stage has ended, instead of what fails because its files are deleted then."""
    try:
        yield
    except UnknownOutcomeError:
        raise
    except DuckLakeOrchError as error:
        failure = error
    else:
        return
    with planning(lake, f"Reading the stage `{head.name}`", reads=True) as metadata:
        open_stage(metadata, head)
    raise failure


def _committed_snapshot(lake: LakeConfig, scoped: str) -> int | None:
    """Return the snapshot that committed work with a key to its table, in another stage or without one."""
    name, key = parsed_key(scoped)
    return None if name is None else snapshot_of_key(open_session(lake, entering=False), name, key)


def _repeat(draft: Draft, change: TableChange) -> None:
    """Do in a draft what a verb did in another one, to the table of that name that it has."""
    draft.adopt(change.table)
    known = change.known
    if known is not None:
        with planning(draft.config, f"Reading `{change.table}`", reads=True) as drafted:
            current = drafted.find_table(change.table, drafted.latest().snapshot_id)
        if current is None:
            raise TableDroppedError(f"Another task has dropped `{change.table}`.", remedy=_AGAIN)
        known = replace(known, table_id=current.table_id)
    with open_session(draft.config, entering=False) as session:
        commit_changes(session, Write("staging again"), [replace(change, known=known, planned_version=None)])


def _rows_removed(draft: Draft, drafted: Metadata, table: DraftedTable, change: TableChange) -> int:
    if table.adopted is None or not (change.drops or change.remove):
        return 0
    with planning(draft.lake, f"Counting rows of `{table.name}`", reads=True) as metadata:
        before = count(metadata, table.adopted.table, draft.base.snapshot_id)
    if change.drops:
        return before
    latest = drafted.latest().snapshot_id
    after = count(drafted, drafted.table(table.name, latest), latest)
    return before + sum(file.record_count for file in change.files) - after
