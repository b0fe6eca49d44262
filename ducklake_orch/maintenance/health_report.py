"""The health of a lake as results: figures, grades, and a remedy for each finding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ducklake_orch.results import Result

Grade = Literal["ok", "warn", "bad"]
GRADES: tuple[Grade, ...] = ("ok", "warn", "bad")


@dataclass(frozen=True)
class HealthFinding(Result):
    """A figure that has reached its threshold.

    Attributes:
        metric: The figure's name, as in the policy.
        grade: Its grade.
        threshold: The threshold that it has reached.
        remedy: Action that improves the figure, usually a command.
    """

    metric: str
    grade: Grade
    value: float
    threshold: float
    remedy: str

    def __str__(self) -> str:
        return f"{self.grade}: {self.metric} is {self.value:g}, threshold {self.threshold:g}; {self.remedy}"


@dataclass(frozen=True)
class TableHealth(Result):
    """The health of a table: its figures, and a finding for each that has reached a threshold."""

    table: str
    grade: Grade
    metrics: Mapping[str, Any]
    findings: Sequence[HealthFinding] = ()

    def __str__(self) -> str:
        return "\n".join([f"{self.table}: {self.grade}", *(f"  {finding}" for finding in self.findings)])


@dataclass(frozen=True)
class LakeHealth(Result):
    """The health of the lake as a whole; ages are in seconds."""

    name: str
    grade: Grade
    metrics: Mapping[str, Any]
    findings: Sequence[HealthFinding] = ()


@dataclass(frozen=True)
class HealthReport(Result):
    """The health of a lake.

    Attributes:
        grade: The worst of all grades.
        lake: The figures of the lake as a whole.
        tables: The figures of every table.
    """

    grade: Grade
    lake: LakeHealth
    tables: Sequence[TableHealth] = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether no grade is bad; there may be warnings."""
        return self.grade != "bad"

    def to_prometheus(self) -> str:
        """Return the figures in Prometheus's text format."""
        from ducklake_orch.maintenance.prometheus import to_prometheus

        return to_prometheus(self)

    def __str__(self) -> str:
        found = [table for table in self.tables if table.findings]
        head = f"{self.grade}: lake {self.lake.name}, {len(self.tables)} tables, {len(found)} of them with findings"
        return "\n".join([head, *(f"  {finding}" for finding in self.lake.findings), *map(str, found)])


def worst(grades: Sequence[Grade]) -> Grade:
    """Return the worst of the grades, `ok` if there are none."""
    return max(grades, key=GRADES.index, default="ok")
