"""The maintenance policy of a lake: what maintenance may do, to which tables, and what it must keep."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from fnmatch import fnmatchcase
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from ducklake_orch.config.fields import Duration, Memory, Patterns, Size
from ducklake_orch.config.model import Model
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.units import in_words
from ducklake_orch.errors import MaintenanceFloorError, ObjectNotFoundError

Engine = Literal["auto", "extension", "duckdb", "spark"]

OPERATIONS = ("flush", "rewrite", "merge", "layout", "expire", "cleanup", "orphans")
# Below these ages, data that a running writer or reader needs cannot be distinguished from unneeded data.
FLOORS = {"expire": timedelta(hours=1), "cleanup": timedelta(hours=1), "orphans": timedelta(hours=24)}
# A table's name, with wildcards, or an exact pair of schema and table.
TablePattern = str | tuple[str, str]
_ENGINE = "Engine of the operation: the extension's own function, ducklake-orch in this process (`duckdb`), or Spark."


class FlushPolicy(Model):
    """Write inlined rows to files."""

    enabled: bool = Field(default=True, description="Whether this operation runs.")
    min_rows: int = Field(default=1, ge=1, description="Skip a table with fewer inlined rows and deletions.")
    min_age: Duration = Field(default=timedelta(0), description="Skip a table whose inlined rows are younger.")


class RewritePolicy(Model):
    """Rewrite files that have lost many of their rows."""

    enabled: bool = Field(default=True, description="Whether this operation runs.")
    delete_threshold: float = Field(default=0.2, gt=0, le=1, description="Share of deleted rows that a rewrite needs.")
    engine: Engine = Field(default="auto", description=_ENGINE)


class MergePolicy(Model):
    """Merge small files."""

    enabled: bool = Field(default=True, description="Whether this operation runs.")
    min_files: int = Field(default=5, ge=2, description="Skip a partition with fewer small files.")
    settled_after: Duration = Field(
        default=timedelta(days=1),
        description="Merge even two small files of a partition that has had no new file for this long.",
    )
    target_file_size: Size | None = Field(
        default=None,
        gt=0,
        description="Size to reach; by default the table's option, else 512 MiB, or more for tables above 4 TiB.",
    )
    tiers: tuple[Size, ...] | None = Field(
        default=None,
        description="Sizes that divide small files into tiers; only files of one tier are merged."
        " By default `8 MiB`, `64 MiB` and the target size.",
    )
    max_files_per_run: int = Field(default=10_000, ge=2, description="Most files that one run merges.")
    engine: Engine = Field(default="auto", description=_ENGINE)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.tiers is not None and (not self.tiers or list(self.tiers) != sorted(set(self.tiers))):
            raise ValueError("`tiers` must be increasing sizes, such as `1 MiB, 10 MiB, 64 MiB`")
        return self


class LayoutPolicy(Model):
    """Cluster the files of tables that have cluster keys or sort keys, so that conditions on these need few files."""

    enabled: bool = Field(default=True, description="Whether this operation runs.")
    cluster: Literal["off", "keys", "auto"] = Field(
        default="keys",
        description="`keys`: by cluster keys, else by sort keys. `auto`: as `keys`; tables with neither get the columns"
        " as keys that counted reads have conditions on.",
    )
    cluster_by: tuple[str, ...] | None = Field(
        default=None, max_length=4, description="Cluster keys; default is those of the table."
    )
    max_depth: float = Field(
        default=4,
        ge=1,
        description="Skip a partition where at most this many files hold a value of a key.",
    )
    max_bytes: Size = Field(default=16 * 1024**3, gt=0, description="Most bytes that are clustered together.")
    engine: Literal["auto", "duckdb", "spark"] = Field(default="auto", description="As for `merge`.")


class ExpirePolicy(Model):
    """Expire old snapshots."""

    enabled: bool = Field(default=True, description="Whether this operation runs.")
    older_than: Duration = Field(default=timedelta(days=7), description="Keep snapshots that are younger.")
    retain_last: int = Field(default=10, ge=1, description="Keep this many of the latest, whatever their age.")
    keep: Patterns = Field(
        default=(), description="Keep snapshots whose author or message matches a pattern, such as `release *`."
    )


class CleanupPolicy(Model):
    """Delete files that no snapshot needs any more."""

    enabled: bool = Field(default=True, description="Whether this operation runs.")
    older_than: Duration = Field(
        default=timedelta(days=2),
        description="Keep files that were retired more recently: a reader may still need them.",
    )


class OrphansPolicy(Model):
    """Find files that the catalog does not know."""

    action: Literal["report", "delete", "quarantine", "off"] = Field(
        default="report", description="What to do with files that this lake's writers created."
    )
    unknown: Literal["report", "delete"] = Field(
        default="report",
        description="Whether `delete` and `quarantine` apply to other files; they may be live files of another lake.",
    )
    quarantine: Duration = Field(
        default=timedelta(days=30), description="How long files stay in quarantine before they are deleted."
    )
    older_than: Duration = Field(
        default=timedelta(days=7), description="Skip younger files: a running write may own them."
    )


class RankPolicy(Model):
    """The weights by which the steps of tables are ranked: what pays off first is done first."""

    open_bytes: Size = Field(default=4 * 1024**2, ge=0, description="Bytes that take as long as opening a file.")
    step_bytes: Size = Field(default=16 * 1024**2, gt=0, description="Bytes that take as long as a commit.")
    inlined_row_bytes: Size = Field(default=1024, ge=0, description="Bytes that take as long as an inlined row.")
    half_life: Duration = Field(
        default=timedelta(days=7),
        gt=timedelta(0),
        description="A table whose last write is this old counts as read half as often as a new one.",
    )
    reads: float | None = Field(
        default=None, ge=0, description="Reads per day; by default estimated by the age of the last write."
    )


class HealthPolicy(Model):
    """The value from which a figure is a warning, and the value from which it is bad."""

    write_age: tuple[Duration, Duration] | None = Field(
        default=None, description="Time since rows of a table last changed; not graded by default."
    )
    small_file_ratio: tuple[float, float] = Field(
        default=(0.5, 0.9), description="Share of a table's files that a merge would take."
    )
    files_per_partition: tuple[int, int] = Field(default=(100, 1_000), description="Files in the fullest partition.")
    delete_share: tuple[float, float] = Field(default=(0.2, 0.5), description="Share of deleted rows in a table.")
    depth: tuple[float, float] = Field(
        default=(4, 16),
        description="Files of a partition that hold a value of a key, if clustering makes them fewer.",
    )
    inlined_rows: tuple[int, int] = Field(default=(10_000, 100_000), description="Inlined rows, only in the catalog.")
    snapshot_count: tuple[int, int] = Field(default=(1_000, 10_000), description="Snapshots that can be expired.")
    snapshot_age: tuple[Duration, Duration] = Field(
        default=(timedelta(days=30), timedelta(days=90)), description="Age of the oldest snapshot that can be expired."
    )
    pending_bytes: tuple[Size, Size] = Field(
        default=(10 * 1024**3, 100 * 1024**3), description="Bytes of files that wait for clean-up."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name in type(self).model_fields:
            thresholds = getattr(self, name)
            if thresholds is not None and thresholds[0] > thresholds[1]:
                raise ValueError(f"`{name}`: the value for a warning is above the value for bad")
        return self


class TableExpirePolicy(Model):
    """Keep the history of a table for longer than the lake's."""

    older_than: Duration = Field(
        description="Keep snapshots that changed the table and are younger; longer than the lake's."
    )


