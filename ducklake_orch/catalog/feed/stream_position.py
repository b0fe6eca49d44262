"""What a stream asks for, and how far it has come."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ducklake_orch.catalog.metadata import maybe_int
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError, StreamStoppedError

STARTS = ("latest", "earliest")
# The limits of a batch.
LIMITS = ("max_snapshots", "max_files", "max_rows")
_CHOICES = {"on_update": ("error", "ignore", "changes"), "schema_evolution": ("error", "follow")}


@dataclass(frozen=True)
class StreamRequest:
    """The arguments of `lake.read_stream`.

    Attributes:
        table: The table.
        start: `latest`, `earliest`, the first snapshot whose changes to deliver, or the time of that snapshot.
        changes: Whether to deliver the change feed instead of inserted rows.
        on_update: What to do when rows are updated or deleted, if `changes` is off.
        max_snapshots: The most snapshots in a batch.
        max_files: The most files that the snapshots of a batch have added or retired.
        max_rows: About the most rows in a batch.
        name: The name under which maintenance keeps the snapshots that the stream still needs.
        schema_evolution: What to do when the columns of the table change.
    """

    table: TableName
    start: str | int | datetime = "latest"
    changes: bool = False
    on_update: str = "error"
    max_snapshots: int | None = None
    max_files: int | None = None
    max_rows: int | None = None
    name: str | None = None
    schema_evolution: str = "error"

    def __post_init__(self) -> None:
        for argument, known in _CHOICES.items():
            value = getattr(self, argument)
            if value not in known:
                raise ConfigError(f"`{argument}` = {value!r} is unknown.", remedy=nearest(str(value), known))
        if self.changes and self.on_update != "error":
            raise ConfigError(
                f"`changes` and `on_update` = {self.on_update!r} cannot be combined.",
                remedy="The change feed has all updates and deletions.",
            )
        for argument in LIMITS:
            number = getattr(self, argument)
            if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
                raise ConfigError(f"`{argument}_per_batch` = {number!r} is not a positive number.")
        if self.name is not None and not self.name.strip():
            raise ConfigError(f"`name` = {self.name!r} is not a name.")
        self._check_start()

    def _check_start(self) -> None:
        start = self.start
        if isinstance(start, datetime):
            if start.tzinfo is None:
                raise ConfigError(
                    f"`start` = {start.isoformat()} has no time zone.", remedy="Add one, such as `+00:00`."
                )
        elif isinstance(start, str):
            if start not in STARTS:
                raise ConfigError(
                    f"`start` = {start!r} is neither a snapshot nor a time.",
                    remedy=f"{nearest(start, STARTS)} A time has the form `2026-01-31T12:00:00+00:00`.",
                )
        elif isinstance(start, bool) or start < 0:
            raise ConfigError(f"`start` = {start!r} is not a snapshot id.")

    @property
    def is_limited(self) -> bool:
        """Whether a batch has a limit."""
        return any(getattr(self, limit) is not None for limit in LIMITS)

    @property
    def delivers_every_change(self) -> bool:
        """Whether the stream can go on whatever changes the rows."""
        return self.changes or self.on_update != "error"


@dataclass(frozen=True)
class Position:
    """How much of a table a stream has delivered; Spark keeps it as an offset in the checkpoint.

    Attributes:
        table: The UUID of the table.
        snapshot: The snapshot up to which all changes are delivered.
        row: While the stream delivers the rows that the table has at the snapshot: those with lower row ids are
            delivered. Row ids stay the same when a compaction moves the rows to other files.
        rows: The row id after the last one of these rows.
        is_start: Whether it is where the stream starts. Spark does not keep that position, and asks for it again when
            it repeats the first batch, which then has another one.
        began: In the position after the first batch: where the stream started.
    """

    table: str
    snapshot: int
    row: int | None = None
    rows: int | None = None
    is_start: bool = False
    began: "Position | None" = None

    @classmethod
    def of(cls, offset: Mapping[str, Any]) -> "Position":
        """Read a position from Spark's offset."""
        try:
            began = offset.get("began")
            return cls(
                str(offset["table"]),
                int(offset["snapshot"]),
                maybe_int(offset.get("row")),
                maybe_int(offset.get("rows")),
                bool(offset.get("is_start")),
                None if began is None else cls.of(began),
            )
        except (AttributeError, KeyError, TypeError, ValueError):
            text = str(offset)
        raise ConfigError(
            f"The checkpoint of the stream has the offset {text}, which is of another source.",
            remedy="Give each query its own checkpoint.",
        )

    @property
    def offset(self) -> dict[str, Any]:
        """The position as Spark's offset."""
        values = {"table": self.table, "snapshot": self.snapshot, "row": self.row, "rows": self.rows}
        values |= {"is_start": self.is_start or None, "began": None if self.began is None else self.began.offset}
        return {name: value for name, value in values.items() if value is not None}


def batch_start(start: Position, end: Position) -> Position:
    """Return where a batch begins.

    Args:
        start: Where it begins according to Spark. For the first batch, that may be a later snapshot than when the batch
            was planned.
        end: Where it ends.
    """
    return end.began if start.is_start and end.began is not None else start


def rows_changed(snapshot: int, table: str) -> StreamStoppedError:
    """Return the error of a stream of inserted rows for a snapshot that changed others."""
    return StreamStoppedError(
        f"Snapshot {snapshot} updated or deleted rows of `{table}`, and the stream delivers inserted rows only.",
        remedy='Set `on_update="ignore"` to leave out such changes, `on_update="changes"` to also deliver the new'
        " versions of updated rows, or `changes=True` for the change feed.",
    )


def read_start(text: str) -> str | int | datetime:
    """Read a start that is given as text."""
    if text.isdigit():
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text
