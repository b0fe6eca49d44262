"""A time limit for everything that a session does: running statements, waiting for locks, retries."""

import threading
import time
from typing import Self

from ducklake_orch.engine.session import Session
from ducklake_orch.errors import ConfigError, StatementTimeoutError


class TimeLimit:
    """Interrupts a session's running statement when the limit is exceeded.

    Args:
        session: The session.
        seconds: The limit, or None for no limit.
    """

    def __init__(self, session: Session, seconds: float | None) -> None:
        if seconds is not None and seconds <= 0:
            raise ConfigError(f"`timeout` = {seconds} is not a positive number of seconds.")
        self._session = session
        self._seconds = seconds
        self._timer = threading.Timer(seconds, self._interrupt) if seconds is not None else None
        self.struck = False

    def _interrupt(self) -> None:
        self.struck = True
        self._session.con.interrupt()

    def error(self) -> StatementTimeoutError:
        """Return the error for the interrupted commands."""
        return StatementTimeoutError(
            f"The commands were interrupted after their time limit of {self._seconds} s.",
            remedy="Raise `timeout`, or run fewer commands in one call.",
        )

    def __enter__(self) -> Self:
        if self._timer and self._seconds is not None:
            self._session.deadline = time.monotonic() + self._seconds
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._session.deadline = None
        if self._timer:
            self._timer.cancel()
            self._timer.join()  # a timer that fires right now must not interrupt the connection's next user
