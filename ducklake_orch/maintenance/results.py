"""The results of maintenance: plans, reports, and their steps."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.results import Result

if TYPE_CHECKING:
    from ducklake_orch.catalog.lifecycle import Bin

Status = Literal["done", "failed", "skipped", "stopped", "planned"]
# The engine of a step that only reports.
REPORT = "report"
# The engine of a step that moves files aside.
QUARANTINE = "quarantine"
_SUMMED = ("files_in", "files_out", "bytes", "rows", "deletions", "snapshots")


@dataclass(frozen=True)
class PlannedStep(Result):
    """One operation on a table, on one of its partitions, or on the lake.

    Attributes:
        operation: `flush`, `rewrite`, `merge`, `layout`, `expire`, `cleanup` or `orphans`.
        table: `schema.table`; None for the lake.
        partition: The values of the partition by key; None for the whole table.
        action: Whether the step is run or skipped.
        reason: Why it is run or skipped.
        engine: `extension`, `duckdb` (ducklake-orch in this process) or `spark`; `report` for a step that only reports,
            and `quarantine` for one that moves files aside.
        files_in: Number of files that are read, retired or deleted.
        files_out: Number of files that are written; None if it depends on the rows.
        bytes: Size of the files that are read, retired or deleted; None if unknown.
        rows: Number of rows that are rewritten, or retired with their files.
        deletions: Number of inlined deletions that are written to files.
        snapshots: Number of snapshots that expire.
        paths: The files that are read, retired or deleted.
        snapshot_ids: The snapshots that expire.
        bins: The lists of files that are compacted together.
        waiting: Number of files left to the next run, because this run's limit is reached.
        saves: The bytes that the step saves each read of the table, with opens of files and the like as bytes.
        reads: The reads of the table per day, as told by the policy or estimated.
        benefit: The bytes that the step saves per day.
        cost: The bytes that the step reads and writes, with opens of files and the commit as bytes.
        score: The benefit divided by the cost: how often a day the step pays off.
        seconds: How long the step takes, by the durations of earlier runs; None if there are none.
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
    saves: int = 0
    reads: float = 0.0
    benefit: float = 0.0
    cost: int = 0
    score: float = 0.0
    seconds: float | None = None

    @property
    def where(self) -> str:
        """The table and its partition, for messages."""
        values = ", ".join(f"{key}={value}" for key, value in (self.partition or {}).items())
        return f"{self.table or 'the lake'}{f' ({values})' if values else ''}"

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form, without `bins`, which add nothing to `paths`."""
        return {key: value for key, value in super().to_dict().items() if key != "bins"}

    def __str__(self) -> str:
        if self.action == "skip":
            return f"{self.operation} {self.where}: skipped: {self.reason}"
        return f"{self.operation} {self.where}: {self.reason}"


@dataclass(frozen=True)
class StepReport(PlannedStep):
    """The outcome of a planned step.

    Attributes:
        status: `done`, `failed`, `skipped` (as planned), or `stopped`: not begun, because the run had to end.
        before: The figures before the run: files, bytes, rows and so on.
        after: The figures at the end of the run, including concurrent writes.
        snapshot_id: The last snapshot that the step committed, if any.
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
        ran = self.status == "done" and self.engine != REPORT
        what = f"{_figures(self)}, {self.duration_s:.3f} s" if ran else self.reason
        return f"{self.operation} {self.where}: {self.status}: {what}"


