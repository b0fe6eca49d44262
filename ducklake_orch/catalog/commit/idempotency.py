"""Store and find the callers' idempotency keys, in a ducklake-orch table in the metadata database.

A key is written in the same transaction as the commit that it identifies. The table's primary key is the last guard: if
two processes do the same work, only one of them can commit.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ducklake_orch.catalog.commit import conflicts
from ducklake_orch.catalog.metadata import (
    Metadata,
    MetadataTransaction,
    create_before_transaction,
    create_in_transaction,
    reading,
    text,
)
from ducklake_orch.engine.dialects import Dialect, dialect_of
from ducklake_orch.engine.quoting import TableName, is_storable, literal
from ducklake_orch.engine.session import Session
from ducklake_orch.errors import ConfigError, LakeNotFoundError

KEYS_TABLE = "ducklake_orch_commits"
# Stands for the table's id of a key that covers several tables.
WHOLE_LAKE = -1
# MySQL limits a primary key to 3072 bytes.
_LONGEST_KEY = 1024


def check_key(key: str) -> None:
    """Refuse a key that cannot be stored."""
    if not isinstance(key, str) or not key or not is_storable(key) or len(key.encode()) > _LONGEST_KEY:
        raise ConfigError(
            f"The idempotency key {str(key)[:80]!r} cannot be used.",
            remedy=f"Give a text of 1 to {_LONGEST_KEY} bytes, the same for every attempt at the same work.",
        )


def has_keys(metadata: Metadata) -> bool:
    """Return whether the table of keys exists; the first write that has a key creates it."""
    return metadata.dialect.exists(metadata.con, KEYS_TABLE)


def make_table(session: Session) -> None:
    """Create the table of keys before the commit, on catalogs where CREATE TABLE cannot be part of the transaction."""
    create_before_transaction(session, KEYS_TABLE, _columns(dialect_of(session.config)))


def make_table_in(transaction: MetadataTransaction) -> None:
    """Create the table of keys within the transaction of the commit, if it does not exist."""
    create_in_transaction(transaction, KEYS_TABLE, _columns(transaction.dialect))


def _columns(dialect: Dialect[Any]) -> str:
    return (
        f"table_id BIGINT NOT NULL, idempotency_key {dialect.key_type(_LONGEST_KEY)} NOT NULL,"
        " snapshot_id BIGINT NOT NULL, write_id VARCHAR(64) NOT NULL, committed_at BIGINT NOT NULL,"
        " PRIMARY KEY (table_id, idempotency_key)"
    )


def find_key(metadata: Metadata, table_id: int, key: str) -> int | None:
    """Return the snapshot that committed a key, or None; the table of keys must exist."""
    dialect = metadata.dialect
    condition = f"table_id = {table_id} and idempotency_key = {dialect.text_literal(key)}"
    rows = metadata.rows(dialect.query(f"select snapshot_id from {dialect.table(KEYS_TABLE)} where {condition}"))
    return int(rows[0][0]) if rows else None


def snapshot_of_key(opened: AbstractContextManager[Session], wanted: TableName, key: str) -> int | None:
    """Return the snapshot that committed a key to a table, or None if the table or the key does not exist.

    Args:
        opened: A session to read the lake with; it need not be entered.
        wanted: The table's name.
        key: The key.
    """
    try:
        with opened as session, reading(session, f"Looking for earlier commits to `{wanted}`") as metadata:
            if not has_keys(metadata):
                return None
            table = metadata.find_table(wanted, metadata.latest().snapshot_id)
            return None if table is None else find_key(metadata, table.table_id, key)
    except LakeNotFoundError:  # the write that follows creates the lake, or reports why it cannot
        return None


class LastCommit(NamedTuple):
    """The last write to a table that had a key.

    Attributes:
        key: The key.
        committed_at: Time of the commit, in seconds since the epoch.
    """

    key: str
    committed_at: int


def last_commits(
    opened: AbstractContextManager[Session], table_ids: Sequence[int], begin: str
) -> dict[int, LastCommit]:
    """Return the last write with a matching key for each table, by table id.

    Args:
        opened: A session to read the lake with; it need not be entered.
        table_ids: The tables.
        begin: The prefix that a key must have.
    """
    with opened as session, reading(session, "Looking for the last commits to tables") as metadata:
        return _last_commits(metadata, table_ids, begin)


def last_commit(
    opened: AbstractContextManager[Session], wanted: TableName, begin: str
) -> tuple[LastCommit | None, int]:
    """Return the last write with a matching key to a table, and the snapshot at which that holds.

    Args:
        opened: A session to read the lake with; it need not be entered.
        wanted: The table's name.
        begin: The prefix that a key must have.
    """
    try:
        with opened as session, reading(session, f"Looking for the last commit to `{wanted}`") as metadata:
            snapshot = metadata.latest().snapshot_id
            table = metadata.find_table(wanted, snapshot)
            if table is None:
                return None, snapshot
            return _last_commits(metadata, [table.table_id], begin).get(table.table_id), snapshot
    except LakeNotFoundError:
        return None, 0


def _last_commits(metadata: Metadata, table_ids: Sequence[int], begin: str) -> dict[int, LastCommit]:
    if not table_ids or not has_keys(metadata):
        return {}
    name = metadata.dialect.table(KEYS_TABLE)
    id_list = ", ".join(map(str, table_ids))
    sql = f"select table_id, idempotency_key, committed_at from {name} where table_id in ({id_list})"
    rows = metadata.rows(metadata.dialect.query(f"{sql} order by snapshot_id"))
    commits = ((int(row[0]), LastCommit(text(row[1]) or "", int(row[2]))) for row in rows)
    return {table_id: commit for table_id, commit in commits if commit.key.startswith(begin)}


def find_in(transaction: MetadataTransaction, table_id: int, key: str) -> tuple[int, str] | None:
    """Return the snapshot that committed a key and the id of its write, as the transaction sees them."""
    dialect = transaction.dialect
    condition = f"table_id = {table_id} and idempotency_key = {dialect.text_literal(key)}"
    rows = transaction.ask(f"select snapshot_id, write_id from {dialect.table(KEYS_TABLE)} where {condition}")
    return (int(rows[0][0]), text(rows[0][1]) or "") if rows else None


def find_each_in(transaction: MetadataTransaction, table_id: int, keys: Sequence[str]) -> frozenset[str]:
    """Return those of the keys that are committed to a table."""
    dialect = transaction.dialect
    condition = f"table_id = {table_id} and idempotency_key in ({', '.join(map(dialect.text_literal, keys))})"
    column = dialect.texts(("idempotency_key",))
    rows = transaction.ask(f"select {column} from {dialect.table(KEYS_TABLE)} where {condition}")
    return frozenset(text(row[0]) or "" for row in rows)


def record(transaction: MetadataTransaction, table_id: int, key: str, snapshot_id: int, write_id: str) -> None:
    """Insert a key with its snapshot, and delete the table's keys that are older than `keep_keys`."""
    record_each(transaction, table_id, [(key, snapshot_id, write_id)])


