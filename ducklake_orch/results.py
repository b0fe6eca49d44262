"""The results of the facade: frozen dataclasses that print well and convert to JSON."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from datetime import date, datetime, time
from typing import Any, Literal

from ducklake_orch.errors import DuckLakeOrchError

Kind = Literal["ddl", "dml", "query", "maintenance", "utility"]


def to_json(value: Any) -> Any:
    """Return a value in a form that JSON can hold: nothing is rounded, dates are ISO 8601, bytes are hexadecimal."""
    if isinstance(value, DuckLakeOrchError):
        return value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in fields(value)}
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_json(item) for item in value]
    return str(value)


class Result:
    """Base of all results."""

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON-ready form."""
        result: dict[str, Any] = to_json(self)
        return result


@dataclass(frozen=True)
class CommitInfo:
    """Author and reason of a commit, stored in its snapshot.

    Attributes:
        author: Author of the commit.
        message: Reason for the commit.
        extra: Anything else that JSON can hold.
    """

    author: str | None = None
    message: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CommandResult(Result):
    """The result of one command of `execute`."""

    index: int
    sql: str
    kind: Kind
    status: Literal["ok", "error", "skipped"]
    columns: list[dict[str, str]] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    row_count: int = 0
    affected_rows: int | None = None
    truncated: bool = False
    duration_s: float = 0.0
    snapshot_before: int | None = None
    snapshot_after: int | None = None
    error: DuckLakeOrchError | None = None

    def __str__(self) -> str:
        first_line = " ".join(self.sql.split())[:80]
        if self.error:
            return f"[{self.index}] {self.status}: {first_line}: {self.error}"
        count = f"{self.affected_rows} rows written" if self.affected_rows is not None else f"{self.row_count} rows"
        return f"[{self.index}] {self.status}: {first_line}: {count}, {self.duration_s:.3f} s"


@dataclass(frozen=True)
class ExecuteResult(Result):
    """The results of `lake.execute`, command by command."""

    status: Literal["ok", "error"]
    command_count: int
    executed: int
    duration_s: float
    commands: list[CommandResult]
    lake: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Rows of the last command.

        Raises:
            DuckLakeOrchError: The error of the first command that failed.
        """
        self.raise_for_error()
        return self.commands[-1].rows

    def __bool__(self) -> bool:
        """Whether every command succeeded."""
        return self.status == "ok"

    def raise_for_error(self) -> "ExecuteResult":
        """Raise the first command's error, if there is one; else return this result."""
        for command in self.commands:
            if command.error:
                raise command.error
        return self

    def __str__(self) -> str:
        head = f"{self.status}: {self.executed} of {self.command_count} commands in {self.duration_s:.3f} s"
        return "\n".join([head, *(f"  {command}" for command in self.commands)])


@dataclass(frozen=True)
class Snapshot(Result):
    """One version of the lake."""

    snapshot_id: int
    snapshot_time: datetime
    schema_version: int
    changes: list[str]
    author: str | None
    message: str | None
    extra: Any

    def __str__(self) -> str:
        what = ", ".join(self.changes) or "no changes"
        return f"{self.snapshot_id} at {self.snapshot_time.isoformat(sep=' ', timespec='seconds')}: {what}"


@dataclass(frozen=True)
class Tag(Result):
    """A name of a snapshot, which maintenance retains.

    Attributes:
        keep_until: When maintenance may expire the snapshot; None if it retains it for as long as it has the name.
        expired: Whether the snapshot is gone, because another program has expired it.
    """

    name: str
    snapshot_id: int
    snapshot_time: datetime
    tagged_at: datetime
    keep_until: datetime | None = None
    expired: bool = False

    def __str__(self) -> str:
        until = f", until {self.keep_until:%Y-%m-%d %H:%M} UTC" if self.keep_until else ""
        return f"{self.name}: snapshot {self.snapshot_id}{until}{', which has expired' if self.expired else ''}"


