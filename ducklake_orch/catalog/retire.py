"""Work out, inside the commit, which rows a change retires: from the files and inlined rows that are live just then."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.change import Everything, TableChange
from ducklake_orch.catalog.model import TableDef
from ducklake_orch.catalog.transaction import MetadataTransaction


@dataclass(frozen=True)
class Retired:
    """What goes.

    Attributes:
        all_files: Whether all live files of the table go; then they need no list.
        file_ids: The data files that go.
        file_count: How many they are.
        rows: Live rows that go, in files and inlined.
        inlined: Tables of inlined rows that lose some, with the rows' ids; None for all of them.
    """

    all_files: bool = False
    file_ids: Sequence[int] = ()
    file_count: int = 0
    rows: int = 0
    inlined: dict[str, Sequence[int] | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.file_count or self.inlined)


def find_retired(transaction: MetadataTransaction, change: TableChange, table: TableDef) -> Retired:
    """Return what a change retires of a table as it is now."""
    match change.remove:
        case None:
            return Retired()
        case Everything():
            return _everything(transaction, table)
    raise NotImplementedError


def _everything(transaction: MetadataTransaction, table: TableDef) -> Retired:
    rows = transaction.metadata.rows(f"""
        SELECT count(*), coalesce(sum(f.record_count - coalesce(d.delete_count, 0)), 0)
        FROM (SELECT * FROM {transaction.metadata.table_sql("ducklake_data_file")}
              WHERE table_id = {table.table_id} AND end_snapshot IS NULL) f
        LEFT JOIN (SELECT * FROM {transaction.metadata.table_sql("ducklake_delete_file")}
                   WHERE table_id = {table.table_id} AND end_snapshot IS NULL) d USING (data_file_id)""")
    return Retired(True, (), int(rows[0][0]), int(rows[0][1]), {})
