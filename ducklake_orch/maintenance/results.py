"""What a plan says, and what a report says: the same rows, before and after."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import Result

if TYPE_CHECKING:
    from ducklake_orch.catalog.lifecycle import Bin

Status = Literal["done", "failed", "skipped", "stopped", "planned"]
# What "does" a step that only tells.
REPORT = "report"
_SUMMED = ("files_in", "files_out", "bytes", "rows", "deletions", "snapshots")


@dataclass(frozen=True)
class PlannedStep(Result):
    """What one operation does to one table, or one of its partitions, or the lake.

    Attributes:
        operation: `flush`, `rewrite`, `merge`, `expire`, `cleanup` or `orphans`.
        table: `schema.table`; None where it is about the lake.
        partition: The values of the partition by key; None where it is about all of the table.
        action: Whether it is to be done.
        reason: Why, or why not.
        engine: What does it: `extension`, `duckdb` (this package in this process) or `spark`; `report`: it only tells.
        files_in: Files that are read, or given up, or deleted.
        files_out: Files that are written; None where only the rows tell.
        bytes: Size of the files that are read, given up or deleted; None where nobody knows.
        rows: Rows that are written anew, or given up with their files.
        deletions: Deletions that are only in the catalog, and are written to files.
        snapshots: Snapshots that go.
        paths: The files that are read, given up or deleted.
        snapshot_ids: The snapshots that go.
        bins: The files that become one, each time.
        waiting: Files that are left to the next run, for this one takes in no more.
    """

    operation: str
    table: str | None
    partition: Mapping[str, str | None] | None
    action: Literal["run", "skip"]
    reason: str
    engine: str | None = None
    files_in: int = 0
    files_out: int | None = 0
    bytes: int | None = 0
    rows: int = 0
    deletions: int = 0
    snapshots: int = 0
    paths: Sequence[str] = field(default=(), repr=False)
    snapshot_ids: Sequence[int] = field(default=(), repr=False)
    bins: "Sequence[Bin]" = field(default=(), repr=False)
    waiting: int = 0

    @property
    def where(self) -> str:
        """The table, and the partition of it."""
        values = ", ".join(f"{key}={value}" for key, value in (self.partition or {}).items())
        return f"{self.table or 'the lake'}{f' ({values})' if values else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form; `bins` say nothing that `paths` do not."""
        return {key: value for key, value in super().to_dict().items() if key != "bins"}

    def __str__(self) -> str:
        if self.action == "skip":
            return f"{self.operation} {self.where}: left alone, {self.reason}"
        return f"{self.operation} {self.where}: {self.reason}"


@dataclass(frozen=True)
class StepReport(PlannedStep):
    """What became of a planned step.

    Attributes:
        status: `done`, `failed`, `skipped` (as planned), or `stopped`: not begun, for the run had to end.
        before: What there was: files, bytes, rows, and the like.
        after: What there was at the end of the run, what others wrote meanwhile included.
        snapshot_id: The last snapshot that it made, if it made one.
    """

    status: Status = "skipped"
    before: Mapping[str, int] = field(default_factory=dict)
    after: Mapping[str, int] = field(default_factory=dict)
    duration_s: float = 0.0
    error: DuckLakeOrchError | None = None
    snapshot_id: int | None = None

    def __str__(self) -> str:
        if self.error is not None:
            return f"{self.operation} {self.where}: failed: {self.error}"
        did = self.status == "done" and self.engine != REPORT
        what = f"{_figures(self)}, {self.duration_s:.3f} s" if did else self.reason
        return f"{self.operation} {self.where}: {self.status}: {what}"


@dataclass(frozen=True)
class MaintenancePlan(Result):
    """What maintenance would do to a lake, and what it would leave alone.

    Attributes:
        lake: Its name.
        snapshot: The latest snapshot when it was planned.
        planned_at: When that was.
        policy: The policy that it follows.
        operations: What is to be done, and what is not, in the order of the run.
        warnings: What a person should look at: overrides that name no table, floors that are passed.
        lake_id: Identity of the lake, and when `snapshot` was made: a plan is for this lake alone.
    """

    lake: str
    snapshot: int
    planned_at: datetime
    policy: Any = field(repr=False)
    operations: Sequence[PlannedStep] = field(repr=False)
    warnings: Sequence[str] = ()
    lake_id: tuple[str, int | None] = field(default=("", None), repr=False)

    @property
    def totals(self) -> dict[str, int]:
        """What all that is to be done adds up to."""
        return add_up(self.operations)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "lake": self.lake,
            "snapshot": self.snapshot,
            "planned_at": self.planned_at.isoformat(),
            "operations": [one.to_dict() for one in self.operations],
            "totals": self.totals,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        todo = [one for one in self.operations if one.action == "run"]
        head = f"lake {self.lake} at snapshot {self.snapshot}: {len(todo)} steps to run"
        return "\n".join([head, *(f"  {one}" for one in [*self.warnings, *todo])])