@dataclass(frozen=True)
class MaintenancePlan(Result):
    """The steps that maintenance would run on a lake, and those that it would skip.

    Attributes:
        lake: Its name.
        snapshot: The latest snapshot when it was planned.
        planned_at: When the plan was made.
        policy: The policy of the plan.
        operations: The steps to run and to skip, in the order of the run.
        warnings: Warnings for the user: overrides that match no table, retentions below their floors.
        lake_id: Identity of the lake and time of `snapshot`: the plan is valid for this lake only.
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
        """The summed figures of the steps to run."""
        return add_up(self.operations)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        return {
            "lake": self.lake,
            "snapshot": self.snapshot,
            "planned_at": self.planned_at.isoformat(),
            "operations": [operation.to_dict() for operation in self.operations],
            "totals": self.totals,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        todo = [operation for operation in self.operations if operation.action == "run"]
        head = f"lake {self.lake} at snapshot {self.snapshot}: {len(todo)} steps to run"
        return "\n".join([head, *(f"  {warning}" for warning in [*self.warnings, *todo])])


@dataclass(frozen=True)
class MaintenanceReport(Result):
    """The outcome of maintenance.

    Attributes:
        lake: Its name.
        status: `ok`, `error` (some steps failed), or `stopped` before the end.
        run_id: Identity of the run, which its snapshots carry.
        snapshot_before: The latest snapshot when it began.
        snapshot_after: The latest one when it ended.
        operations: The steps of the plan with their outcomes.
        warnings: Warnings for the user.
        signal: The signal that stopped the run, if one did.
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
    signal: str | None = None

    @property
    def totals(self) -> dict[str, int]:
        """The summed figures of the steps that ran."""
        done = [operation for operation in self.operations if operation.status in ("done", "planned")]
        counts = {
            name: sum(operation.status == name for operation in self.operations)
            for name in ("done", "failed", "stopped")
        }
        deleting = [
            report
            for report in done
            if report.operation in ("cleanup", "orphans") and report.engine not in (REPORT, QUARANTINE)
        ]
        freed = sum(report.bytes or 0 for report in deleting)
        return add_up(done) | counts | {"bytes_freed": freed}

    @property
    def errors(self) -> list[DuckLakeOrchError]:
        """The errors of failed steps."""
        return [operation.error for operation in self.operations if operation.error is not None]

    def raise_for_error(self) -> "MaintenanceReport":
        """Raise the first error, if there is one; else return this report."""
        for error in self.errors:
            raise error
        return self

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        own = {entry.name: getattr(self, entry.name) for entry in fields(self) if entry.name != "operations"}
        own |= {"started_at": self.started_at.isoformat(), "warnings": list(self.warnings)}
        return own | {"operations": [operation.to_dict() for operation in self.operations], "totals": self.totals}

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
        for operation in self.operations:
            if operation.status != "skipped":
                note = str(operation.error) if operation.error is not None else operation.reason
                cells = [
                    operation.operation,
                    operation.where,
                    operation.status,
                    operation.files_in,
                    operation.files_out,
                    operation.rows,
                    operation.bytes,
                ]
                lines.append(_row([*cells, operation.snapshots, f"{operation.duration_s:.2f}", note]))
        skipped = sum(operation.status == "skipped" for operation in self.operations)
        return "\n".join([*lines, "", f"{skipped} skipped.", *(f"Warning: {warning}" for warning in self.warnings)])

    def __str__(self) -> str:
        shown = [operation for operation in self.operations if operation.status != "skipped"]
        head = f"{self.status}: maintenance of lake {self.lake}, {self.duration_s:.3f} s"
        return "\n".join([head, *(f"  {warning}" for warning in [*self.warnings, *shown])])


def add_up(steps: Iterable[PlannedStep]) -> dict[str, int]:
    """Add up the figures of the steps to run."""
    todo = [step for step in steps if step.action == "run" and step.engine != REPORT]
    return {"steps": len(todo)} | {name: sum(getattr(step, name) or 0 for step in todo) for name in _SUMMED}


def _figures(step: PlannedStep) -> str:
    words = [f"{step.files_in} files"] if step.files_in else []
    words[-1:] = [f"{step.files_in} files into {step.files_out}"] if step.files_in and step.files_out else words
    words += [
        f"{getattr(step, name)} {name}" for name in ("rows", "deletions", "snapshots", "bytes") if getattr(step, name)
    ]
    return ", ".join(words) or "nothing to do"


def _row(cells: Sequence[Any]) -> str:
    return "| " + " | ".join(" ".join(str(cell).replace("|", "\\|").split()) for cell in cells) + " |"
