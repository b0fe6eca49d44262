"""Whether an attempt at a change of rows keeps other writers waiting.

As a rule none does: rows are found and written while others commit, and the change is planned anew when one of its
files was among theirs. Where many change the same files, the slowest would be overtaken for ever: who has been
overtaken some times, and needs little time, does the rest within a turn of the queue. The more often, the longer it
may last.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.session import Session, open_session

# After so many attempts; and only if the last one, which looked at changed files alone, took less than so many seconds:
# at first, and at most.
_OVERTAKEN, _BRIEF_S, _LONGEST_S = 2, 1.0, 20.0


class Turns:
    """The attempts at one change.

    Args:
        config: The lake.
        purpose: Names the change to whoever waits.
    """

    def __init__(self, config: LakeConfig, purpose: str) -> None:
        self._config = config
        self._purpose = purpose
        self._seconds = float("inf")

    @contextmanager
    def attempt(self, number: int) -> Iterator[Session | None]:
        """Give the session of an attempt that keeps others waiting, for a block; None when it does not."""
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
    """Return the session of an attempt, or one of its own for a block."""
    return open_session(config, entering=False) if session is None else nullcontext(session)
