"""List the tables of a lake with the number of their rows."""

from dataclasses import replace

from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.scan.scan_plan import count
from ducklake_orch.catalog.scan.table_summary import snapshot_of
from ducklake_orch.engine.introspection import tables
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import ObjectNotFoundError
from ducklake_orch.results import Table


def counted_tables(session: Session) -> list[Table]:
    """List the tables at the session's snapshot, and count the rows of each from the catalog."""
    counted = []
    entries = tables(session)
    with reading(session, "Counting the rows of the tables") as metadata:
        at = snapshot_of(session, metadata)
        for entry in entries:
            try:
                table = metadata.table(TableName(entry.schema, entry.table), at)
            except ObjectNotFoundError:  # dropped since the tables were listed
                continue
            counted.append(replace(entry, rows=count(metadata, table, at)))
    return counted
