"""Collect the facts of the report page from the catalog at one moment: `report`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.maintenance.census import TableState, census
from ducklake_orch.maintenance.cluster_depth import clusterings
from ducklake_orch.maintenance.health import graded, measure
from ducklake_orch.maintenance.health_report import HealthReport
from ducklake_orch.maintenance.run_log import MaintenanceRun, latest_runs
from ducklake_orch.report.history import History, history
from ducklake_orch.report.upkeep import Upkeep, upkeep
from ducklake_orch.report.writers import Writers, writers
from ducklake_orch.results import Result

# Above this number, neighbouring partitions are shown together.
_CELLS = 600
_RUNS = 30


@dataclass(frozen=True)
class PartitionFacts(Result):
    """A partition of a table, or several neighbouring partitions.

    Attributes:
        label: Its values by key; for several partitions, those of the first and the last.
        partitions: The number of partitions.
    """

    label: str
    partitions: int
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True)
class LakeReport(Result):
    """The facts of the report page; `to_html()` returns the page.

    Attributes:
        at: When the lake was read.
        snapshot: The latest snapshot at that time.
        catalog: The location of its catalog, without secrets.
        storage: The location of its files, without secrets.
        ids: The ids of the tables, by name.
        partitions: The partitions of partitioned tables, by name.
        fresh_within: The age from which the last write of a table is a warning, in seconds, by name.
        overlaps: The keys by which tables are clustered, and the depth of their worst partitions, by name.
        writers: Who wrote the retained snapshots.
        upkeep: What maintenance may do by its policy, what is due, and what was done.
        runs: The latest runs of maintenance.
        host_urls: The addresses of the hosts' interfaces, to which runs are linked.
    """

    name: str
    at: datetime
    snapshot: int
    catalog: str
    storage: str
    health: HealthReport
    ids: Mapping[str, int]
    partitions: Mapping[str, Sequence[PartitionFacts]] = field(repr=False)
    fresh_within: Mapping[str, float] = field(repr=False)
    overlaps: Mapping[str, tuple[str, float]] = field(repr=False)
    history: History = field(repr=False)
    writers: Writers = field(repr=False)
    upkeep: Sequence[Upkeep] = field(repr=False)
    runs: Sequence[MaintenanceRun] = field(repr=False)
    host_urls: Mapping[str, str] = field(repr=False)

    @property
    def past_bytes(self) -> int:
        """The bytes that only older snapshots need."""
        return sum(table.bytes for table in self.history.past.values())

    def to_html(self) -> str:
        """Return the page: one document that needs no network."""
        from ducklake_orch.report.page import page

        return page(self)


def report(config: LakeConfig, policy: MaintenancePolicy, snapshots: int, host_urls: Mapping[str, str]) -> LakeReport:
    """Collect the report on a lake; see `DuckLake.report`."""
    with census(config, f"Reporting on lake `{config.name}`") as state:
        measured = measure(state, policy)
        past = history(state, snapshots)
        who = writers(state)
        runs = latest_runs(state.metadata, _RUNS)
        planned = upkeep(state, policy, runs)
        keys = {number: clustering.names for number, clustering in clusterings(state, policy).items()}
        ids = {str(table.name): table.table_id for table in state.tables}
        expected = {table.name: policy.of_table(*table.name).health.write_age for table in state.tables}
    return LakeReport(
        name=config.name,
        at=state.at,
        snapshot=state.latest.snapshot_id,
        catalog=config.catalog.to_url(),
        storage=config.storage.to_url() if config.storage else "MotherDuck",
        health=graded(config, policy, measured),
        ids=ids,
        partitions={str(table.name): _partitions(table) for table in state.tables if table.partitioned},
        fresh_within={str(name): ages[0].total_seconds() for name, ages in expected.items() if ages is not None},
        overlaps={
            table.table: (keys[ids[table.table]], table.metrics["depth"])
            for table in measured.tables
            if table.metrics["depth"] is not None
        },
        history=past,
        writers=who,
        upkeep=planned,
        runs=runs,
        host_urls=host_urls,
    )


def _partitions(table: TableState) -> list[PartitionFacts]:
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for group, files in table.groups.items():
        values = table.values(group)
        label = "not partitioned" if values is None else ", ".join(f"{key} = {value}" for key, value in values.items())
        for index, number in enumerate(
            (len(files), sum(file.bytes for file in files), sum(file.rows for file in files))
        ):
            found[label][index] += number
    labels = sorted(found, key=_natural)
    size = -(-len(labels) // _CELLS) or 1
    cells = (labels[start : start + size] for start in range(0, len(labels), size))
    return [
        PartitionFacts(
            group[0] if len(group) == 1 else f"{group[0]} … {group[-1]}",
            len(group),
            *(sum(found[label][index] for label in group) for index in range(3)),
        )
        for group in cells
    ]


def _natural(label: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that puts 2 before 10."""
    parts = label.replace("-", " ").split()
    return tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
