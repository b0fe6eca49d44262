"""Retry transient failures: `retrying`."""

import logging
import random
import time
from collections.abc import Callable
from typing import TypeVar

from ducklake_orch.config.lake import RetryPolicy
from ducklake_orch.errors import DuckLakeOrchError, LakeLockedError, StalePlanError

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")
# The longest wait, whatever the number of attempts.
_LONGEST_WAIT_S = 5.0
NO_LIMIT = 10**6


def by_family(error: DuckLakeOrchError) -> int:
    """Return how many attempts an error is worth: as many as the policy allows, or one."""
    if isinstance(error, LakeLockedError | StalePlanError):
        return 1  # a lock has waited its whole time limit; a stale plan must be planned again
    return NO_LIMIT if error.retryable else 1


def by_plan(error: DuckLakeOrchError) -> int:
    """Return how many attempts an error is worth to a caller that plans again: other errors were retried already."""
    return NO_LIMIT if isinstance(error, StalePlanError) else 1


def retrying(
    policy: RetryPolicy,
    what: str,
    work: Callable[[int], T],
    *,
    attempts_for: Callable[[DuckLakeOrchError], int] = by_family,
) -> T:
    """Run `work(attempt)` until it succeeds, fails permanently, or the policy is exhausted.

    Args:
        policy: The most attempts and the longest time.
        what: Names the work in log lines.
        work: Gets the attempt's number, from 1.
        attempts_for: Returns how many attempts an error is worth; by default the error's family decides.
    """
    started = time.monotonic()
    attempt = 1
    while True:
        try:
            return work(attempt)
        except DuckLakeOrchError as error:
            limit = min(policy.max_attempts, attempts_for(error))
            pause = _pause(policy, attempt)
            if attempt >= limit or time.monotonic() - started + pause > policy.max_seconds:
                if attempt > 1:
                    error.add_note(f"Given up after {attempt} attempts in {time.monotonic() - started:.1f} s.")
                raise
            log.info("%s failed (%s), attempt %d follows in %.0f ms", what, error, attempt + 1, pause * 1000)
        time.sleep(pause)
        attempt += 1


def _pause(policy: RetryPolicy, attempt: int) -> float:
    longest = min(policy.base_ms / 1000 * 2.0 ** (attempt - 1), _LONGEST_WAIT_S)
    return longest * random.uniform(0.5, 1.0) if policy.jitter else longest  # noqa: S311 - spreads waits, no secret
