"""Names of snapshots, kept in a ducklake-orch table: expiry retains the snapshots that have one.

All commits of ducklake-orch to a catalog wait in one queue, so that no snapshot expires while it gets a name.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from ducklake_orch.catalog.metadata import Metadata, MetadataTransaction, OwnTable, read_clock, text
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.exactly_once import refuse_read_only
from ducklake_orch.engine.missing_snapshots import Retained, missing_snapshot, retained_sql
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ConfigError, HistoryExpiredError, ObjectNotFoundError
from ducklake_orch.results import Tag

# Names are compared by their hash: MySQL compares texts without regard to case. The time of the snapshot tells it from
# one of another lake that was in this catalog before.
TAGS = OwnTable(
    "ducklake_orch_tags",
    "hash VARCHAR(64) NOT NULL PRIMARY KEY, name TEXT NOT NULL, snapshot_id BIGINT NOT NULL,"
    " snapshot_time BIGINT NOT NULL, tagged_at BIGINT NOT NULL, keep_until BIGINT",
)
_LONGEST = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def put_tag(
    config: LakeConfig, name: str, snapshot: int | None, keep_until: datetime | None, *, replace: bool = False
) -> Tag:
    """Give a snapshot a name.

    Args:
        config: The lake.
        name: The name.
        snapshot: The snapshot; the latest if it is None.
        keep_until: When expiry may remove the snapshot; never if it is None.
        replace: Move the name from an earlier snapshot; a later one keeps it.

    Raises:
        ConfigError: When another snapshot has the name, or the name or time is not valid.
        SnapshotNotFoundError: When there is no such snapshot.
    """
    purpose = f"tagging a snapshot `{name}`"
    refuse_read_only(config, purpose)
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST or not name.isprintable():
        raise ConfigError(f"The name of a tag has 1 to {_LONGEST} printable characters.")
    wanted, tags = snapshot, list[Tag]()

    def put(transaction: MetadataTransaction) -> None:
        nonlocal wanted
        metadata, snapshots = transaction.metadata, transaction.metadata.table_sql("ducklake_snapshot")
        at = wanted = transaction.latest.snapshot_id if wanted is None else wanted  # the same in all attempts
        known = _find([tag for tag in read_tags(metadata) if not tag.expired], name)
        if replace and known is not None and known.snapshot_id > at:
            tags.append(known)
            return
        time = metadata.snapshot_time(at)
        if time is None:
            raise missing_snapshot(at, Retained(*metadata.rows(retained_sql(snapshots))[0]), purpose)
        now = read_clock(metadata).now
        if keep_until is not None and keep_until <= now:
            raise ConfigError(f"`keep_until` = {keep_until.isoformat()} is in the past.")
        if known is not None and known.snapshot_id != at and not replace:
            raise ConfigError(
                f"The tag `{name}` exists already, and names snapshot {known.snapshot_id}.",
                remedy="Choose another name, move this one with `replace=True`, or remove it first.",
            )
        tags.append(Tag(name, at, _time(time), now, keep_until))
        _delete(transaction, name)
        _insert(transaction, tags[-1])

    TAGS.write(config, purpose, put)
    return tags[-1]


def remove_tag(config: LakeConfig, name: str) -> None:
    """Remove the name of a snapshot.

    Raises:
        ObjectNotFoundError: When no snapshot has the name.
    """
    purpose = f"removing the tag `{name}`"
    refuse_read_only(config, purpose)
    existed = False

    def remove(transaction: MetadataTransaction) -> None:
        nonlocal existed
        tags = read_tags(transaction.metadata)
        existed = existed or _find(tags, name) is not None  # an earlier attempt may have removed it
        if not existed:
            raise _unknown(name, tags)
        _delete(transaction, name)

    TAGS.write(config, purpose, remove)


def read_tags(metadata: Metadata) -> list[Tag]:
    """Return the tags, by their snapshots and names."""
    if not TAGS.table_exists(metadata):
        return []
    dialect = metadata.dialect
    columns = dialect.texts(("name", "snapshot_id", "snapshot_time", "tagged_at", "keep_until"))
    rows = metadata.rows(dialect.query(f"select {columns} from {dialect.table(TAGS.name)}"))
    ids = ", ".join(text(row[1]) or "" for row in rows) or "NULL"
    snapshots = f"{metadata.table_sql('ducklake_snapshot')} WHERE snapshot_id IN ({ids})"
    exist = set(metadata.rows(f"SELECT snapshot_id, epoch_us(snapshot_time::TIMESTAMPTZ) FROM {snapshots}"))
    tags = []
    for row in rows:
        at, time, tagged = (int(text(cell) or 0) for cell in row[1:4])
        until = None if row[4] is None else _time(int(text(row[4]) or 0))
        tags.append(Tag(text(row[0]) or "", at, _time(time), _time(tagged), until, (at, time) not in exist))
    return sorted(tags, key=lambda tag: (tag.snapshot_id, tag.name))


def tagged_snapshot(metadata: Metadata, name: str) -> int:
    """Return the snapshot that has a name.

    Raises:
        ObjectNotFoundError: When no snapshot has the name.
        HistoryExpiredError: When that snapshot is gone.
    """
    tags = read_tags(metadata)
    if (tag := _find(tags, name)) is None:
        raise _unknown(name, tags)
    if tag.expired:
        raise HistoryExpiredError(
            f"The tag `{name}` names snapshot {tag.snapshot_id}, which has expired.",
            remedy="Expire snapshots by `maintain` only: it retains those that have a tag.",
        )
    return tag.snapshot_id


def held_snapshots(metadata: Metadata) -> frozenset[int]:
    """Return the snapshots that expiry retains because they have a tag."""
    tags = [tag for tag in read_tags(metadata) if not tag.expired]
    now = read_clock(metadata).now if any(tag.keep_until for tag in tags) else None
    return frozenset(tag.snapshot_id for tag in tags if now is None or tag.keep_until is None or tag.keep_until > now)


def remove_tags_of(transaction: MetadataTransaction, snapshots: Sequence[int]) -> None:
    """Remove the tags of snapshots, in the transaction in which these expire."""
    if TAGS.table_exists(transaction.metadata):
        transaction.change_each(TAGS.name, "DELETE FROM {} WHERE", "snapshot_id", snapshots)


def _find(tags: Sequence[Tag], name: str) -> Tag | None:
    return next((tag for tag in tags if tag.name == name), None)


def _delete(transaction: MetadataTransaction, name: str) -> None:
    transaction.change(TAGS.name, f"DELETE FROM {{}} WHERE hash = {literal(_hash(name))}")


def _insert(transaction: MetadataTransaction, tag: Tag) -> None:
    times = (tag.snapshot_time, tag.tagged_at, tag.keep_until)
    values = [literal(_hash(tag.name)), transaction.dialect.text_literal(tag.name), literal(tag.snapshot_id)]
    values += [literal(None if time is None else (time - _EPOCH) // timedelta(microseconds=1)) for time in times]
    columns = "hash, name, snapshot_id, snapshot_time, tagged_at, keep_until"
    transaction.change(TAGS.name, f"INSERT INTO {{}} ({columns}) VALUES ({', '.join(values)})")


def _unknown(name: str, tags: Sequence[Tag]) -> ObjectNotFoundError:
    known = [tag.name for tag in tags]
    return ObjectNotFoundError(
        f"There is no tag `{name}`.", remedy=nearest(name, known) if known else "The lake has no tags."
    )


def _hash(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()


def _time(microseconds: int) -> datetime:
    return _EPOCH + timedelta(microseconds=microseconds)
