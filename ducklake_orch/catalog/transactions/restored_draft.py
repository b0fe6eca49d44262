"""A draft in which the tables of a stage are as the stage has them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ducklake_orch.catalog.commit import TableChange, commit_changes
from ducklake_orch.catalog.transactions.draft import Draft
from ducklake_orch.catalog.transactions.publishing import CONFLICTS
from ducklake_orch.catalog.transactions.stored_stage import StoredStage
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import ConflictError, StageConflictError, TableDroppedError


class RestoredDraft(Draft):
    """A draft that does again what a stage did to a table, when the table is looked for.

    Work in a stage costs what its own tables cost, however many tables the stage has.

    Args:
        lake: The lake.
        stage: The stage as it was read.
        write: The work.
    """

    def __init__(self, lake: LakeConfig, stage: StoredStage, write: Write) -> None:
        super().__init__(lake, write, stage.head.base_snapshot if stage.head.snapshot_id is None else None)
        self._stage = stage
        self._restored: list[TableChange] = []
        self._done: set[TableName] = set()

    @property
    def own_changes(self) -> list[TableChange]:
        """What verbs have done, without what the stage had done before."""
        restored = {id(change) for change in self._restored}
        return [change for change in self.recording.changes if id(change) not in restored]

    def adopt_tables(self, wanted: Sequence[TableName]) -> None:
        """Copy tables as they are at the base snapshot, each once, and do what the stage did to them.

        Raises:
            StageConflictError: When rows to retire are no longer where they were found.
        """
        super().adopt_tables(wanted)
        staged = {name.key: table for name in wanted if (table := self._stage.table(name)) is not None}
        if missing := staged.keys() - self._done:
            before = len(self.recording.changes)
            with (
                as_conflicts(self._stage, "Discard the stage, and stage its work again.", StageConflictError),
                open_session(self.config, entering=False) as session,
            ):
                changes = [table.change.change(self) for key, table in staged.items() if key in missing]
                commit_changes(session, Write(f"opening the stage `{self._stage.head.name}`"), changes)
            self._restored += self.recording.changes[before:]
            self._done |= missing

    def _all_tables(self) -> list[TableName]:
        return [*super()._all_tables(), *(table.change.name for table in self._stage.tables.values())]


@contextmanager
def as_conflicts(stage: StoredStage, remedy: str, kind: type[ConflictError] = ConflictError) -> Iterator[None]:
    """Raise what stops work in a stage as a conflict of that stage."""
    try:
        yield
    except (*CONFLICTS, TableDroppedError) as error:
        failure = kind(f"Stage `{stage.head.name}`: {error.message}", remedy=remedy)
    else:
        return
    raise failure