class TablePolicy(Model):
    """Overrides for some tables; fields that are not set stay as for all tables."""

    flush: FlushPolicy | None = Field(default=None, description="How their inlined rows are flushed.")
    rewrite: RewritePolicy | None = Field(default=None, description="How their files with deletions are rewritten.")
    merge: MergePolicy | None = Field(default=None, description="How their small files are merged.")
    layout: LayoutPolicy | None = Field(default=None, description="How their files are clustered.")
    expire: TableExpirePolicy | None = Field(default=None, description="How long their history is kept at least.")
    health: HealthPolicy | None = Field(default=None, description="When they are healthy.")
    rank: RankPolicy | None = Field(default=None, description="How their steps are ranked, such as `reads` per day.")


class MaintenancePolicy(Model):
    """What maintenance does to a lake.

    The lake is never left without its latest snapshot, and no persisted option is ever written.
    """

    flush: FlushPolicy = Field(default_factory=FlushPolicy, description="Inlined rows.")
    rewrite: RewritePolicy = Field(default_factory=RewritePolicy, description="Files with many deletions.")
    merge: MergePolicy = Field(default_factory=MergePolicy, description="Small files.")
    layout: LayoutPolicy = Field(default_factory=LayoutPolicy, description="Files that are not clustered.")
    expire: ExpirePolicy = Field(default_factory=ExpirePolicy, description="Old snapshots.")
    cleanup: CleanupPolicy = Field(default_factory=CleanupPolicy, description="Files that no snapshot needs.")
    orphans: OrphansPolicy = Field(default_factory=OrphansPolicy, description="Files that the catalog does not know.")
    health: HealthPolicy = Field(default_factory=HealthPolicy, description="When a lake is healthy.")
    rank: RankPolicy = Field(default_factory=RankPolicy, description="Which steps of tables come first.")
    overrides: dict[str, TablePolicy] = Field(
        default_factory=dict,
        description="Overrides for tables, by name or pattern: `sales.*`, `*.raw_*`, `orders` (in `main`);"
        " later ones win.",
    )
    budget_s: float | None = Field(default=None, gt=0, description="Seconds after which no step of a table starts.")
    budget_bytes: Size | None = Field(default=None, gt=0, description="Bytes after which no step of a table starts.")
    memory_limit: Memory = Field(default=None, description="Memory limit of the engine; default is the lake's.")
    threads: int | None = Field(default=None, ge=1, description="Threads of the engine; default is the lake's.")
    temp_directory: str | None = Field(
        default=None, description="Folder for the engine's spill files; default is the lake's."
    )
    on_error: Literal["continue", "stop"] = Field(
        default="continue", description="Whether other tables are maintained after a failure."
    )
    force: bool = Field(
        default=False, description="Allow retentions below the floors; safe only if nothing else uses the lake."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.refuse_below_floors()
        return self

    def below_floors(self) -> list[str]:
        """Return the operations whose retention is below its floor."""
        acts = {"expire": self.expire.enabled, "cleanup": self.cleanup.enabled, "orphans": self.orphans.action != "off"}
        return [name for name, floor in FLOORS.items() if acts[name] and self.older_than(name) < floor]

    def older_than(self, operation: str) -> timedelta:
        """Return the minimum age at which `expire`, `cleanup` or `orphans` removes something."""
        ages = {
            "expire": self.expire.older_than,
            "cleanup": self.cleanup.older_than,
            "orphans": self.orphans.older_than,
        }
        return ages[operation]

    def refuse_below_floors(self) -> None:
        """Refuse retentions below their floors, so that a typo does not delete data.

        Raises:
            MaintenanceFloorError: When a retention is below its floor, without `force`.
        """
        below = self.below_floors()
        if below and not self.force:
            name = below[0]
            raise MaintenanceFloorError(
                f"`{name}.older_than` = {in_words(self.older_than(name))}: `{name}` must keep everything younger than"
                f" {FLOORS[name] / timedelta(hours=1):g} h.",
                remedy="Choose a longer retention, or pass `force=True` if nothing else uses this lake.",
            )

    def of_table(self, schema: str, table: str) -> "MaintenancePolicy":
        """Return the policy for a table: all matching overrides applied to the general policy."""
        changed: dict[str, Model] = {}
        for pattern, override in self.overrides.items():
            if names(pattern, schema, table):
                for part in override.model_fields_set:
                    if (over := getattr(override, part)) is not None:
                        changed[part] = _laid_over(changed.get(part, getattr(self, part)), over)
        return self.model_copy(update=changed) if changed else self

    def unmatched(self, tables: Iterable[tuple[str, str]]) -> list[str]:
        """Return the override patterns that match none of these tables, given as (schema, table)."""
        known = list(tables)
        return [pattern for pattern in self.overrides if not any(names(pattern, *table) for table in known)]


def names(pattern: TablePattern, schema: str, table: str) -> bool:
    """Whether a pattern matches a table.

    Args:
        pattern: A name with `*`, `?` and `[…]` as wildcards. Without a schema it means tables in `main`, and `*` alone
            means all tables. A pair of schema and table is exactly that table.
        schema: The schema of the table.
        table: The name of the table.
    """
    if not isinstance(pattern, str):
        return (pattern[0].lower(), pattern[1].lower()) == (schema.lower(), table.lower())
    of_schema, dot, of_table = pattern.lower().partition(".")
    if not dot:
        of_schema, of_table = ("*" if pattern == "*" else "main"), of_schema
    return fnmatchcase(schema.lower(), of_schema) and fnmatchcase(table.lower(), of_table)


def refuse_unmatched(patterns: Sequence[TablePattern], known: Sequence[tuple[str, str]], lake: str) -> None:
    """Refuse a name or pattern that matches none of a lake's tables, because the user expects it to match.

    Raises:
        ObjectNotFoundError: The remedy suggests the nearest name.
    """
    for pattern in patterns:
        if not any(names(pattern, *name) for name in known):
            tables = [str(name) for name in known]
            remedy = nearest(str(pattern), tables) if tables else "The lake has no tables yet."
            raise ObjectNotFoundError(f"Lake `{lake}` has no table `{pattern}`.", remedy=remedy)


def _laid_over(base: Model, over: Model) -> Model:
    return base.model_copy(update={name: getattr(over, name) for name in over.model_fields_set})


def read_policy(value: "MaintenancePolicy | Mapping[str, Any] | None", own: MaintenancePolicy) -> MaintenancePolicy:
    """Return the policy of a call.

    Args:
        value: A whole policy, or fields that override the lake's policy; None changes nothing.
        own: The policy in the lake's configuration.
    """
    if value is None:
        return own
    if isinstance(value, Mapping):
        return MaintenancePolicy(**_overridden(own.model_dump(mode="json", exclude_unset=True), value))
    value.refuse_below_floors()  # `model_copy` has not validated the changed fields
    return value


def _overridden(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in over.items():
        lower = merged.get(name)
        merged[name] = _overridden(lower, value) if isinstance(lower, Mapping) and isinstance(value, Mapping) else value
    return merged