@dataclass(frozen=True)
class Table(Result):
    """A table of the lake, as the catalog lists it.

    `rows` is None unless the rows were counted. Then `last_write` is when they last changed; it is None if no retained
    snapshot changed any.
    """

    schema: str
    table: str
    table_id: int
    uuid: str
    file_count: int
    file_bytes: int
    comment: str | None
    rows: int | None = None
    last_write: datetime | None = None

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}: {self.file_count} files, {self.file_bytes} bytes"


@dataclass(frozen=True)
class Column(Result):
    """A column of a table."""

    name: str
    type: str
    nullable: bool
    default: str | None
    comment: str | None
    partition: str | None

    def __str__(self) -> str:
        null = "" if self.nullable else " NOT NULL"
        return f"{self.name} {self.type}{null}"


@dataclass(frozen=True)
class Option(Result):
    """A persisted option of the lake, one of its schemas or tables."""

    name: str
    value: str
    scope: Literal["lake", "schema", "table"]
    entry: str | None
    description: str

    def __str__(self) -> str:
        where = f" of {self.scope} {self.entry}" if self.entry else ""
        return f"{self.name} = {self.value}{where}"


@dataclass(frozen=True)
class LakeEntry(Result):
    """A lake found in a server database."""

    metadata_schema: str
    data_path: str
    version: str

    def __str__(self) -> str:
        return f"{self.metadata_schema}: {self.data_path}"


@dataclass(frozen=True)
class TableFile(Result):
    """A data file of a table.

    Attributes:
        rows: Number of rows in the file, including deleted ones.
        partition: The values of the partition keys that the file was written with.
        deletes: Number of its rows that are deleted.
        snapshot: The snapshot that inserted its first rows.
    """

    path: str
    rows: int
    bytes: int
    partition: Mapping[str, str | None]
    deletes: int
    snapshot: int

    def __str__(self) -> str:
        deleted = f", {self.deletes} of them deleted" if self.deletes else ""
        return f"{self.path}: {self.rows} rows{deleted}, {self.bytes} bytes"


@dataclass(frozen=True)
class Partition(Result):
    """The files of one partition."""

    values: Mapping[str, str | None]
    rows: int
    files: int
    bytes: int

    def __str__(self) -> str:
        keys = ", ".join(f"{key}={value}" for key, value in self.values.items())
        return f"{keys}: {self.rows} rows, {self.files} files, {self.bytes} bytes"


@dataclass(frozen=True)
class PartitionWritten(Partition):
    """The files that a write added to one partition."""


@dataclass(frozen=True)
class ColumnSummary(Result):
    """The statistics of a column over the files of a table; a value is None if some file lacks it.

    Attributes:
        name: The column's name; dots separate the names of nested columns.
        min: A lower bound; long texts are cut off, and deleted rows count.
        max: An upper bound.
        nulls: Number of NULLs in the files.
        values: Number of values in the files that are not NULL.
        has_nan: Whether a value is NaN.
        bytes: The size of the column in the files.
    """

    name: str
    type: str
    min: str | None
    max: str | None
    nulls: int | None
    values: int | None
    has_nan: bool | None
    bytes: int | None

    def __str__(self) -> str:
        return f"{self.name} {self.type}: {self.min} to {self.max}, {self.nulls} NULLs"


@dataclass(frozen=True)
class TableStats(Result):
    """The statistics of a table at a snapshot.

    Attributes:
        rows: Number of rows in files, including deleted ones.
        deletes: Number of these rows that are deleted.
        inlined_rows: Number of further rows in the catalog itself; the statistics of columns do not include them.
    """

    table: str
    snapshot: int
    rows: int
    deletes: int
    inlined_rows: int
    files: int
    delete_files: int
    bytes: int
    columns: list[ColumnSummary]

    def __str__(self) -> str:
        head = (
            f"{self.table} at snapshot {self.snapshot}: {self.rows} rows in {self.files} files, {self.bytes} bytes,"
            f" {self.deletes} rows deleted, {self.inlined_rows} rows inlined"
        )
        return "\n".join([head, *(f"  {column}" for column in self.columns)])


