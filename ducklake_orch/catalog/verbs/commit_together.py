"""Commit the files of small appends: those of threads that wait for each other in one transaction.

Each append is still a snapshot of its own, with its own idempotency key.
"""

import logging
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace

from ducklake_orch.catalog.commit import (
    Append,
    Committed,
    KeysCommittedError,
    TableChange,
    commit_appends,
    commit_change,
    recording_of,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, unknown_outcome
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session
from ducklake_orch.engine.turns import in_turn
from ducklake_orch.errors import DuckLakeOrchError, UnknownOutcomeError

log = logging.getLogger("ducklake_orch")
Opened = Callable[[], AbstractContextManager[Session]]


@dataclass(eq=False)
class _Ready:
    """A change that is ready to commit.

    Attributes:
        append: The change as part of a commit of several appends.
    """

    config: LakeConfig
    opened: Opened
    write: Write
    change: TableChange
    append: Append | None = None


def commit_in_turn(config: LakeConfig, opened: Opened, write: Write, change: TableChange) -> Committed:
    """Commit a change; an append can be committed together with those of other threads.

    Args:
        config: The lake.
        opened: Opens the lake for a block.
        write: Identity of the write.
        change: The change.
    """
    mine = _Ready(config, opened, write, change)
    if not _is_append(change) or recording_of(config) is not None:
        return _commit_alone(mine)
    write.committing = True  # until this thread knows better, its files are kept, because another may commit them
    key, timeout = commit_key(config, change.table), config.lock_timeout.total_seconds()
    outcome = in_turn(key, mine, _commit_all, fits=_fits, timeout=timeout)
    if isinstance(outcome, DuckLakeOrchError):
        raise outcome
    outcome = outcome or (mine.append.settled() if mine.append else None)
    if outcome is None:
        write.committing = False
        return _commit_alone(mine)
    write.before = outcome.previous_snapshot_id
    if write.kept is None:  # another thread has committed the files
        write.kept = frozenset(file.path for file in change.files)
    return outcome


def commit_key(config: LakeConfig, table: TableName) -> Hashable:
    """Return what threads that commit files of a table take turns at."""
    return "commit", repr(config.catalog), table


def _is_append(change: TableChange) -> bool:
    """Return whether a change only adds files to a table that exists."""
    plain = TableChange(
        change.table,
        change.known,
        change.target,
        change.files,
        key=change.key,
        replays=change.replays,
        planned_version=change.planned_version,
        settings=change.settings,
    )
    mapped = any(file.mapping is not None or file.has_row_ids for file in change.files)
    return change == plain and change.known == change.target and bool(change.files) and not mapped


def _fits(chosen: Sequence[_Ready], other: _Ready) -> bool:
    first, keys = chosen[0], {one.change.key for one in chosen} - {None}
    return (
        first.config == other.config
        and first.change.known == other.change.known
        and first.change.planned_version == other.change.planned_version
        and first.change.settings == other.change.settings
        and first.change.replays == other.change.replays
        and other.change.key not in keys
    )


def _commit_alone(ready: _Ready) -> Committed:
    with ready.opened() as session:
        return commit_change(session, ready.write, ready.change)


def _commit_all(changes: Sequence[_Ready]) -> Sequence[Committed | DuckLakeOrchError | None]:
    """Commit appends; None stands for one that has to be committed alone."""
    changes[0].write.committing = False
    if len(changes) == 1:
        return [_commit_alone(changes[0])]
    failures: dict[_Ready, DuckLakeOrchError] = {}
    pending = list(changes)
    while len(pending) > 1:
        for one in pending:
            rows = sum(file.record_count for file in one.change.files)
            one.append = Append(one.write, one.change.key, rows, one.change.files)
        try:
            with pending[0].opened() as session:
                commit_appends(session, _joined(pending), [one.append for one in pending if one.append])
        except KeysCommittedError as error:
            for one in pending:
                one.append = None
            pending = [one for one in pending if one.change.key not in error.keys]
            continue
        except UnknownOutcomeError as error:
            failures = {one: unknown_outcome(one.write, error) for one in pending}
        except DuckLakeOrchError as error:
            log.info("%d appends to `%s` are committed one by one: %s", len(pending), pending[0].change.table, error)
        break
    return [failures.get(one) or (one.append.done if one.append else None) for one in changes]


def _joined(changes: Sequence[_Ready]) -> TableChange:
    files = [(file, part) for part, one in enumerate(changes) for file in one.change.files]
    return replace(
        changes[0].change,
        files=tuple(file for file, _ in files),
        parts=tuple(part for _, part in files),
        key=None,
        replays=False,
    )
