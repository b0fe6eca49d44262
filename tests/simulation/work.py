"""What a worker of a simulation runs, and how it ends."""

import os
from dataclasses import dataclass, field
from typing import Any, Protocol

from ducklake_orch import DuckLake


@dataclass
class Outcome:
    """How an operation ended.

    Attributes:
        status: `committed`, `done` (it commits nothing that the model must know), `failed` (certainly without effect),
            or `unknown`.
        snapshot: The snapshot that it was told.
        error: Why it failed.
        process: The process in which it ended.
        rows: What a reader has read: snapshot, table, rows.
    """

    status: str
    snapshot: int | None = None
    error: str | None = None
    process: int = field(default_factory=os.getpid)
    rows: list[tuple[int, str, list[tuple[Any, ...]]]] = field(default_factory=list)


class Work(Protocol):
    """An operation of a worker."""

    @property
    def number(self) -> int:
        """What tells it from all others."""
        ...

    @property
    def once(self) -> bool:
        """Whether it can be run again although its outcome is unknown."""
        ...

    def run(self, lake: DuckLake) -> Outcome:
        """Run it."""
        ...
