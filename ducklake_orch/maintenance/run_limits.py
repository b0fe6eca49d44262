"""Stop a run cleanly when a budget is spent, at SIGTERM and at Ctrl-C."""

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
    """Whether a run has to stop, checked before each step.

    Attributes:
        policy: The policy with the budgets.
        read: The bytes that the steps so far have read.
        heard: The signal that arrived, if any.
        broken_off: Whether a second signal arrived.
        failed: Whether a step failed whose failure ends the run.
        lost: Why the maintenance lock may no longer be held, if so.
    """

    policy: MaintenancePolicy
    started: float = field(default_factory=time.monotonic)
    read: int = 0
    heard: Signals | None = None
    broken_off: bool = False
    failed: bool = False
    lost: str | None = None

    def before(self, operation: str) -> str | None:
        """Return why a step must not begin, or None.

        Expiry and clean-up are short and come last, so budgets that other steps have spent do not prevent them.
        """
        return self._broken if operation in ("expire", "cleanup") else self.reason

    @property
    def reason(self) -> str | None:
        """Why a step that the budgets apply to must not begin or continue, or None."""
        return self._broken or self._spent

    @property
    def _broken(self) -> str | None:
        if self.lost is not None:
            return self.lost
        if self.failed:
            return "an earlier step failed"
        if self.heard is not None:
            return f"{self.heard.name} was received"
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
    """Handle signals for a block: the first ends the run after the current step, the second rolls that step back."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals; its host handles them
        return

    def heard(number: int, _: FrameType | None) -> None:
        if stop.heard is not None:
            stop.broken_off = True
            raise KeyboardInterrupt
        stop.heard = Signals(number)
        log.warning(
            "%s received: the running step finishes, the others do not start; a second signal rolls the step back",
            stop.heard.name,
        )

    before = {signals: signal(signals, heard) for signals in _SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal(one, handler)
