"""Stop a run in good order: at its budget, at SIGTERM, at Ctrl-C."""

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from signal import SIGINT, SIGTERM, Signals, signal
from types import FrameType

from ducklake_orch.config.maintenance import MaintenancePolicy

log = logging.getLogger("ducklake_orch")
_SIGNALS = (SIGTERM, SIGINT)


@dataclass
class Stop:
    """Whether a run has to end; asked before each step.

    Attributes:
        policy: Its budgets.
        read: How many bytes the steps so far have read.
        heard: The signal that came, if one did.
        broken_off: Whether it came again.
        failed: Whether a step failed that is to end the run.
        lost: Why it is not certain any more that nobody else runs, if it is not.
    """

    policy: MaintenancePolicy
    started: float = field(default_factory=time.monotonic)
    read: int = 0
    heard: Signals | None = None
    broken_off: bool = False
    failed: bool = False
    lost: str | None = None

    def before(self, operation: str) -> str | None:
        """Return why a step is not begun any more, or None.

        Expiry and clean-up are short, and come last: no budget that others have spent keeps them from their work.
        """
        return self._broken if operation in ("expire", "cleanup") else self.reason

    @property
    def reason(self) -> str | None:
        """Why a step for which the budgets hold is begun or continued no more, or None."""
        return self._broken or self._spent

    @property
    def _broken(self) -> str | None:
        if self.lost is not None:
            return self.lost
        if self.failed:
            return "a step before it failed"
        if self.heard is not None:
            return f"{self.heard.name} came"
        return None

    @property
    def _spent(self) -> str | None:
        spent = time.monotonic() - self.started
        if self.policy.budget_s is not None and spent >= self.policy.budget_s:
            return f"`budget_s` = {self.policy.budget_s:g} is spent"
        if self.policy.budget_bytes is not None and self.read >= self.policy.budget_bytes:
            return f"`budget_bytes` = {self.policy.budget_bytes} is spent"
        return None


@contextmanager
def listening(stop: Stop) -> Iterator[None]:
    """Let the first signal end the run after the step that runs, and the second one roll that step back."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears signals; its host decides
        return

    def heard(number: int, _: FrameType | None) -> None:
        if stop.heard is not None:
            stop.broken_off = True
            raise KeyboardInterrupt
        stop.heard = Signals(number)
        log.warning("%s: the running step is finished, the others are left; again to roll it back", stop.heard.name)

    before = {one: signal(one, heard) for one in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal(one, handler)
