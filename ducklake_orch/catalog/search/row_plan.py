"""Plan a row change: read the state of a table at one snapshot, then release all locks."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import duckdb

from ducklake_orch.catalog.commit import InlinedDeletes, inlined_deletes
from ducklake_orch.catalog.metadata import (
    ColumnDef,
    Metadata,
    SnapshotRow,
    TableDef,
    duckdb_type,
    reading,
    reading_shared,
    row_id_name,
    snapshot_id_name,
)
from ducklake_orch.catalog.scan import ScanPlan, plan_scan
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.engine.session import Session, open_session
from ducklake_orch.engine.temporary_setting import temporary_setting
from ducklake_orch.errors import UnsupportedStatementError

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class RowPlan:
    """The plan of a row change.

    Attributes:
        latest: The snapshot that the change is planned on.
        table: The table at that snapshot.
        target: The table as the change will leave it.
        scan: The files that may hold rows to change.
        inlined: The matching inlined rows, by inlined table: row ids, the snapshots that added them and, if
            requested, their values.
        inlined_deletes: Inlined deletions of the files.
    """

    latest: SnapshotRow
    table: TableDef
    target: TableDef
    scan: ScanPlan
    inlined: "Mapping[str, pa.Table]" = field(default_factory=dict)
    inlined_deletes: InlinedDeletes = field(default_factory=dict)

    def as_target(self, column: ColumnDef, side: str = "") -> str:
        """Return the SQL that reads a column of the target table from rows of the current one; a struct may have grown.

        Args:
            column: The column of the target table.
            side: A prefix of the column name.
        """
        name = f"{side}{identifier(column.name)}"
        current = next((other for other in self.table.columns if other.column_id == column.column_id), None)
        if current is not None and duckdb_type(current) == duckdb_type(column):
            return name
        return f"CAST({name} AS {duckdb_type(column)})"

    def inlined_ids(self) -> dict[str, tuple[int, ...]]:
        """Return the ids of the inlined rows, by inlined table."""
        row_id = row_id_name(self.table.columns)
        return {name: tuple(rows.column(row_id).to_pylist()) for name, rows in self.inlined.items()}

    def inlined_versions(self) -> dict[str, frozenset[tuple[int, int]]]:
        """Return the ids of the inlined rows, each with the snapshot that added it, by inlined table."""
        both = row_id_name(self.table.columns), snapshot_id_name(self.table.columns)
        versions = {name: (rows.column(column).to_pylist() for column in both) for name, rows in self.inlined.items()}
        return {name: frozenset(zip(*pairs, strict=True)) for name, pairs in versions.items()}


@contextmanager
def planning(
    config: LakeConfig, doing: str, session: Session | None = None, *, reads: bool = False
) -> Iterator[Metadata]:
    """Read the metadata of a lake for a block, while other processes can read and write it.

    Args:
        config: The lake.
        doing: Purpose, for error messages.
        session: A session that is already open; None to open one.
        reads: Whether the caller only reads. If so, a lake that does not exist is an error.
    """
    if session is not None:
        with session.instance.one_thread(), reading(session, doing) as metadata:
            yield metadata
        return
    with reading_shared(config, doing) as shared:
        if shared is not None:
            yield shared
            return
    access = Access(config.read_only, config.snapshot, config.as_of, reads)
    with open_session(config, access, entering=False) as session, session.instance.one_thread():
        with reading(session, doing) as metadata:
            yield metadata


def plan_rows(metadata: Metadata, table: TableDef, latest: SnapshotRow, where: str | None, *, values: bool) -> RowPlan:
    """Plan what to read.

    Args:
        metadata: The metadata tables.
        table: The table.
        latest: The snapshot.
        where: The condition on rows; None for all rows.
        values: Whether to read the values of inlined rows, not only their ids.
    """
    scan = plan_scan(metadata, table, latest.snapshot_id, where=where)
    condition = f" WHERE {scan.where.sql}" if scan.where else ""
    inlined = {}
    for query in scan.inlined:
        columns = ", ".join(
            [*(arrow_copy_sql(column) for column in table.columns if values), query.row_id, query.snapshot]
        )
        rows = arrow_copy(metadata.con, f"SELECT {columns} FROM ({query.sql}){condition}")
        if len(rows):
            inlined[query.table] = rows
    if inlined and values and any(column.type in ("variant", "geometry") for column in table.columns):
        raise UnsupportedStatementError(
            f"Inlined rows of `{table}` have a VARIANT or GEOMETRY column, so they cannot be changed in the catalog.",
            remedy="Flush them to files first: CALL ducklake_flush_inlined_data.",
        )
    lost = inlined_deletes(metadata, table, [file.data_file_id for file in scan.files if file.inlined_deletes])
    return RowPlan(latest, table, table, scan, inlined, lost)


def inlined_sql(con: duckdb.DuckDBPyConnection, plan: RowPlan) -> list[str]:
    """Return the relations to put after FROM to read the inlined rows of a plan: table columns and row ids."""
    sources = []
    for number, rows in enumerate(plan.inlined.values()):
        name = f"__ducklake_orch_inlined_{number}"
        con.register(name, rows)
        values = [
            f"CAST({identifier(column.name)} AS {duckdb_type(column)}) AS {identifier(column.name)}"
            for column in plan.table.columns
        ]
        sources.append(f"(SELECT {', '.join([*values, row_id_name(plan.table.columns)])} FROM {name})")
    return sources


def arrow_copy(con: duckdb.DuckDBPyConnection, query: str) -> "pa.Table":
    """Return rows as an Arrow table for another connection; nested values are kept without loss as well."""
    with temporary_setting(con, "arrow_lossless_conversion", "true"):
        return con.execute(query).to_arrow_table()


def arrow_copy_sql(column: ColumnDef) -> str:
    """Return the SQL that makes a value survive Arrow: a cast to text, except for nested values and bytes."""
    name = identifier(column.name)
    return name if column.children or column.type == "blob" else f"CAST({name} AS VARCHAR) AS {name}"