@dataclass(frozen=True)
class Timings(Result):
    """Where the time of a verb went, over all of its attempts. The rest of `duration_s` is mostly opening the lake.

    Attributes:
        plan_s: Seconds of planning: reading the catalog, choosing files.
        wait_s: Seconds of waiting for other writers' commits.
        files_s: Seconds of reading and writing data files.
        commit_s: Seconds of committing, once it was this writer's turn.
    """

    plan_s: float = 0.0
    wait_s: float = 0.0
    files_s: float = 0.0
    commit_s: float = 0.0

    def __str__(self) -> str:
        phases = {"plan": self.plan_s, "wait": self.wait_s, "files": self.files_s, "commit": self.commit_s}
        return ", ".join(f"{phase} {seconds:.3f} s" for phase, seconds in phases.items())


@dataclass(frozen=True)
class WriteResult(Result):
    """The outcome of a write: one snapshot, or none if there was nothing to do."""

    table: str
    mode: str
    snapshot_id: int
    previous_snapshot_id: int
    rows_written: int = 0
    rows_removed: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_written: int = 0
    partitions: list[PartitionWritten] = field(default_factory=list)
    engine: str = "duckdb"
    attempts: int = 1
    duration_s: float = 0.0
    replayed: bool = False
    timings: Timings = field(default_factory=Timings)

    def __str__(self) -> str:
        if self.replayed:
            return f"{self.mode} to {self.table}: already committed as snapshot {self.snapshot_id}"
        return (
            f"{self.mode} to {self.table}: {self.rows_written} rows in, {self.rows_removed} out,"
            f" snapshot {self.snapshot_id}, {self.duration_s:.3f} s"
        )


@dataclass(frozen=True)
class TransactionResult(Result):
    """The outcome of a transaction: one snapshot, or none if there was nothing to do.

    Attributes:
        writes: The outcome of each verb, in order.
    """

    snapshot_id: int
    previous_snapshot_id: int
    writes: list[WriteResult] = field(default_factory=list)
    attempts: int = 1
    duration_s: float = 0.0
    replayed: bool = False

    def __str__(self) -> str:
        if self.replayed:
            return f"transaction: already committed as snapshot {self.snapshot_id}"
        return f"transaction: {len(self.writes)} changes, snapshot {self.snapshot_id}, {self.duration_s:.3f} s"


@dataclass(frozen=True)
class StagedTable(Result):
    """What a stage would do to a table.

    Attributes:
        rows_added: Number of rows that would come; it includes rows that are copied from files that lose others.
        rows_removed: Number of rows that would go, likewise.
        files: Number of data files.
        bytes: Size of the data files.
        is_dropped: Whether the table would be dropped.
    """

    table: str
    rows_added: int
    rows_removed: int
    files: int
    bytes: int
    is_dropped: bool = False


@dataclass(frozen=True)
class StageInfo(Result):
    """A stage.

    Attributes:
        created: When it was created.
        expires: When maintenance discards it.
        base_snapshot: The snapshot that its verbs see, with what has been staged since.
        tables: The names of the tables that it changes, or has changed.
        status: `open`, `published`, or `expired` until maintenance discards it.
        snapshot_id: The snapshot that it was published as.
        stage_id: Distinguishes it from other stages that had or will have its name.
    """

    name: str
    created: datetime
    expires: datetime
    author: str | None
    base_snapshot: int
    tables: list[str]
    rows_added: int
    rows_removed: int
    bytes: int
    status: Literal["open", "published", "expired"]
    snapshot_id: int | None = None
    stage_id: str = ""


@dataclass(frozen=True)
class LakeDrop(Result):
    """What was dropped with a lake, or would be.

    Attributes:
        tables: Number of its tables.
        files: Number of files that are deleted: those in the catalog, and others that its writers have left.
        files_outside: Files that the catalog lists outside the data path. They stay.
        files_unknown: Files below the data path that other programs or running writes may have written. They stay.
    """

    lake: str
    data_path: str
    tables: int
    files: int
    files_outside: int
    files_unknown: int
    dry_run: bool

    def __str__(self) -> str:
        verb = "would be" if self.dry_run else "is"
        stay = self.files_outside + self.files_unknown
        return f"Lake `{self.lake}` {verb} dropped: {self.tables} tables, {self.files} files below {self.data_path}" + (
            f"; {stay} other files stay" if stay else ""
        )


