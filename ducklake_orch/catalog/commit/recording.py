"""Record the changes that are committed in a block, for a transaction that commits them again, all together."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from ducklake_orch.catalog.commit.table_change import TableChange

_RECORDED: ContextVar[list[TableChange] | None] = ContextVar("recorded changes", default=None)


@contextmanager
def recorded_changes() -> Iterator[list[TableChange]]:
    """Yield a list to which each change that this block commits is added."""
    changes: list[TableChange] = []
    token = _RECORDED.set(changes)
    try:
        yield changes
    finally:
        _RECORDED.reset(token)


def record_change(change: TableChange) -> None:
    """Record a change that is committed, or that found nothing to commit, if a block asks for it."""
    if (changes := _RECORDED.get()) is not None:
        changes.append(change)
