"""Move inlined rows into files where the extension cannot flush: on MySQL, where its own first INSERT leaves some.

They keep their ids, so that the change feed shows nothing. Earlier snapshots go on reading them where they were.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import duckdb

from ducklake_orch.catalog.change import Rollback, TableChange
from ducklake_orch.catalog.commit import commit_change
from ducklake_orch.catalog.history import TableHistory
from ducklake_orch.catalog.inlined import inlined_versions
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.catalog.model import ROW_ID, NewFile, SnapshotRow, TableDef
from ducklake_orch.catalog.pins import pinned
from ducklake_orch.catalog.planning import planning, travelling
from ducklake_orch.catalog.types import duckdb_type
from ducklake_orch.catalog.writer import write_known_rows
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.commit import Write, refuse_read_only
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.engine.retry import by_plan, retrying
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import removing_failed
from ducklake_orch.results import CommitInfo

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

_INLINED, _ROWS = "__ducklake_orch_inlined", "__ducklake_orch_rows"


@dataclass(frozen=True)
class Flushed:
    """What a flush did: how many rows went into how many files, and the snapshot that it made, if there were any."""

    rows: int = 0
    files: int = 0
    snapshot_id: int | None = None


@dataclass(frozen=True)
class _Inlined:
    """The live inlined rows of a table at a snapshot, by the tables that hold them, as they travel."""

    latest: SnapshotRow
    table: TableDef
    rows: "Mapping[str, pa.Table]"


def flush_inlined(config: LakeConfig, name: TableName, *, commit: CommitInfo) -> Flushed:
    """Move the inlined rows of a table into files.

    Args:
        config: The lake.
        name: The table.
        commit: Author, message and extra of the snapshot.
    """
    purpose = f"flushing `{name}`"
    refuse_read_only(config, purpose)

    def attempt(_: int) -> Flushed:
        write = Write(purpose, commit)
        with planning(config, f"Planning {purpose}") as metadata:
            inlined = _look(metadata, name)
        if not inlined.rows:
            return Flushed()
        with pinned(config, write, inlined.latest.snapshot_id):
            return _move(config, write, inlined)

    return retrying(config.retry, purpose, attempt, attempts_for=by_plan)


def _look(metadata: Metadata, name: TableName) -> _Inlined:
    latest = metadata.latest()
    table = metadata.table(name, latest.snapshot_id)
    select = ", ".join([*map(travelling, table.columns), ROW_ID])
    found = {}
    for one in inlined_versions(TableHistory(metadata, table), table.columns, "end_snapshot IS NULL"):
        rows = metadata.con.execute(f"SELECT {select} FROM ({one.sql})").to_arrow_table()
        if len(rows):
            found[one.table] = rows
    return _Inlined(latest, table, found)


def _move(config: LakeConfig, write: Write, inlined: _Inlined) -> Flushed:
    table, count = inlined.table, sum(map(len, inlined.rows.values()))
    gone = Rollback(
        snapshot=inlined.latest.snapshot_id,
        kept=(),
        files=(),
        inlined={name: tuple(rows.column(ROW_ID).to_pylist()) for name, rows in inlined.rows.items()},
        rows=count,
    )
    with removing_failed(config, write, table.folder):
        files = _written(config, write, inlined)
        fault_point("files.written")
        name = TableName(table.schema, table.name)
        change = TableChange(name, table, table, files, gone, planned_version=inlined.latest.schema_version)
        with open_session(config, entering=False) as session:
            done = commit_change(session, write, change)
    return Flushed(count, len(files), done.snapshot_id)


def _written(config: LakeConfig, write: Write, inlined: _Inlined) -> tuple[NewFile, ...]:
    try:
        with working_connection(config) as con:
            try:
                return tuple(write_known_rows(con, inlined.table, _loaded(con, inlined), write.write_id))
            finally:
                con.execute(f"DROP TABLE IF EXISTS {_INLINED}")
    except duckdb.Error as error:
        failure = classify(error, config, f"{write.purpose} failed")
    raise failure


def _loaded(con: duckdb.DuckDBPyConnection, inlined: _Inlined) -> str:
    """Put the rows into a table of their own types; return its name."""
    columns = inlined.table.columns
    types = "".join(f"{identifier(one.name)} {duckdb_type(one)}, " for one in columns)
    values = "".join(f"CAST({identifier(one.name)} AS {duckdb_type(one)}), " for one in columns)
    con.execute(f"CREATE OR REPLACE TEMP TABLE {_INLINED} ({types}{ROW_ID} BIGINT)")
    for rows in inlined.rows.values():
        con.register(_ROWS, rows)
        try:
            con.execute(f"INSERT INTO {_INLINED} SELECT {values}{ROW_ID} FROM {_ROWS}")
        finally:
            con.unregister(_ROWS)
    return _INLINED
