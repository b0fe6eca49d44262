"""The result of one check of the doctor."""

from dataclasses import dataclass
from typing import Literal

from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import Result

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check(Result):
    """The result of a check.

    Attributes:
        name: The name of the check.
        status: Whether the check passed.
        detail: What the check found.
        remedy: How to fix the problem.
    """

    name: str
    status: Status
    detail: str
    remedy: str | None = None

    @classmethod
    def failed(cls, name: str, error: DuckLakeOrchError) -> "Check":
        """Return the failed check of an error."""
        return cls(name, "fail", error.message, error.remedy)
