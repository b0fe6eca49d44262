"""Faults that can be built into the code, to prove that a simulation or the model notices them.

A fault holds in this process and in those that it forks.
"""

from collections.abc import Callable

from ducklake_orch.catalog.commit import conflicts, idempotency
from ducklake_orch.engine import exactly_once


def _no_file_check() -> None:
    conflicts.judge_files = lambda *_, **__: None


def _no_search_after_a_lost_answer() -> None:
    exactly_once.find_write = lambda *_, **__: None


def _no_search_for_keys() -> None:
    idempotency.find_in = lambda *_, **__: None


BROKEN: dict[str, Callable[[], None]] = {
    "no file check": _no_file_check,
    "no search after a lost answer": _no_search_after_a_lost_answer,
    "no search for keys": _no_search_for_keys,
}
