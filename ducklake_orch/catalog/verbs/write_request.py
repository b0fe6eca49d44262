"""The arguments of `lake.write`, checked."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.commit import check_key
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo

MODES = ("append", "overwrite", "overwrite_partitions", "replace_where", "merge", "error", "ignore")


@dataclass(frozen=True)
class WriteRequest:
    """The arguments of `lake.write`.

    Attributes:
        required: The columns that are NOT NULL if the write creates the table.
        once: Whether a committed idempotency key ends the write in every mode, and not only in mode `append`.
    """

    table: TableName
    mode: str
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None
    where: str | None = None
    outside: str = "error"
    schema_evolution: str = "error"
    inline: str = "never"
    expect_snapshot: int | None = None
    idempotency_key: str | None = None
    commit: CommitInfo = field(default_factory=CommitInfo)
    required: Sequence[str] = ()
    once: bool = False

    def __post_init__(self) -> None:
        for name, value, known in (
            ("mode", self.mode, MODES),
            ("outside", self.outside, ("error", "drop")),
            ("schema_evolution", self.schema_evolution, ("error", "add", "promote")),
            ("inline", self.inline, ("never", "auto")),
        ):
            if value not in known:
                raise ConfigError(f"`{name}` = {value!r} is unknown.", remedy=nearest(str(value), known))
        if self.outside != "error" and self.mode != "replace_where":
            raise ConfigError(
                f"Mode `{self.mode}` and `outside` = {self.outside!r} cannot be combined.",
                remedy="`outside` applies to rows that do not match the `where` of mode `replace_where`.",
            )
        self._check_type("where", self.where, str, "SQL condition")
        self._check_type("expect_snapshot", self.expect_snapshot, int, "snapshot id")
        self._check_type("commit", self.commit, CommitInfo, "CommitInfo")
        if (self.where is not None) != (self.mode == "replace_where"):
            raise ConfigError(
                f"Mode `{self.mode}` and `where` = {self.where!r} cannot be combined.",
                remedy="`where` selects the rows that mode `replace_where` replaces.",
            )
        if self.idempotency_key is not None:
            check_key(self.idempotency_key)

    @staticmethod
    def _check_type(name: str, value: object, kind: type, word: str) -> None:
        if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
            raise ConfigError(f"`{name}` = {value!r} is not a {word}.")
