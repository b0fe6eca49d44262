"""Show which columns reads had conditions on, and how many files they opened (`lake.workload`)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import Metadata, live, text
from ducklake_orch.catalog.scan import WHOLE_TABLE, read_counts
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.results import Result

# The days whose reads tell how often a table is read now.
_RECENT_DAYS = 7
# What proposed keys are: at most so many columns, each in conditions of so many reads, and with this share of the files
# that reads with a condition on the most helpful column need not open.
_KEYS, _FEWEST_READS, _SHARE = 2, 10, 0.25


@dataclass(frozen=True)
class ColumnReads(Result):
    """The reads of a table, or those with conditions on one of its columns.

    Attributes:
        table: `schema.table`.
        column: The column; None for all reads of the table.
        condition: The kind of condition: `equal` (also IN), `range` or `other`; None for all reads of the table.
        reads: How many reads there were.
        files: How many files the table had, on average over the reads whose files were counted.
        opened: How many of these files could hold rows that meet the whole condition of the read, on average.
    """

    table: str
    column: str | None
    condition: str | None
    reads: int
    files: float
    opened: float

    def __str__(self) -> str:
        what = self.table if self.column is None else f"{self.table}.{self.column} ({self.condition})"
        return f"{what}: {self.reads} reads, {self.opened:.1f} of {self.files:.1f} files opened"


def workload(config: LakeConfig, days: int) -> list[ColumnReads]:
    """Return the counts of reads; see `DuckLake.workload`."""
    with planning(config, f"Listing the reads of lake `{config.name}`", reads=True) as metadata:
        counts = read_counts(metadata, days)
        names = _names(metadata) if counts else {}
    found = list[ColumnReads]()
    for (table_id, column_id, kind), figures in counts.items():
        if (table_id, column_id) in names:
            table, column = names[table_id, column_id]
            files, opened = (figures[name] / max(figures["planned"], 1) for name in ("files", "opened"))
            found.append(ColumnReads(table, column, kind or None, figures["reads"], files, opened))
    return sorted(found, key=lambda entry: (entry.table, entry.column is not None, -entry.reads, entry.column or ""))


def reads_per_day(metadata: Metadata) -> Mapping[int, float]:
    """Return the reads of each table per day, as counted in the last days, by table id."""
    counts = read_counts(metadata, _RECENT_DAYS).items()
    return {table: figures["reads"] / _RECENT_DAYS for (table, column, _), figures in counts if column == WHOLE_TABLE}


def proposed_keys(metadata: Metadata) -> dict[int, list[str]]:
    """Return the cluster keys that would help reads most, by table id: columns of conditions that open many files."""
    excess = dict[int, Counter[int]]()
    for (table_id, column_id, kind), figures in read_counts(metadata, _RECENT_DAYS).items():
        if column_id != WHOLE_TABLE and kind != "other" and figures["reads"] >= _FEWEST_READS:
            excess.setdefault(table_id, Counter())[column_id] += figures["opened"] - figures["planned"]
    names, found = _names(metadata) if excess else {}, dict[int, list[str]]()
    for table_id, columns in excess.items():
        least = max(columns.values()) * _SHARE
        helpful = [column for column, files in columns.most_common(_KEYS) if files > 0 and files >= least]
        keys = [column for key in helpful if (column := names.get((table_id, key), ("", None))[1]) is not None]
        if keys:
            found[table_id] = keys
    return found


def _names(metadata: Metadata) -> dict[tuple[int, int], tuple[str, str | None]]:
    """Return the names of live tables and their columns, by their ids."""
    at, name = metadata.latest().snapshot_id, metadata.table_sql
    tables = metadata.rows(
        f"SELECT t.table_id, s.schema_name, t.table_name FROM {name('ducklake_table')} t"
        f" JOIN {name('ducklake_schema')} s USING (schema_id) WHERE {live(at, 't')} AND {live(at, 's')}"
    )
    full = {int(row[0]): f"{text(row[1])}.{text(row[2])}" for row in tables}
    columns = metadata.rows(
        f"SELECT table_id, column_id, column_name FROM {name('ducklake_column')}"
        f" WHERE parent_column IS NULL AND {live(at)}"
    )
    found = dict[tuple[int, int], tuple[str, str | None]]()
    for table in full:
        found[table, WHOLE_TABLE] = full[table], None
    for table_id, column_id, column in columns:
        if int(table_id) in full:
            found[int(table_id), int(column_id)] = full[int(table_id)], text(column)
    return found
