"""Count files, bytes and rows of a lake, by table, before and after a run."""

from collections.abc import Mapping
from dataclasses import dataclass

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.maintenance.census import TableState, census
from ducklake_orch.maintenance.results import PlannedStep

COUNTED = ("files", "bytes", "rows", "deleted_rows", "inlined_rows")


@dataclass(frozen=True)
class Figures:
    """The counts at one moment.

    Attributes:
        snapshot: The latest snapshot.
        lake: Counts of the lake.
        tables: Counts by table.
    """

    snapshot: int
    lake: Mapping[str, int]
    tables: Mapping[str, Mapping[str, int]]

    def of(self, step: PlannedStep) -> Mapping[str, int]:
        """Return the figures of the step's table, or of the lake."""
        return self.lake if step.table is None else self.tables.get(step.table, {})


def figures(config: LakeConfig) -> Figures:
    """Count the contents of a lake."""
    with census(config, f"Counting the contents of lake `{config.name}`") as state:
        snapshots, pending = (
            f"select count(*) as n from {dialect_of(config).table(name)}"
            for name in ("ducklake_snapshot", "ducklake_files_scheduled_for_deletion")
        )
        lake_counts = [state.metadata.rows(dialect_of(config).query(sql))[0][0] for sql in (snapshots, pending)]
        tables = {str(table.name): counted(table) for table in state.tables}
        lake = {name: sum(table_counts[name] for table_counts in tables.values()) for name in COUNTED}
        lake |= {"snapshots": int(lake_counts[0]), "pending_files": int(lake_counts[1])}
        return Figures(state.latest.snapshot_id, lake, tables)


def counted(table: TableState) -> dict[str, int]:
    """Count the contents of a table."""
    deleted, inlined = sum(file.deleted for file in table.files), sum(state.live_rows for state in table.inlined)
    rows = sum(file.rows for file in table.files) - deleted + inlined
    return dict(zip(COUNTED, (len(table.files), table.bytes, rows, deleted, inlined), strict=True))
