"""Show which columns reads had conditions on, and how many files they opened (`lake.workload`)."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from ducklake_orch.catalog.metadata import Metadata, live, text
from ducklake_orch.catalog.scan import WHOLE_TABLE, read_counts
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.quoting import literal
from ducklake_orch.results import Result

# The days whose reads tell how often a table is read now.
_RECENT_DAYS = 7
# Limits of a proposal: the number of keys, the reads of a column, and the share of the avoidable files of the best
# column that a further one must reach.
_KEYS, _FEWEST_READS, _SHARE = 2, 10, 0.25
# Types of columns, as the catalog has them, whose values have no bounds.
_WITHOUT_BOUNDS = ("struct", "list", "map", "variant", "geometry", "interval", "timetz", "blob", "int128", "uint128")


@dataclass(frozen=True)
class ColumnReads(Result):
    """The reads of a table, or those with conditions on one of its columns.

    Attributes:
        table: `schema.table`.
        column: The column; None for all reads of the table.
        condition: The kind of condition: `equal` (also IN), `range` or `other`; None for all reads of the table.
        reads: How many reads there were.
        files: How many files the table had, on average over the reads with conditions whose files were counted; None if
            there were none.
        opened: How many of these files could hold rows that meet the whole condition of the read, on average.
    """

    table: str
    column: str | None
    condition: str | None
    reads: int
    files: float | None
    opened: float | None

    def __str__(self) -> str:
        what = self.table if self.column is None else f"{self.table}.{self.column} ({self.condition})"
        opened = (
            f", {self.opened:.1f} of {self.files:.1f} files opened" if self.files and self.opened is not None else ""
        )
        return f"{what}: {self.reads} reads{opened}"


def workload(config: LakeConfig, days: int) -> list[ColumnReads]:
    """Return the counts of reads; see `DuckLake.workload`."""
    with planning(config, f"Listing the reads of lake `{config.name}`", reads=True) as metadata:
        counts = read_counts(metadata, days)
        names = _names(metadata) if counts else {}
    found = list[ColumnReads]()
    for (table_id, column_id, kind), figures in counts.items():
        if (table_id, column_id) in names:
            table, column = names[table_id, column_id]
            planned = figures["planned"]
            files, opened = (figures[name] / planned if planned else None for name in ("files", "opened"))
            found.append(ColumnReads(table, column, kind or None, figures["reads"], files, opened))
    return sorted(found, key=lambda entry: (entry.table, entry.column is not None, -entry.reads, entry.column or ""))


def reads_per_day(metadata: Metadata) -> Mapping[int, float]:
    """Return the reads of each table per day, as counted in the last days, by table id."""
    counts = read_counts(metadata, _RECENT_DAYS).items()
    return {table: figures["reads"] / _RECENT_DAYS for (table, column, _), figures in counts if column == WHOLE_TABLE}


def proposed_keys(metadata: Metadata) -> dict[int, list[str]]:
    """Return the cluster keys that would help reads most, by table id: columns of conditions that open many files."""
    excess, reads = dict[int, Counter[int]](), Counter[tuple[int, int]]()
    for (table_id, column_id, kind), figures in read_counts(metadata, _RECENT_DAYS).items():
        if column_id != WHOLE_TABLE and kind != "other":
            excess.setdefault(table_id, Counter())[column_id] += figures["opened"] - figures["planned"]
            reads[table_id, column_id] += figures["reads"]
    names, found = _names(metadata, keys=True) if excess else {}, dict[int, list[str]]()
    for table_id, columns in excess.items():
        possible = [
            (files, name)
            for column_id, files in columns.most_common()
            if reads[table_id, column_id] >= _FEWEST_READS
            and (name := names.get((table_id, column_id), ("", None))[1]) is not None
        ]
        least = max((files for files, _ in possible), default=0) * _SHARE
        if keys := [name for files, name in possible[:_KEYS] if files > 0 and files >= least]:
            found[table_id] = keys
    return found


def _names(metadata: Metadata, *, keys: bool = False) -> dict[tuple[int, int], tuple[str, str | None]]:
    """Return the names of live tables and their columns, by their ids.

    Args:
        metadata: The metadata tables.
        keys: Only columns that can be cluster keys: those with bounds, except columns by which tables are partitioned.
    """
    at, name = metadata.latest().snapshot_id, metadata.table_sql
    tables = metadata.rows(
        f"SELECT t.table_id, s.schema_name, t.table_name FROM {name('ducklake_table')} t"
        f" JOIN {name('ducklake_schema')} s USING (schema_id) WHERE {live(at, 't')} AND {live(at, 's')}"
    )
    full = {int(row[0]): f"{text(row[1])}.{text(row[2])}" for row in tables}
    columns = metadata.rows(
        f"SELECT table_id, column_id, column_name FROM {name('ducklake_column')}"
        f" WHERE parent_column IS NULL AND {live(at)}{_only_keys(metadata, at) if keys else ''}"
    )
    found = dict[tuple[int, int], tuple[str, str | None]]()
    for table in full:
        found[table, WHOLE_TABLE] = full[table], None
    for table_id, column_id, column in columns:
        if int(table_id) in full:
            found[int(table_id), int(column_id)] = full[int(table_id)], text(column)
    return found


def _only_keys(metadata: Metadata, at: int) -> str:
    name = metadata.table_sql
    types = ", ".join(map(literal, _WITHOUT_BOUNDS))
    partitioned = (
        f"SELECT c.table_id, c.column_id FROM {name('ducklake_partition_column')} c"
        f" JOIN {name('ducklake_partition_info')} i USING (partition_id)"
        f" WHERE c.transform = 'identity' AND {live(at, 'i')}"
    )
    return f" AND lower(column_type) NOT IN ({types}) AND (table_id, column_id) NOT IN ({partitioned})"
