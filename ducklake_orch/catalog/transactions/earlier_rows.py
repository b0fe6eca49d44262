"""Roll a table of a draft back to the rows that it had at an earlier snapshot of the lake."""

from dataclasses import replace

from ducklake_orch.catalog.commit import Everything, TableChange, commit_change, leased, write_result
from ducklake_orch.catalog.metadata import NewFile, TableDef, row_id_name
from ducklake_orch.catalog.search import (
    DuckDBFinder,
    RowSearch,
    check_existed,
    inlined_sql,
    placed_sql,
    plan_rows,
    planning,
    union_sql,
)
from ducklake_orch.catalog.transactions.draft import Draft
from ducklake_orch.catalog.writing import write_known_rows
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import removing_failed
from ducklake_orch.errors import ObjectNotFoundError
from ducklake_orch.results import WriteResult


def restore(draft: Draft, name: TableName, to_snapshot: int) -> WriteResult:
    """Replace all rows of a table by those of an earlier snapshot; they keep their row ids."""
    if (adopted := draft.adopt(name)) is None:
        raise ObjectNotFoundError(f"The table `{name}` did not exist when the transaction began.")
    write = Write(f"rolling back `{name}`")
    with planning(draft.config, f"Planning {write.purpose}", reads=True) as drafted:
        table = drafted.table(name, drafted.latest().snapshot_id)
    # The lease of the transaction does not protect files of earlier snapshots.
    with leased(draft.lake, Write(write.purpose), to_snapshot), leased(draft.config, write, to_snapshot):
        with removing_failed(draft.config, write, table.folder):
            files = _rows_of(draft, replace(adopted.table, columns=table.columns), to_snapshot, write)
            with open_session(draft.config, entering=False) as session:
                change = TableChange(name, table, table, tuple(files), Everything())
                return write_result(write, table, "rollback", files, commit_change(session, write, change))


def _rows_of(draft: Draft, table: TableDef, at: int, write: Write) -> list[NewFile]:
    """Write the rows that a table had at a snapshot, in the columns that it has now."""
    with planning(draft.lake, f"Planning {write.purpose}", reads=True) as metadata:
        check_existed(metadata, table, at)
        plan = plan_rows(metadata, table, replace(draft.base, snapshot_id=at), None, values=True)
    with working_connection(draft.lake, apart=True) as con:
        search = RowSearch(draft.lake, con, DuckDBFinder())
        with search.working("Reading rows of an earlier snapshot"):
            columns = ", ".join([*(identifier(column.name) for column in table.columns), row_id_name(table.columns)])
            parts = [f"SELECT {columns} FROM ({placed_sql(plan.scan, file, search.hits)})" for file in plan.scan.files]
            parts += [f"SELECT {columns} FROM {source}" for source in inlined_sql(con, plan)]
            return write_known_rows(con, table, union_sql(parts), write.write_id) if parts else []