def record_each(transaction: MetadataTransaction, table_id: int, commits: Sequence[tuple[str, int, str]]) -> None:
    """Insert keys, each with its snapshot and write id, and delete the table's keys that are older than `keep_keys`."""
    kept_s = int(transaction.config.keep_keys.total_seconds())
    now, stored = int(transaction.now.timestamp()), [transaction.dialect.text_literal(key) for key, _, _ in commits]
    condition = f"idempotency_key IN ({', '.join(stored)}) OR committed_at < {now - kept_s}"
    transaction.change(KEYS_TABLE, f"DELETE FROM {{}} WHERE table_id = {table_id} AND ({condition})")
    values = ", ".join(
        f"({table_id}, {key}, {snapshot}, {literal(write_id)}, {now})"
        for key, (_, snapshot, write_id) in zip(stored, commits, strict=True)
    )
    columns = "table_id, idempotency_key, snapshot_id, write_id, committed_at"
    transaction.change(KEYS_TABLE, f"INSERT INTO {{}} ({columns}) VALUES {values}")


def undone_by(metadata: Metadata, table_id: int, snapshot: int) -> int | None:
    """Return the first snapshot after `snapshot` that removed rows of a table, or None."""
    name = metadata.dialect.table("ducklake_snapshot_changes")
    sql = f"select snapshot_id, changes_made from {name} where snapshot_id > {snapshot} order by snapshot_id"
    rows = metadata.rows(metadata.dialect.query(sql))
    snapshots = conflicts.data_changes(((int(r[0]), text(r[1])) for r in rows), table_id, deleting=True)
    return snapshots[0] if snapshots else None
