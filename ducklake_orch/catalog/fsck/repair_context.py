"""The context of a repair: the transaction on the metadata, the state that it sees, and the snapshot it commits."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from ducklake_orch.catalog.fsck.local_copy import LocalCopy
from ducklake_orch.catalog.metadata import MetadataTransaction, Token
from ducklake_orch.engine.quoting import literal


@dataclass
class RepairContext:
    """Repairs of one snapshot.

    Attributes:
        transaction: The transaction on the metadata tables.
        copy: The state of the catalog when the transaction began.
        write_id: Part of the names of files that repairs write.
        next_file_id: The id of the next such file.
        tokens: The changes that the snapshot records.
        folded: Ids of the data files whose deletes have been merged.
    """

    transaction: MetadataTransaction
    copy: LocalCopy
    write_id: str
    next_file_id: int
    tokens: list[Token] = field(default_factory=list)
    folded: set[int] = field(default_factory=set)

    def delete(self, table: str, condition: str) -> None:
        """Delete rows of a metadata table."""
        self.transaction.change(table, f"DELETE FROM {{}} WHERE {condition}")

    def delete_each(self, table: str, column: str, ids: Sequence[int], condition: str = "") -> None:
        """Delete the rows of a metadata table that have one of these ids."""
        self.transaction.change_each(table, f"DELETE FROM {{}} WHERE{condition}", column, ids)

    def update(self, table: str, values: str, condition: str) -> None:
        """Update rows of a metadata table."""
        self.transaction.change(table, f"UPDATE {{}} SET {values} WHERE {condition}")

    def text(self, value: str | None) -> str:
        """Return a text as a literal in the catalog's own SQL."""
        return literal(value) if value is None else self.transaction.dialect.typed_text(value)
