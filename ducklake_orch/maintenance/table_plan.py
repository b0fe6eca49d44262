"""Plan the steps for a table: which rows to flush, which files to rewrite, merge or cluster. See `TablePlanner`."""

from collections import defaultdict
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

from ducklake_orch.catalog.lifecycle import Bin
from ducklake_orch.catalog.writing import Clustering
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.config.units import in_words
from ducklake_orch.maintenance.census import Census, FileState, Group, InlinedState, TableState, partitions_of
from ducklake_orch.maintenance.cluster_depth import TableClustering
from ducklake_orch.maintenance.lake_options import delete_threshold
from ducklake_orch.maintenance.results import PlannedStep
from ducklake_orch.maintenance.small_files import file_sizes, merge_bins, packed, small_files

# Larger tables are left to Spark, if it is available.
_MAX_LOCAL_BYTES = 32 * 1024**3
TABLE_OPERATIONS = ("flush", "rewrite", "merge", "layout")
_SUMMED = ("files_in", "files_out", "bytes", "rows", "saves")


class TablePlanner:
    """Plans the operations of one table, each based on what the earlier ones leave.

    Args:
        census: The lake.
        table: The table.
        policy: The policy for the table.
        room: The number of files that merges may still process in this run.
        distributed: Whether Spark is available for tables that are too large for one machine.
        stage: A stage that removes rows of the table, and finds them again only where they are now.
        clustering: How the table is to be clustered, if it is.
        proposed: The columns by which clustering would help reads most.
    """

    def __init__(
        self,
        census: Census,
        table: TableState,
        policy: MaintenancePolicy,
        room: int,
        *,
        distributed: bool = False,
        stage: str | None = None,
        clustering: TableClustering | None = None,
        proposed: Sequence[str] = (),
    ) -> None:
        self._stage = stage
        self._clustering = clustering
        self._proposed = proposed
        self._distributed = distributed
        self._census = census
        self._table = table
        self._policy = policy
        self._room = room
        self._sizes = file_sizes(table, policy.merge)
        # The files that an earlier operation of the plan takes.
        self._taken: set[int] = set()
        self._flushes = False
        # The number of files that a merge would process without the run's limit.
        self._waiting = 0

    def plan(self, operation: str) -> list[PlannedStep]:
        """Plan an operation."""
        part = getattr(self._policy, operation)
        if not part.enabled:
            return [self._skipped(operation, "the policy disables it")]
        if self._stage is not None:
            return [self._skipped(operation, f"the stage `{self._stage}` removes rows of it")]
        if self._table.options.get("auto_compact", "true").lower() in ("false", "0"):
            return [self._skipped(operation, "its option `auto_compact` is off")]
        match operation:
            case "flush":
                return [self._flush()]
            case "rewrite":
                return self._rewrite()
            case "merge":
                return self._merge()
            case _:
                return self._cluster()

    def _step(self, operation: str, group: Group | None, reason: str, **figures: Any) -> PlannedStep:
        values = None if group is None else self._table.values(group)
        return PlannedStep(operation, str(self._table.name), values, "run", reason, **figures)

    def _skipped(self, operation: str, reason: str, group: Group | None = None) -> PlannedStep:
        values = None if group is None else self._table.values(group)
        return PlannedStep(operation, str(self._table.name), values, "skip", reason)

    def _engine(self, wanted: str) -> str:
        """Return the engine: that of the policy, else one of ducklake-orch, which keep row ids and history."""
        if wanted != "auto":
            return wanted
        return "spark" if self._distributed and self._table.bytes > _MAX_LOCAL_BYTES else "duckdb"

    def _bin(self, files: Sequence[FileState], divided: int | None = None) -> Bin:
        """Return the bin of some files.

        Args:
            files: The files.
            divided: How many files `layout` divides them into.
        """
        keys, clustering = self._clustering, None
        if keys is not None and not keys.missing:
            rows = sum(file.rows - file.deleted for file in files)
            mark = keys.mark if divided else None
            clustering = Clustering(keys.keys, divided or 1, rows, self._sizes.target, mark)
        version, spec, values = files[0].group
        return Bin(
            table=self._table.name,
            table_id=self._table.table_id,
            schema_version=version,
            partition_id=spec,
            values=values,
            files=tuple(file.file_id for file in files),
            rows=sum(file.rows for file in files),
            deleted=sum(file.deleted for file in files),
            bytes=sum(file.bytes for file in files),
            delete_files=sum(file.deleted > file.tombstones for file in files),
            clustering=clustering,
        )

    # --- flush ---------------------------------------------------------------------------------------------------

    def _flush(self) -> PlannedStep:
        policy, table = self._policy.flush, self._table
        rows, deletions = sum(state.rows for state in self._movable), self._inlined_deletions
        staying = table.staying
        if not rows + deletions:
            return self._skipped("flush", staying or "nothing is inlined")
        if rows + deletions < policy.min_rows:
            return self._skipped(
                "flush", f"{rows + deletions} inlined rows and deletions, fewer than `min_rows` = {policy.min_rows}"
            )
        since = table.inlined_since
        if since is not None and self._census.age(since) < policy.min_age:
            age = in_words(policy.min_age)
            return self._skipped("flush", f"the oldest inlined row is younger than `min_age` = {age}")
        self._flushes = True
        words = [f"{rows} inlined rows"] if rows else []
        words += [f"{deletions} inlined deletions"] if deletions else []
        reason = "; ".join([" and ".join(words), *([staying] if staying else [])])
        certain = not table.partitioned and all(state.live_rows for state in self._movable)
        files = len(self._movable) if certain or not rows else None
        rank = self._policy.rank
        saves = len(self._movable) * rank.open_bytes + (rows + deletions) * rank.inlined_row_bytes
        figures = {"rows": rows, "deletions": deletions, "files_out": files, "saves": saves}
        return self._step("flush", None, reason, engine="duckdb", **figures)

    @property
    def _movable(self) -> list[InlinedState]:
        """The inlined rows that a file can hold."""
        return [state for state in self._table.inlined if state.inexact is None]

    @property
    def _inlined_deletions(self) -> int:
        """The number of deletions in files that only the catalog has."""
        return sum(file.tombstones for file in self._table.files)

    # --- rewrite -------------------------------------------------------------------------------------------------

    def _rewrite(self) -> list[PlannedStep]:
        table, threshold = self._table, delete_threshold(self._policy.rewrite, self._table.options)
        candidates = [file for file in table.files if file.deleted and file.deleted >= threshold * file.rows]
        mixed = self._mixed_steps({file.file_id for file in candidates})
        if mixed and not candidates:
            return mixed
        if not candidates:
            share = max((file.deleted / file.rows for file in table.files if file.rows), default=0)
            most = f"no file has lost {threshold:.0%} of its rows; the highest share is {share:.0%}"
            return [self._skipped("rewrite", most if share else "no row is deleted")]
        self._taken |= {file.file_id for file in candidates}
        engine = self._engine(self._policy.rewrite.engine)
        if engine == "extension" and self._inlined_deletions and not self._flushes:
            # A later flush by the extension would bring back deleted rows in past snapshots.
            return [
                self._skipped(
                    "rewrite", "the extension cannot rewrite files before their inlined deletions are flushed"
                )
            ]
        return _combined([self._rewrite_step(files, engine) for files in partitions_of(candidates)]) + mixed

    def _rewrite_step(self, files: Sequence[FileState], engine: str) -> PlannedStep:
        rows, deleted = sum(file.rows for file in files), sum(file.deleted for file in files)
        bins = list(packed(files, self._sizes.target))
        files_out = sum(any(file.deleted < file.rows for file in part) for part in bins)
        opens = sum(1 + (file.deleted > file.tombstones) for file in files) - files_out  # with those of delete files
        dead = sum(file.bytes * file.deleted // max(file.rows, 1) for file in files)
        return self._step(
            "rewrite",
            files[0].group,
            f"{deleted} of {rows} rows in {len(files)} files are deleted",
            engine=engine,
            files_in=len(files),
            files_out=files_out,
            bytes=sum(file.bytes for file in files),
            rows=rows - deleted,
            saves=dead + opens * self._policy.rank.open_bytes,
            paths=[self._table.path(file) for file in files],
            bins=[self._bin(part) for part in bins],
        )

    def _mixed_steps(self, rewritten: Set[int]) -> list[PlannedStep]:
        """Plan to rewrite the small files that no merge combines, because they have different schema versions."""
        policy, engine = self._policy.merge, self._engine(self._policy.rewrite.engine)
        if not policy.enabled or engine == "extension" or len({version for version, *_ in self._table.groups}) < 2:
            return []
        bins = list[Sequence[FileState]]()
        for files in partitions_of(file for file in self._table.files if file.file_id not in rewritten):
            merged = {
                file.file_id
                for same in _by_version(files)
                for part in merge_bins(same, self._sizes, policy, len(same))
                for file in part
            }
            left = [file for file in files if file.file_id not in merged]
            found = merge_bins(left, self._sizes, policy, self._room, self._least(files))
            mixed = [part for part in found if len(_by_version(part)) > 1]
            self._room -= sum(map(len, mixed))
            bins += mixed
        if not bins:
            return []
        what = f"{sum(map(len, bins))} small files of several schema versions"
        return [self._small_step("rewrite", bins, engine, what)]

    def _small_step(self, operation: str, bins: Sequence[Sequence[FileState]], engine: str, what: str) -> PlannedStep:
        """Return the step that combines small files, maybe of several partitions."""
        taken = [file for part in bins for file in part]
        self._taken |= {file.file_id for file in taken}
        partitions = {file.group[1:] for file in taken}
        where = f" in {len(partitions)} partitions" if len(partitions) > 1 else ""
        return self._step(
            operation,
            taken[0].group if len(partitions) == 1 else None,
            f"{what}{where} become {len(bins)}",
            engine=engine,
            files_in=len(taken),
            files_out=len(bins),
            bytes=sum(file.bytes for file in taken),
            rows=sum(file.rows for file in taken),
            saves=(len(taken) - len(bins)) * self._policy.rank.open_bytes,
            paths=[self._table.path(file) for file in taken],
            bins=[self._bin(part) for part in bins],
        )

    def _least(self, files: Sequence[FileState]) -> int:
        """Return how many small files of a partition are combined: two, if it has had no new file for long."""
        policy = self._policy.merge
        is_settled = max(file.begin for file in files) <= self._census.snapshot_before(policy.settled_after)
        return min(2, policy.min_files) if is_settled else policy.min_files

    # --- merge ---------------------------------------------------------------------------------------------------

    def _merge(self) -> list[PlannedStep]:
        table, policy = self._table, self._policy.merge
        engine = self._engine(policy.engine)
        steps = [self._merge_step(group, files, engine) for group, files in table.groups.items()]
        todo = [step for step in steps if step.action == "run"] + self._settled_steps(engine)
        if todo:
            if self._waiting:
                reason = f"{todo[0].reason}; {self._waiting} more wait: {self._limit_reached}"
                todo[0] = replace(todo[0], reason=reason, waiting=self._waiting)
            return _combined(todo)
        if self._waiting:
            left = self._skipped("merge", f"{self._waiting} small files wait: {self._limit_reached}")
            return [replace(left, waiting=self._waiting)]
        most = max((len(list(small_files(part, self._sizes))) for part in table.groups.values()), default=0)
        where = " in a partition" if table.partitioned else ""
        return [
            self._skipped("merge", f"at most {most} small files{where}, fewer than `min_files` = {policy.min_files}")
        ]

    def _settled_steps(self, engine: str) -> list[PlannedStep]:
        """Plan to merge even a few small files of partitions that have had no new file for long."""
        if engine == "extension":
            return []
        bins, policy = list[Sequence[FileState]](), self._policy.merge
        for files in partitions_of(self._table.files):
            if (least := self._least(files)) < policy.min_files:
                for same in _by_version(self._remaining(files)):
                    found = list(merge_bins(same, self._sizes, policy, self._room, least))
                    self._room -= sum(map(len, found))
                    bins += found
                    if not any(merge_bins(same, self._sizes, policy, len(same))):  # else they are counted already
                        unlimited = merge_bins(same, self._sizes, policy, len(same), least)
                        self._waiting += sum(map(len, unlimited)) - sum(map(len, found))
        if not bins:
            return []
        what = f"{sum(map(len, bins))} small files without new ones for {in_words(policy.settled_after)}"
        return [self._small_step("merge", bins, engine, what)]

    def _merge_step(self, group: Group, files: Sequence[FileState], engine: str) -> PlannedStep:
        remaining = self._remaining(files)
        if engine == "extension":
            remaining = [file for file in remaining if not file.deleted]  # the extension skips files with deletions
        bins = list(merge_bins(remaining, self._sizes, self._policy.merge, self._room))
        taken = [file for part in bins for file in part]
        unlimited = merge_bins(remaining, self._sizes, self._policy.merge, len(remaining))
        self._waiting += sum(len(part) for part in unlimited) - len(taken)
        if not taken:
            return self._skipped("merge", "no bin reaches `min_files` small files", group)
        self._room -= len(taken)
        return self._small_step("merge", bins, engine, f"{len(taken)} small files")

    def _remaining(self, files: Sequence[FileState]) -> list[FileState]:
        """Return the files that no earlier operation takes."""
        return [file for file in files if file.file_id not in self._taken]

    # --- layout --------------------------------------------------------------------------------------------------

    def _cluster(self) -> list[PlannedStep]:
        table, policy, clustering = self._table, self._policy.layout, self._clustering
        if policy.cluster == "off":
            return [self._skipped("layout", "the policy's `layout.cluster` is off")]
        if clustering is None:
            by = ", ".join(self._proposed)
            hint = f"; clustering by {by} would let reads open fewer files" if by else ""
            return [self._skipped("layout", f"it has no cluster keys, and no column as its first sort key{hint}")]
        if clustering.missing is not None:
            return [self._skipped("layout", f"its cluster key `{clustering.missing}` is not one of its columns")]
        partitions = partitions_of(self._remaining(table.files))
        target = self._sizes.target
        depths = [(clustering.depth(files), files) for files in partitions]
        steps = [
            self._cluster_step(clustering, taken, depth)
            for depth, files in depths
            if depth > policy.max_depth and (taken := clustering.files_to_cluster(files, target, policy.max_bytes))
        ]
        if steps:
            return steps
        deepest = max((depth for depth, _ in depths), default=0.0)
        if deepest > policy.max_depth:
            reason = f"{deepest:.1f} files hold a value of {clustering.names}; clustering would hardly lower this"
        else:
            most = f"at most {deepest:.1f} files hold a value of {clustering.names}"
            reason = f"{most}; `max_depth` is {policy.max_depth:g}"
        return [self._skipped("layout", reason)]

    def _cluster_step(self, clustering: TableClustering, taken: Sequence[FileState], depth: float) -> PlannedStep:
        size = sum(file.bytes for file in taken)
        files_out = round(size / self._sizes.target)
        before, after = clustering.depth(taken), clustering.ideal_depth(files_out)
        fewer_bytes = max(0.0, before * size / len(taken) - after * size / files_out)
        return self._step(
            "layout",
            taken[0].group,
            f"{depth:.1f} files hold a value of {clustering.names}; {len(taken)} files become {files_out}",
            engine=self._engine(self._policy.layout.engine),
            files_in=len(taken),
            files_out=files_out,
            bytes=size,
            rows=sum(file.rows - file.deleted for file in taken),
            saves=round(fewer_bytes + max(0.0, before - after) * self._policy.rank.open_bytes),
            paths=[self._table.path(file) for file in taken],
            bins=[self._bin(taken, files_out)],
        )

    @property
    def _limit_reached(self) -> str:
        limit = self._policy.merge.max_files_per_run
        return f"a run merges at most `max_files_per_run` = {limit} files, those of the tables that pay off first"

    @property
    def room(self) -> int:
        """The number of files that merges of other tables may still process."""
        return self._room


def _by_version(files: Iterable[FileState]) -> list[list[FileState]]:
    """Divide files by the versions of their schema."""
    found: dict[int, list[FileState]] = defaultdict(list)
    for file in files:
        found[file.group[0]].append(file)
    return list(found.values())


def _combined(steps: Sequence[PlannedStep]) -> list[PlannedStep]:
    """Combine the steps of several partitions for the extension, whose functions do not know partitions."""
    if len(steps) < 2 or steps[0].engine != "extension":
        return list(steps)
    figures = {name: sum(getattr(step, name) for step in steps) for name in _SUMMED}
    paths = [path for step in steps for path in step.paths]
    reason = f"in {len(steps)} partitions, {figures['files_in']} files become {figures['files_out']}"
    return [replace(steps[0], partition=None, reason=reason, paths=paths, bins=(), **figures)]
