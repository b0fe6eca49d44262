"""Run verbs in a draft that holds what a stage has, and store in the stage what they did."""

from collections.abc import Iterable, Sequence

from ducklake_orch.catalog.commit import ExactRows, TableChange, commit_changes
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.scan import count
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions.draft import Draft
from ducklake_orch.catalog.transactions.net_change import StagedTable, net_change, staged_tables
from ducklake_orch.catalog.transactions.stage_rows import (
    StagedMeanwhileError,
    StoredStage,
    StoredTable,
    open_stage,
    store_changes,
)
from ducklake_orch.catalog.transactions.stored_change import StoredChange
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import remove_unused
from ducklake_orch.errors import ConflictError


class StageDraft:
    """A draft with what a stage holds.

    Attributes:
        draft: The draft.
        stage: The stage as it was read.
    """

    def __init__(self, lake: LakeConfig, stage: StoredStage, write: Write) -> None:
        self.stage = stage
        self.draft = Draft(lake, write, stage.head.base_snapshot)
        self._write = write
        try:
            _restore(self.draft, stage.tables.values(), write)
        except BaseException:
            self.draft.remove()
            raise
        self._restored = len(self.draft.recording.changes)

    def store(self, key: str | None = None) -> frozenset[str]:
        """Store what verbs did since the stage was read, and return the paths of all files that the stage then needs.

        Args:
            key: The caller's idempotency key.

        Raises:
            ConflictError: When another task has staged a table meanwhile whose rows the verbs read or changed.
        """
        lake, head, own = self.draft.lake, self.stage.head, self.draft.recording.changes[self._restored :]
        changes = _net_changes(self.draft, self.stage, {change.table.key for change in own}, self._write, key)
        stage = self.stage
        while True:
            try:
                store_changes(lake, stage, changes, self._write.write_id)
                break
            except StagedMeanwhileError:
                with planning(lake, f"Reading the stage `{head.name}`", reads=True) as metadata:
                    latest = open_stage(metadata, head)
                changes |= self._on_top(latest, own, key)
                stage = latest
        emptied = [stage.tables[key].change for key, change in changes.items() if not change and key in stage.tables]
        if unused := [path for change in emptied for path in change.own_files]:
            remove_unused(lake, unused)
        return frozenset(path for change in changes.values() if change for path in change.paths)

    def _on_top(
        self, latest: StoredStage, own: Sequence[TableChange], key: str | None
    ) -> dict[TableName, StoredChange | None]:
        """Return the net changes of tables that other tasks staged meanwhile, with what the verbs did on top."""
        contested = {key for key, table in latest.tables.items() if self.stage.tables.get(key) != table}
        again = [change for change in own if change.table.key in contested]
        reads = next((change for change in again if isinstance(change.remove, ExactRows) or change.drops), None)
        if reads is not None:
            raise ConflictError(
                f"Another task has staged `{reads.table}` meanwhile, whose rows this one changes.",
                remedy="Run the task again.",
            )
        draft = Draft(self.draft.lake, self._write, latest.head.base_snapshot)
        try:
            _restore(draft, latest.tables.values(), self._write)
            with open_session(draft.config, entering=False) as session:
                for change in again:
                    draft.adopt(change.table)
                    commit_changes(session, Write(self._write.purpose, self._write.info), [change])
            return _net_changes(draft, latest, {change.table.key for change in again}, self._write, key)
        finally:
            draft.remove()


def _restore(draft: Draft, tables: Iterable[StoredTable], write: Write) -> None:
    """Do in a new draft what a stage holds."""
    changes = [table.change.change(draft, write.write_id) for table in tables]
    if changes:
        with open_session(draft.config, entering=False) as session:
            commit_changes(session, Write(write.purpose, write.info), changes)


def _net_changes(
    draft: Draft, stage: StoredStage, tables: Iterable[TableName], write: Write, key: str | None
) -> dict[TableName, StoredChange | None]:
    found: dict[TableName, StoredChange | None] = dict.fromkeys(tables)
    own = [write.write_id, *draft.recording.write_ids]
    with planning(draft.config, "Reading the changes of a stage", reads=True) as drafted:
        for staged in staged_tables(draft):
            if (name := staged.name.key) in found and (change := net_change(draft, drafted, staged, write.write_id)):
                earlier = stage.tables[name].change if name in stage.tables else None
                removed = _rows_removed(draft, drafted, staged, change)
                found[name] = StoredChange.of(change, earlier, write_ids=own, key=key, rows_removed=removed)
    return found


def _rows_removed(draft: Draft, drafted: Metadata, staged: StagedTable, change: TableChange) -> int:
    if staged.adopted is None:
        return 0
    with planning(draft.lake, f"Counting rows of `{staged.name}`", reads=True) as metadata:
        before = count(metadata, staged.adopted.table, draft.base.snapshot_id)
    if change.drops:
        return before
    latest = drafted.latest().snapshot_id
    after = count(drafted, drafted.table(staged.name, latest), latest)
    return before + sum(file.record_count for file in change.files) - after