@dataclass(frozen=True)
class MaintenanceReport(Result):
    """What maintenance did.

    Attributes:
        lake: Its name.
        status: `ok`, `error` (some steps failed), or `stopped` before the end.
        run_id: Identity of the run; the snapshots that it made carry it.
        snapshot_before: The latest snapshot when it began.
        snapshot_after: The latest one when it ended.
        operations: The steps of the plan, and what became of them.
        warnings: What a person should look at.
    """

    lake: str
    status: Literal["ok", "error", "stopped"]
    run_id: str
    snapshot_before: int
    snapshot_after: int
    started_at: datetime
    duration_s: float
    operations: Sequence[StepReport] = field(repr=False)
    dry_run: bool = False
    warnings: Sequence[str] = ()

    @property
    def totals(self) -> dict[str, int]:
        """What all that was done adds up to."""
        done = [one for one in self.operations if one.status in ("done", "planned")]
        counts = {name: sum(one.status == name for one in self.operations) for name in ("done", "failed", "stopped")}
        deleting = [one for one in done if one.operation in ("cleanup", "orphans") and one.engine != REPORT]
        freed = sum(one.bytes or 0 for one in deleting)
        return add_up(done) | counts | {"bytes_freed": freed}

    @property
    def errors(self) -> list[DuckLakeOrchError]:
        """What went wrong."""
        return [one.error for one in self.operations if one.error is not None]

    def raise_for_error(self) -> "MaintenanceReport":
        """Raise the first error, if there is one; else return this report."""
        for error in self.errors:
            raise error
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "operations"}
        own |= {"started_at": self.started_at.isoformat(), "warnings": list(self.warnings)}
        return own | {"operations": [one.to_dict() for one in self.operations], "totals": self.totals}

    def to_markdown(self) -> str:
        """Return the report as a table in Markdown, for a host's interface or a ticket."""
        head = [
            "operation",
            "table",
            "status",
            "files in",
            "files out",
            "rows",
            "bytes",
            "snapshots",
            "seconds",
            "note",
        ]
        lines = [f"**{self.lake}**: {self.status}, {self.duration_s:.1f} s", "", _row(head), _row(["---"] * len(head))]
        for one in self.operations:
            if one.status != "skipped":
                note = str(one.error) if one.error is not None else one.reason
                cells = [one.operation, one.where, one.status, one.files_in, one.files_out, one.rows, one.bytes]
                lines.append(_row([*cells, one.snapshots, f"{one.duration_s:.2f}", note]))
        left = sum(one.status == "skipped" for one in self.operations)
        return "\n".join([*lines, "", f"{left} left alone.", *(f"Warning: {one}" for one in self.warnings)])

    def __str__(self) -> str:
        told = [one for one in self.operations if one.status != "skipped"]
        head = f"{self.status}: maintenance of lake {self.lake}, {self.duration_s:.3f} s"
        return "\n".join([head, *(f"  {one}" for one in [*self.warnings, *told])])


def add_up(steps: Iterable[PlannedStep]) -> dict[str, int]:
    """Add up the figures of steps that are to be done."""
    todo = [one for one in steps if one.action == "run" and one.engine != REPORT]
    return {"steps": len(todo)} | {name: sum(getattr(one, name) or 0 for one in todo) for name in _SUMMED}


def _figures(step: PlannedStep) -> str:
    words = [f"{step.files_in} files"] if step.files_in else []
    words[-1:] = [f"{step.files_in} files into {step.files_out}"] if step.files_in and step.files_out else words
    words += [
        f"{getattr(step, name)} {name}" for name in ("rows", "deletions", "snapshots", "bytes") if getattr(step, name)
    ]
    return ", ".join(words) or "nothing was left to do"


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(" ".join(str(one).replace("|", "\\|").split()) for one in cells) + " |"
