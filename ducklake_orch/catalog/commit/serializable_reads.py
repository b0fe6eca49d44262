"""Check that what a serializable transaction has read is as it was when the transaction began."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ducklake_orch.catalog.metadata import (
    DELETING_CHANGES,
    MOVING_CHANGES,
    MetadataTransaction,
    TableDef,
    parse_tokens,
    text,
)
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import StalePlanError


@dataclass
class Reads:
    """What a transaction has read.

    Attributes:
        snapshot: The snapshot that it was read at.
        tables: The tables by name; None for a name that no table had.
        everything: Whether all tables and views count as read.
    """

    snapshot: int
    tables: dict[TableName, TableDef | None] = field(default_factory=dict)
    everything: bool = False


def judge_reads(transaction: MetadataTransaction, reads: Reads) -> None:
    """Compare what was read with the latest snapshot; rows that were only moved are the same.

    Raises:
        StalePlanError: When another commit has changed a table or a view, or created one whose absence was read.
    """
    for name, table in reads.tables.items():
        if table is None and transaction.metadata.is_taken(name, transaction.latest.snapshot_id):
            raise StalePlanError(f"A concurrent write created `{name}`, which did not exist when it was read.")
    known = {table.table_id: table for table in reads.tables.values() if table is not None}
    for snapshot, changed in _changed_since(transaction, reads.snapshot):
        for changed_id in changed:
            if reads.everything or changed_id in known:
                what = f"`{known[changed_id]}`" if changed_id in known else "the tables that were read"
                raise StalePlanError(f"A concurrent write changed {what} in snapshot {snapshot}.")


def _changed_since(transaction: MetadataTransaction, first: int) -> Iterator[tuple[int, set[int | str | None]]]:
    """Return the ids and names of what later snapshots changed."""
    name = transaction.dialect.table("ducklake_snapshot_changes")
    rows = transaction.ask(f"select snapshot_id, changes_made from {name} where snapshot_id > {first} order by 1")
    if len(rows) != transaction.latest.snapshot_id - first:
        raise StalePlanError(f"Snapshots after {first} have expired, so what they changed is unknown.")
    for row in rows:
        yield int(row[0]), {changed for changed, kinds in _kinds(text(row[1])).items() if _changes(kinds)}


def _kinds(tokens: str | None) -> Mapping[int | str | None, set[str]]:
    kinds: dict[int | str | None, set[str]] = {}
    for token in parse_tokens(tokens):
        kinds.setdefault(token.name if token.id is None else token.id, set()).add(token.kind)
    return kinds


def _changes(kinds: set[str]) -> bool:
    """Whether changes of one object change what it holds; a flush moves deletions into files."""
    return bool(kinds - MOVING_CHANGES - (DELETING_CHANGES if "inline_flush" in kinds else set()))
