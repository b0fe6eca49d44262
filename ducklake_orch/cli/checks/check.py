"""One thing that the doctor looked at."""

from dataclasses import dataclass
from typing import Literal

from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import Result

Status = Literal["ok", "warn", "fail", "skip"]


@dataclass(frozen=True)
class Check(Result):
    """What was found.

    Attributes:
        name: What was looked at.
        status: Whether it is as it should be.
        detail: What was seen.
        remedy: What to do about it.
    """

    name: str
    status: Status
    detail: str
    remedy: str | None = None

    @classmethod
    def failed(cls, name: str, error: DuckLakeOrchError) -> "Check":
        """Return the check that ended with an error."""
        return cls(name, "fail", error.message, error.remedy)
