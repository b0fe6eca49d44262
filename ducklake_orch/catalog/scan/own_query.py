"""The query for the rows of a table in a lake that the extension does not read: the union of its files."""

from collections.abc import Sequence

from ducklake_orch.catalog.metadata import duckdb_type, reading
from ducklake_orch.catalog.parquet import footers_of, rows_sql
from ducklake_orch.catalog.scan.scan_plan import ScanPlan, plan_scan
from ducklake_orch.catalog.scan.table_summary import snapshot_of
from ducklake_orch.engine.formats import NEWER_FORMAT, NEWER_REMEDY
from ducklake_orch.engine.quoting import TableName, identifier
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import CatalogVersionError


def own_query(session: Session, name: TableName, columns: Sequence[str] | None, where: str | None) -> str:
    """Return the query for the rows of a table.

    Args:
        session: The lake.
        name: The table.
        columns: Names of the columns to read; None for all.
        where: A condition; files without a row that can meet it are left out. Its columns are read, too.

    Raises:
        CatalogVersionError: When the name is that of a view: its query is for the extension.
    """
    with reading(session, f"Planning the read of `{name}`") as metadata:
        at = snapshot_of(session, metadata)
        if metadata.has_view(*name, at):
            raise CatalogVersionError(f"`{name}` is a view of a lake of format {NEWER_FORMAT}.", remedy=NEWER_REMEDY)
        plan = plan_scan(metadata, metadata.table(name, at), at, columns=columns, where=where)
        footers = footers_of(metadata.con, plan.files, plan.layouts)
        names = ", ".join(identifier(column.name) for column in plan.needed)
        parts = [f"SELECT {names} FROM ({inlined.sql})" for inlined in plan.inlined]
        for file in plan.files:
            footer, deleted = footers[file.path], plan.inlined_deletes.get(file.data_file_id, ())
            parts.append(rows_sql(file, footer, plan.stored(file, footer), at, deleted))
        return " UNION ALL ".join([_no_rows(plan), *parts])


def _no_rows(plan: ScanPlan) -> str:
    values = [f"CAST(NULL AS {duckdb_type(column)}) AS {identifier(column.name)}" for column in plan.needed]
    return f"SELECT {', '.join(values)} WHERE false"
