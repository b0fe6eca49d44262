"""Keep stages in a ducklake-orch table: what each stage is, and the net change of each of its tables.

All changes of the table wait in the lake's queue. A net change is stored only if nobody has stored another one of the
same table since it was read, so that a task never overwrites what another task staged.
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from pydantic import TypeAdapter

from ducklake_orch.catalog.commit import LEASES, end_leases, lease_until
from ducklake_orch.catalog.metadata import Metadata, MetadataTransaction, OwnTable, text
from ducklake_orch.catalog.transactions.stored_change import StoredChange
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.quoting import TableName, literal
from ducklake_orch.errors import TransactionClosedError

# Each text is stored in parts, because MySQL's TEXT has at most 65,535 bytes.
ROWS = OwnTable(
    "ducklake_orch_stages",
    "stage VARCHAR(64) NOT NULL, entry VARCHAR(64) NOT NULL, part BIGINT NOT NULL, version VARCHAR(64) NOT NULL,"
    " data TEXT NOT NULL, PRIMARY KEY (stage, entry, part)",
)
_PART = 60_000
# The entry that says what the stage is; the others are tables.
_HEAD = "stage"


@dataclass(frozen=True)
class StageHead:
    """What a stage is.

    Attributes:
        stage_id: Distinguishes it from other stages that had or will have its name.
        base_snapshot: The snapshot that its verbs see, with what was staged since.
        author: Who created it.
        snapshot_id: The snapshot that it was published as.
    """

    stage_id: str
    name: str
    base_snapshot: int
    created: datetime
    expires: datetime
    author: str | None = None
    snapshot_id: int | None = None


@dataclass(frozen=True)
class StoredTable:
    """The net change of a table.

    Attributes:
        version: The id of the write that stored it.
    """

    version: str
    change: StoredChange


@dataclass(frozen=True)
class StoredStage:
    """A stage and its tables, by the keys of their names.

    Attributes:
        is_past: Whether its time is over, by the catalog's clock.
    """

    head: StageHead
    is_past: bool
    tables: Mapping[TableName, StoredTable] = field(default_factory=dict)

    @property
    def write_ids(self) -> list[str]:
        """The ids of the writes that wrote its files."""
        return [write_id for table in self.tables.values() for write_id in table.change.write_ids]

    @property
    def versions(self) -> dict[TableName, str]:
        """The version of each table."""
        return {key: table.version for key, table in self.tables.items()}

    @property
    def own_files(self) -> list[str]:
        """The paths of all files that were written for it, without those of other programs."""
        return [path for table in self.tables.values() for path in table.change.own_files]

    def has_key(self, key: str) -> bool:
        """Whether work with an idempotency key is already in it."""
        return any(key in table.change.keys for table in self.tables.values())


class StagedMeanwhileError(Exception):
    """Another task has staged a table since it was read; the work can be repeated on what it staged."""


_HEADS = TypeAdapter(StageHead)


def create_stage(config: LakeConfig, name: str, base: int, ttl: timedelta, author: str | None) -> None:
    """Create a stage, unless one with that name exists. One whose time is over gives way."""
    stage_id = uuid4().hex

    def create(transaction: MetadataTransaction) -> None:
        found = find_stage(transaction.metadata, name)
        if found is not None and not found.is_past:
            return
        now = _now(transaction.metadata)
        if found is not None:
            _delete(transaction, found)
        head = StageHead(stage_id, name, base, now, now + ttl, author)
        _store(transaction, name, _HEAD, stage_id, _text_of(head))
        lease_until(transaction, [stage_id], base, ttl, f"the stage `{name}`")

    ROWS.write(config, f"creating the stage `{name}`", create, others=[LEASES])


def find_stage(metadata: Metadata, name: str) -> StoredStage | None:
    """Return a stage; None if there is none of that name."""
    return next(_stages(metadata, f"stage = {literal(_hash(name))}"), None)


def find_stages(metadata: Metadata) -> list[StoredStage]:
    """Return all stages, oldest first."""
    return sorted(_stages(metadata, "1 = 1"), key=lambda stage: (stage.head.created, stage.head.name))


def store_changes(
    config: LakeConfig, stage: StoredStage, changes: Mapping[TableName, StoredChange | None], version: str
) -> None:
    """Store the net changes of some tables in place of those that the stage had when it was read.

    Args:
        config: The lake.
        stage: The stage as it was read.
        changes: The changes by the keys of the tables' names; None where nothing is left of one.
        version: The id of the write that stores them.

    Raises:
        StagedMeanwhileError: When another task has stored a change of one of the tables.
        TransactionClosedError: When the stage has ended.
    """
    head = stage.head

    def store(transaction: MetadataTransaction) -> None:
        now = open_stage(transaction.metadata, head).tables
        versions = {key: now[key].version if key in now else None for key in changes}
        wanted = {key: version if change is not None else None for key, change in changes.items()}
        if versions == wanted:
            return  # there is nothing to do, or the answer to an earlier COMMIT was lost
        if versions != {key: stage.tables[key].version if key in stage.tables else None for key in changes}:
            raise StagedMeanwhileError
        for key, change in changes.items():
            _store(transaction, head.name, _hash(str(key)), version, change.to_text() if change else "")
        ids = [version, *(write_id for change in changes.values() if change for write_id in change.write_ids)]
        lasts = head.expires - _now(transaction.metadata)
        lease_until(transaction, ids, head.base_snapshot, lasts, f"the stage `{head.name}`")

    ROWS.write(config, f"staging in `{head.name}`", store)


def open_stage(metadata: Metadata, head: StageHead) -> StoredStage:
    """Return a stage as it is now; refuse one that has ended."""
    found = find_stage(metadata, head.name)
    if found is None or found.head.stage_id != head.stage_id:
        raise TransactionClosedError(f"The stage `{head.name}` was discarded.", remedy="Stage the work again.")
    refuse_ended(found)
    return found


def refuse_ended(stage: StoredStage) -> None:
    """Refuse a stage that is published or past its time."""
    head = stage.head
    if head.snapshot_id is not None:
        raise TransactionClosedError(
            f"The stage `{head.name}` was published as snapshot {head.snapshot_id}.",
            remedy="Use a stage with another name.",
        )
    if stage.is_past:
        raise TransactionClosedError(
            f"The stage `{head.name}` ended at {head.expires:%Y-%m-%d %H:%M:%S} UTC.",
            remedy="Stage the work again, with a longer `ttl`.",
        )


def mark_published(transaction: MetadataTransaction, snapshot: int, stage: StoredStage) -> None:
    """Mark a stage as published in the transaction of the commit.

    Raises:
        StagedMeanwhileError: When a task has staged more than what is committed.
        TransactionClosedError: When the stage has ended.
    """
    now, head = open_stage(transaction.metadata, stage.head), stage.head
    if now.versions != stage.versions:
        raise StagedMeanwhileError
    _delete(transaction, now)
    _store(transaction, head.name, _HEAD, head.stage_id, _text_of(replace(head, snapshot_id=snapshot)))


def end_stage(config: LakeConfig, stage: StoredStage, snapshot: int) -> None:
    """Mark a stage as published whose changes a snapshot already has, or that changed nothing."""
    purpose = f"ending the stage `{stage.head.name}`"
    ROWS.write(config, purpose, lambda transaction: mark_published(transaction, snapshot, stage))


def delete_stage(config: LakeConfig, head: StageHead) -> None:
    """Delete a stage that is not published. Its files stay."""

    def delete(transaction: MetadataTransaction) -> None:
        found = find_stage(transaction.metadata, head.name)
        if found is not None and found.head == head:
            _delete(transaction, found)

    ROWS.write(config, f"discarding the stage `{head.name}`", delete)


def _stages(metadata: Metadata, condition: str) -> Iterator[StoredStage]:
    if not ROWS.table_exists(metadata):
        return
    dialect = dialect_of(metadata.config)
    columns = dialect.texts(("stage", "entry", "version", "data"))
    sql = f"select {columns} from {dialect.table(ROWS.name)} where {condition} order by stage, entry, part"
    parts: dict[str, dict[str, tuple[str, list[str]]]] = defaultdict(dict)
    for row in metadata.rows(dialect.query(sql)):
        stage, entry, version, data = (text(cell) or "" for cell in row)
        parts[stage].setdefault(entry, (version, []))[1].append(data)
    now = _now(metadata)
    for entries in parts.values():
        head = _HEADS.validate_json("".join(entries.pop(_HEAD)[1]))
        stored = [StoredTable(version, StoredChange.from_text("".join(data))) for version, data in entries.values()]
        yield StoredStage(head, head.expires <= now, {table.change.name.key: table for table in stored})


def _text_of(head: StageHead) -> str:
    return _HEADS.dump_json(head).decode()


def _store(transaction: MetadataTransaction, name: str, entry: str, version: str, data: str) -> None:
    transaction.change(ROWS.name, f"DELETE FROM {{}} WHERE stage = {literal(_hash(name))} AND entry = {literal(entry)}")
    for part, start in enumerate(range(0, len(data), _PART)):
        text_sql = transaction.dialect.typed_text(data[start : start + _PART])
        values = ", ".join([literal(_hash(name)), literal(entry), str(part), literal(version), text_sql])
        transaction.change(ROWS.name, f"INSERT INTO {{}} (stage, entry, part, version, data) VALUES ({values})")


def _delete(transaction: MetadataTransaction, stage: StoredStage) -> None:
    transaction.change(ROWS.name, f"DELETE FROM {{}} WHERE stage = {literal(_hash(stage.head.name))}")
    end_leases(transaction, [stage.head.stage_id, *stage.write_ids])


def _now(metadata: Metadata) -> datetime:
    dialect = dialect_of(metadata.config)
    rows = metadata.rows(dialect.query(f"select {dialect.now_sql()}"))
    return datetime.fromtimestamp(int(rows[0][0]) / 1e6, UTC)


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()
