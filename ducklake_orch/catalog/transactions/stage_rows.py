"""Keep stages in a ducklake-orch table: what each stage is, the net change of each table, and who staged it.

Every change of a stage rewrites its first row, so that of two changes at the same time one fails, even of writers that
do not see each other in the lake's queue. A net change is stored only if no other task has stored one of the same table
since it was read, so that a task never overwrites what another task staged.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import uuid4

from ducklake_orch.catalog.commit import LEASES, end_stage_leases, lease_stage
from ducklake_orch.catalog.metadata import Metadata, MetadataTransaction, OwnTable, text
from ducklake_orch.catalog.transactions.stored_change import StoredChange
from ducklake_orch.catalog.transactions.stored_stage import (
    StageHead,
    StoredStage,
    StoredTable,
    StoredWork,
    damaged_stage,
    hash_of,
    head_of,
    text_of,
    work_of,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import TableName, literal
from ducklake_orch.errors import TransactionClosedError

# Each text is stored in parts, because MySQL's TEXT has at most 65,535 bytes.
ROWS = OwnTable(
    "ducklake_orch_stages",
    "stage VARCHAR(64) NOT NULL, entry VARCHAR(64) NOT NULL, part BIGINT NOT NULL, version VARCHAR(64) NOT NULL,"
    " data TEXT NOT NULL, PRIMARY KEY (stage, entry, part)",
)
_PART = 60_000
# The entry that says what the stage is, and the beginning of those that say who staged what; the others are tables.
_HEAD, _WORK = "stage", "work "
# The lease of a stage outlasts it, for a task that publishes it at the last moment.
_LONGER = timedelta(days=1)


class StagedMeanwhileError(Exception):
    """Another task has staged a table since it was read; the work can be repeated on what it staged."""


class StagedBeforeError(Exception):
    """Work with the same idempotency key is staged already."""


def create_stage(config: LakeConfig, name: str, ttl: timedelta, author: str | None) -> None:
    """Create a stage that begins from the latest snapshot, unless one with that name exists."""
    stage_id = uuid4().hex

    def create(transaction: MetadataTransaction) -> None:
        if find_stage(transaction.metadata, name) is not None:
            return
        now, lake = _now(transaction.metadata), transaction.metadata.lake_mark()
        base = transaction.latest.snapshot_id
        _delete(transaction, name)  # a lake that was here before may have left one
        head = StageHead(stage_id, lake, name, base, now, now + ttl, author)
        _store_head(transaction, head, stage_id)
        _lease(transaction, head, [])

    ROWS.write(config, f"creating the stage `{name}`", create, others=[LEASES])


def find_stage(metadata: Metadata, name: str) -> StoredStage | None:
    """Return a stage; None if there is none of that name."""
    return next(_stages(metadata, f"stage = {literal(hash_of(name))}"), None)


def find_stages(metadata: Metadata) -> list[StoredStage]:
    """Return all stages, oldest first."""
    return sorted(_stages(metadata, "1 = 1"), key=lambda stage: (stage.head.created, stage.head.name))


def tables_in_use(metadata: Metadata) -> dict[int, str]:
    """Return the ids of tables whose rows must stay in their files, because stages remove some, and these stages."""
    return {
        table.change.target.table_id: stage.head.name
        for stage in find_stages(metadata)
        if stage.head.snapshot_id is None and not stage.is_past
        for table in stage.tables.values()
        if _needs_files(metadata, table.change)
    }


def _needs_files(metadata: Metadata, change: StoredChange) -> bool:
    """Return whether a change cannot be done any more once maintenance has moved rows to other files."""
    if change.removal is None or change.removal.kind == "everything":
        return False
    if change.removal.kind != "partitions":
        return True
    # Only files of the current partition keys stay whole partitions when they are merged.
    keys = change.target.partition.partition_id if change.target.partition else None
    other = f"end_snapshot IS NULL AND partition_id IS DISTINCT FROM {literal(keys)}"
    files = f"{metadata.table_sql('ducklake_data_file')} WHERE table_id = {change.target.table_id}"
    return bool(metadata.rows(f"SELECT 1 FROM {files} AND {other} LIMIT 1"))


def store_changes(
    config: LakeConfig,
    stage: StoredStage,
    changes: Mapping[TableName, StoredChange | None],
    work: StoredWork,
    write: Write,
) -> None:
    """Store the net changes of some tables in place of those that the stage had when it was read.

    Args:
        config: The lake.
        stage: The stage as it was read.
        changes: The changes by the keys of the tables' names; None where nothing is left of one.
        work: Who stores them.
        write: Tells the caller whether the outcome is known.

    Raises:
        StagedMeanwhileError: When another task has stored a change of one of the tables.
        StagedBeforeError: When work with the same key is stored, and the work replays.
        TransactionClosedError: When the stage has ended.
    """
    head = stage.head

    def store(transaction: MetadataTransaction) -> None:
        found = _same_stage(transaction.metadata, head)
        if found is not None and work.write_id in found.keys:
            return  # the answer to an earlier COMMIT was lost
        now = open_stage(transaction.metadata, head)
        if work.replays and work.key is not None and work.key in now.keys.values():
            raise StagedBeforeError
        if now.versions(changes) != stage.versions(changes):
            raise StagedMeanwhileError
        for key, change in changes.items():
            _store(transaction, head.name, hash_of(str(key)), work.write_id, text_of(change) if change else "")
        _store(transaction, head.name, f"{_WORK}{work.write_id}", work.write_id, text_of(work))
        _store_head(transaction, head, work.write_id)
        _lease(transaction, head, work.write_ids)

    ROWS.write(config, write.purpose, store, write=write)


def open_stage(metadata: Metadata, head: StageHead) -> StoredStage:
    """Return a stage as it is now; refuse one that has ended."""
    if (found := _same_stage(metadata, head)) is None:
        raise TransactionClosedError(f"The stage `{head.name}` was discarded.", remedy="Stage the work again.")
    refuse_ended(found)
    return found


def _same_stage(metadata: Metadata, head: StageHead) -> StoredStage | None:
    """Return a stage as it is now; None if it is gone, also if another one has its name."""
    found = find_stage(metadata, head.name)
    return found if found is not None and found.head.stage_id == head.stage_id else None


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


def mark_published(
    transaction: MetadataTransaction, snapshot: int, stage: StoredStage, previous: int | None = None
) -> None:
    """Mark a stage as published in the transaction of the commit.

    Args:
        transaction: The commit.
        snapshot: The snapshot.
        stage: The stage.
        previous: The snapshot before it; by default the one with the id before.

    Raises:
        StagedMeanwhileError: When a task has staged more than what is committed.
        TransactionClosedError: When the stage has ended.
    """
    now = open_stage(transaction.metadata, stage.head)
    if now.version != stage.version:
        raise StagedMeanwhileError
    _delete(transaction, now.head.name)
    _end_leases(transaction, now)
    before = snapshot - 1 if previous is None else previous
    tables = tuple(now.summaries)
    head = replace(now.head, snapshot_id=snapshot, previous_snapshot=before, published=now.keys, tables=tables)
    _store_head(transaction, head, f"published {snapshot}")


def end_stage(config: LakeConfig, stage: StoredStage, snapshot: int, previous: int) -> None:
    """Mark a stage as published whose changes the lake already has, or that changes nothing."""

    def end(transaction: MetadataTransaction) -> None:
        found = _same_stage(transaction.metadata, stage.head)
        if found is None or found.head.snapshot_id is None:
            mark_published(transaction, snapshot, stage, previous)

    ROWS.write(config, f"ending the stage `{stage.head.name}`", end)


def delete_stage(config: LakeConfig, head: StageHead) -> StoredStage | None:
    """Delete a stage, and return it if it was not published; its files stay.

    One that is published is only deleted when its time is over.
    """
    deleted: list[StoredStage] = []

    def delete(transaction: MetadataTransaction) -> None:
        if (found := _same_stage(transaction.metadata, head)) is None:
            return  # after a lost answer, an earlier attempt may have deleted it
        is_open = found.head.snapshot_id is None
        deleted[:] = [found] if is_open else []
        if is_open or found.is_past:
            _delete(transaction, head.name)
            _end_leases(transaction, found)

    ROWS.write(config, f"discarding the stage `{head.name}`", delete)
    return deleted[0] if deleted else None


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
    now, lake = _now(metadata), metadata.lake_mark()
    for entries in parts.values():
        if _HEAD not in entries:
            raise damaged_stage("its first row is missing")
        version, written = entries.pop(_HEAD)
        head = head_of("".join(written))
        if head.lake != lake:
            continue
        works, tables = {}, {}
        for entry, (stored_by, written) in entries.items():
            if entry.startswith(_WORK):
                works[stored_by] = work_of("".join(written))
            else:
                tables[entry] = StoredTable(stored_by, "".join(written))
        yield StoredStage(head, version, head.expires <= now, tables, works)


def _store_head(transaction: MetadataTransaction, head: StageHead, version: str) -> None:
    _store(transaction, head.name, _HEAD, version, text_of(head))


def _store(transaction: MetadataTransaction, name: str, entry: str, version: str, data: str) -> None:
    transaction.change(
        ROWS.name, f"DELETE FROM {{}} WHERE stage = {literal(hash_of(name))} AND entry = {literal(entry)}"
    )
    for part, start in enumerate(range(0, len(data), _PART)):
        text_sql = transaction.dialect.typed_text(data[start : start + _PART])
        values = ", ".join([literal(hash_of(name)), literal(entry), str(part), literal(version), text_sql])
        transaction.change(ROWS.name, f"INSERT INTO {{}} (stage, entry, part, version, data) VALUES ({values})")


def _delete(transaction: MetadataTransaction, name: str) -> None:
    transaction.change(ROWS.name, f"DELETE FROM {{}} WHERE stage = {literal(hash_of(name))}")


def _lease(transaction: MetadataTransaction, head: StageHead, write_ids: Sequence[str]) -> None:
    lapses, purpose = head.expires + _LONGER, f"the stage `{head.name}`"
    lease_stage(transaction, head.stage_id, write_ids, head.base_snapshot, head.created, lapses, purpose)


def _end_leases(transaction: MetadataTransaction, stage: StoredStage) -> None:
    written = [write_id for work in stage.works.values() for write_id in work.write_ids]
    end_stage_leases(transaction, stage.head.stage_id, written)


def _now(metadata: Metadata) -> datetime:
    dialect = dialect_of(metadata.config)
    rows = metadata.rows(dialect.query(f"select {dialect.now_sql()}"))
    return datetime.fromtimestamp(int(rows[0][0]) / 1e6, UTC)
