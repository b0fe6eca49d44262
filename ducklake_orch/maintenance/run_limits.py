"""Stop a run cleanly when a budget is spent, at SIGTERM and at Ctrl-C."""

import logging
import os
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
# After SIGTERM, a step that takes longer is rolled back: service managers kill a process soon after.
_GRACE_S = 8.0


@dataclass
class Stop:
    """Whether a run has to stop, checked before each step.

    Attributes:
        policy: The policy with the budgets.
        read: The bytes that the steps so far have read.
        received: The signal that arrived, if any.
        broken_off: Whether a second signal arrived.
        failed: Whether a step failed whose failure ends the run.
        lost: Why the maintenance lock may no longer be held, if so.
    """

    policy: MaintenancePolicy
    started: float = field(default_factory=time.monotonic)
    read: int = 0
    received: Signals | None = None
    broken_off: bool = False
    failed: bool = False
    lost: str | None = None

    def before(self, operation: str) -> str | None:
        """Return why a step must not begin, or None.

        Expiry and clean-up are short and come last, so budgets that other steps have spent do not prevent them.
        """
        return self._must_end if operation in ("expire", "cleanup") else self.reason

    @property
    def reason(self) -> str | None:
        """Why a step that the budgets apply to must not begin or continue, or None."""
        return self._must_end or self._spent

    @property
    def _must_end(self) -> str | None:
        if self.lost is not None:
            return self.lost
        if self.failed:
            return "an earlier step failed"
        if self.received is not None:
            return f"{self.received.name} was received"
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
def handling_signals(stop: Stop) -> Iterator[None]:
    """Handle signals for a block: the first ends the run after the current step, the second rolls that step back.

    After SIGTERM, the second signal comes from here if the step does not end in time.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals; its host handles them
        return

    def receive(number: int, _: FrameType | None) -> None:
        if stop.received is not None:
            stop.broken_off = True
            raise KeyboardInterrupt
        stop.received = Signals(number)
        log.warning("%s received: the run ends after this step; a second signal rolls it back", stop.received.name)
        if stop.received is SIGTERM:
            impatience.start()

    impatience = threading.Timer(_GRACE_S, os.kill, (os.getpid(), SIGTERM))
    impatience.daemon = True
    previous = {number: signal(number, receive) for number in _SIGNALS}
    try:
        yield
    finally:
        impatience.cancel()
        for number, handler in previous.items():
            signal(number, handler)
