"""Decide whether an attempt at a row change holds the catalog's queue, so that other writers wait for it.

An attempt normally does not hold the queue: it finds and writes rows while others commit, and is planned again if a
concurrent commit changed one of its files. If many writers change the same files, the slowest could lose every time.
A change that has lost several attempts, and needs little time, therefore runs the next one while holding the queue.
The time that it may take grows with each lost attempt.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.session import Session, open_session

# The first `_OVERTAKEN` attempts never hold the queue. A later attempt holds it if the previous one, which searched
# only changed files, took at most `_BRIEF_S` seconds. Each further attempt doubles that limit, up to `_LONGEST_S`.
_OVERTAKEN, _BRIEF_S, _LONGEST_S = 2, 1.0, 20.0


class RowChangeAttempts:
    """The attempts at one row change.

    Args:
        config: The lake.
        purpose: Names the change to writers that wait for it.
    """

    def __init__(self, config: LakeConfig, purpose: str) -> None:
        self._config = config
        self._purpose = purpose
        self._seconds = float("inf")

    @contextmanager
    def attempt(self, number: int) -> Iterator[Session | None]:
        """Give the session of an attempt that holds the queue, for a block; None for an attempt that does not."""
        brief = min(_BRIEF_S * 2.0 ** (number - _OVERTAKEN - 1), _LONGEST_S)
        if number <= _OVERTAKEN or self._seconds > brief:
            with self._measured():
                yield None
            return
        with open_session(self._config, entering=False) as session, session.queue(self._purpose), self._measured():
            yield session

    @contextmanager
    def _measured(self) -> Iterator[None]:
        started = time.monotonic()
        try:
            yield
        finally:
            self._seconds = time.monotonic() - started


def session_of(config: LakeConfig, session: Session | None) -> AbstractContextManager[Session]:
    """Return the given session, or open a new one for a block."""
    return open_session(config, entering=False) if session is None else nullcontext(session)