@dataclass(frozen=True)
class RollbackResult(Result):
    """The outcome of a rollback, real or dry: one snapshot, or none if the rows already equal the target snapshot's.

    Attributes:
        to_snapshot: The snapshot whose rows the table has again.
        rows_back: Number of rows that are restored, or have their old values again.
        rows_gone: Number of rows that are removed, or have lost their later values.
        rows_copied: Number of rows written to new files, including unchanged rows that shared a file with changed ones.
        files_kept: Number of files that are unchanged since the target snapshot.
    """

    table: str
    to_snapshot: int
    snapshot_id: int
    previous_snapshot_id: int
    rows_back: int
    rows_gone: int
    rows_copied: int
    files_kept: int
    files_removed: int
    files_added: int = 0
    bytes_written: int = 0
    dry_run: bool = False
    attempts: int = 1
    duration_s: float = 0.0

    def __str__(self) -> str:
        what = f"{self.rows_back} rows restored, {self.rows_gone} removed"
        files = f"{self.rows_copied} rows copied, {self.files_kept} files kept, {self.files_removed} retired"
        if self.dry_run:
            return f"rollback of {self.table} to snapshot {self.to_snapshot} (dry run): {what}; {files}"
        return f"rollback of {self.table} to snapshot {self.to_snapshot}: {what}; {files}, snapshot {self.snapshot_id}"


@dataclass(frozen=True)
class Finding(Result):
    """A defect of a lake.

    Attributes:
        code: The defect's name, which is the same in every version.
        severity: `error`: wrong or missing rows, or data that will be lost; `warning`: something else fails or
            misleads; `info`: untidy.
        table: The table, as `schema.table`.
        file: The data file, delete file or object with the defect.
        effect: What a user of the lake notices.
        remedy: What to do.
        repairable: Whether `repair=True` repairs it.
        detail: What fsck observed.
    """

    code: str
    severity: Literal["error", "warning", "info"]
    table: str | None
    file: str | None
    effect: str
    remedy: str
    repairable: bool
    detail: str

    def __str__(self) -> str:
        return " ".join(
            [f"{self.severity} {self.code}:", *(value for value in (self.table, self.file) if value), self.detail]
        )


@dataclass(frozen=True)
class FsckReport(Result):
    """The result of fsck.

    Attributes:
        findings: The defects; of each code only the first ones.
        checked: What was checked.
        counts: Number of defects of each code, listed or not.
        repaired: The defects that were found and repaired.
        repair_snapshot: The snapshot that repaired them.
    """

    findings: list[Finding]
    checked: dict[str, Any]
    counts: dict[str, int] = field(default_factory=dict)
    repaired: list[Finding] = field(default_factory=list)
    repair_snapshot: int | None = None

    @property
    def ok(self) -> bool:
        """Whether there is no error; there may be warnings."""
        return all(finding.severity != "error" for finding in self.findings)

    def __str__(self) -> str:
        checked = ", ".join(f"{key} {value}" for key, value in self.checked.items())
        lines = [f"{sum(self.counts.values()) or 'nothing'} found ({checked})"]
        for code, count in self.counts.items():
            listed = [finding for finding in self.findings if finding.code == code]
            lines += ["", *map(str, listed), *([f"… and {count - len(listed)} more"] if count > len(listed) else [])]
            lines += [f"  effect: {listed[0].effect}", f"  remedy: {listed[0].remedy}"]
        if self.repaired:
            lines += [
                "",
                f"repaired with snapshot {self.repair_snapshot}:",
                *(f"  {finding}" for finding in self.repaired),
            ]
        return "\n".join(lines)
