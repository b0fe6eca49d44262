"""Expire snapshots: remove them from the catalog, with everything that no retained snapshot can see.

This removes the same catalog rows as the engine's own expiry, but it also runs on MySQL and can retain snapshots in the
middle. Files are only scheduled for deletion; clean-up deletes them later, when no reader needs them any more.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fnmatch import fnmatchcase
from itertools import pairwise

from ducklake_orch.catalog.commit import read_leases, stored_path
from ducklake_orch.catalog.lifecycle.table_retention import needed_by_tables
from ducklake_orch.catalog.lifecycle.tags import held_snapshots, remove_tags_of
from ducklake_orch.catalog.metadata import (
    NOW,
    Metadata,
    MetadataTransaction,
    Relation,
    absolute_paths,
    commit_metadata,
    table_folders,
    tables_with_ended_rows,
    text,
)
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.exactly_once import Write, refuse_read_only
from ducklake_orch.engine.session import open_session

SCHEDULED = {"data_file_id": "BIGINT", "path": "VARCHAR", "path_is_relative": "BOOLEAN"}
# The metadata tables that hold rows about tables, besides those about files.
_OF_TABLES = (
    *("ducklake_table", "ducklake_table_stats", "ducklake_table_column_stats", "ducklake_partition_info"),
    *("ducklake_partition_column", "ducklake_column", "ducklake_column_tag", "ducklake_sort_info"),
    *("ducklake_sort_expression", "ducklake_schema_versions", "ducklake_inlined_data_tables"),
    "ducklake_column_mapping",
)
_OF_FILES = (
    *("ducklake_data_file", "ducklake_file_column_stats", "ducklake_file_variant_stats"),
    "ducklake_file_partition_value",
)
_GAPS_IN_ONE_CONDITION = 1000
# The tables of inlined rows and of deletions of a table, with its id.
_INLINED = re.compile(r"ducklake_inlined_(?:data|delete)_(\d+)(?:_\d+)?")


@dataclass(frozen=True)
class Retention:
    """Which snapshots to retain. The latest one, those with a tag and those that running writes need always stay.

    Attributes:
        before: Retain snapshots that were committed at this time or later.
        retain_last: Retain this many of the newest snapshots, however old they are.
        keep: Retain snapshots whose message or author matches one of these patterns (`release *`).
        tables: When the history of tables begins that must be readable, by name or pattern; the last match counts.
    """

    before: datetime
    retain_last: int = 1
    keep: tuple[str, ...] = ()
    tables: tuple[tuple[str, datetime], ...] = ()


@dataclass(frozen=True)
class Expiry:
    """The result of an expiry, or of its plan.

    Attributes:
        snapshots: The snapshots that expire.
        kept: How many snapshots are retained.
        needed_by_writes: How many of these are retained only because a running write needs them.
        needed_by: The write that needs the oldest of these, and who runs it.
        tagged: How many are retained only because they have a tag.
        needed_by_tables: How many are retained only because of the retention of some tables.
        tables: Ids of dropped tables that no retained snapshot contains.
        data_files: How many data files no retained snapshot can see.
        delete_files: How many delete files no retained snapshot can see.
        rows: How many rows these data files hold.
        bytes: Size of all these files; clean-up frees it.
        paths: Absolute paths of these files.
    """

    snapshots: tuple[int, ...]
    kept: int
    needed_by_writes: int
    needed_by: str | None
    tagged: int
    needed_by_tables: int
    tables: tuple[int, ...] = ()
    data_files: int = 0
    delete_files: int = 0
    rows: int = 0
    bytes: int = 0
    paths: tuple[str, ...] = field(default=(), repr=False)


def plan_expire(metadata: Metadata, retention: Retention) -> Expiry:
    """Return what an expiry would remove, without changing anything."""
    return _find(metadata, retention, None).expiry


def expirable(metadata: Metadata, retention: Retention) -> Sequence[int]:
    """Return the snapshots that an expiry would remove."""
    return _snapshots(metadata, retention, None)[0].snapshots


def expire(config: LakeConfig, retention: Retention, *, only: Collection[int] | None = None) -> Expiry:
    """Expire snapshots.

    Args:
        config: The lake.
        retention: Which snapshots to retain.
        only: Expire no snapshots but these, for example those that a plan has shown.
    """
    purpose = "expiring snapshots"
    refuse_read_only(config, purpose)
    # A second run finds nothing left to do, so a retry needs no mark.
    write = Write(purpose, marked=False, repeatable=True)

    def work(transaction: MetadataTransaction) -> Expiry:
        found = _find(transaction.metadata, retention, only)
        for name in _left_behind(transaction):
            transaction.drop(name)
        if found.expiry.snapshots:
            _remove(transaction, found)
        return found.expiry

    with open_session(config, entering=False) as session:
        return commit_metadata(session, write, work)


@dataclass(frozen=True)
class _Found:
    """What to remove, by id.

    Attributes:
        unseen: Conditions for rows that no retained snapshot sees. A row is unseen if any of them holds.
    """

    expiry: Expiry
    unseen: Sequence[str] = ()
    files: Mapping[int, str] = field(default_factory=dict)
    delete_files: Mapping[int, str] = field(default_factory=dict)


def _find(metadata: Metadata, retention: Retention, only: Collection[int] | None) -> _Found:
    plan, retained = _snapshots(metadata, retention, only)
    if not plan.snapshots:
        return _Found(plan)
    unseen = list(_unseen(retained))
    is_unseen = f"coalesce({' OR '.join(unseen)}, false)"
    name = metadata.table_sql
    tables = [
        int(row[0])
        for row in metadata.rows(
            f"SELECT table_id FROM {name('ducklake_table')} GROUP BY table_id HAVING bool_and({is_unseen})"
        )
    ]
    folders = table_folders(metadata)
    condition = f"table_id IN ({_list(tables)}) OR {is_unseen}"
    files = metadata.rows(
        f"SELECT data_file_id, table_id, path, path_is_relative, file_size_bytes, record_count"
        f" FROM {name('ducklake_data_file')} WHERE {condition} ORDER BY data_file_id"
    )
    ended_files = f"SELECT data_file_id FROM {name('ducklake_data_file')} WHERE {condition}"
    deletes = metadata.rows(
        f"SELECT delete_file_id, table_id, path, path_is_relative, file_size_bytes"
        f" FROM {name('ducklake_delete_file')} WHERE {condition} OR data_file_id IN ({ended_files})"
        " ORDER BY delete_file_id"
    )
    data_paths, delete_paths = absolute_paths(files, folders), absolute_paths(deletes, folders)
    expiry = replace(
        plan,
        tables=tuple(tables),
        data_files=len(files),
        delete_files=len(deletes),
        rows=sum(int(row[5]) for row in files),
        bytes=sum(int(row[4]) for row in [*files, *deletes]),
        paths=(*data_paths.values(), *delete_paths.values()),
    )
    return _Found(expiry, unseen, data_paths, delete_paths)


def _snapshots(metadata: Metadata, retention: Retention, only: Collection[int] | None) -> tuple[Expiry, Sequence[int]]:
    """Return the plan with the snapshots that expire, and the snapshots that are retained."""
    names = ", c.author, c.commit_message" if retention.keep else ""
    join = f"LEFT JOIN {metadata.table_sql('ducklake_snapshot_changes')} c USING (snapshot_id)" if names else ""
    rows = metadata.rows(
        f"SELECT snapshot_id, epoch_us(s.snapshot_time::TIMESTAMPTZ){names}"
        f" FROM {metadata.table_sql('ducklake_snapshot')} s {join} ORDER BY snapshot_id"
    )
    newest = len(rows) - max(retention.retain_last, 1)
    # Snapshot times are whole microseconds in every catalog.
    limit = retention.before.timestamp()
    times = [(int(number), int(time) / 1_000_000) for number, time, *_ in rows]
    of_tables = needed_by_tables(metadata, retention.tables, times) if retention.tables else set()
    oldest, held = read_leases(metadata).oldest, held_snapshots(metadata)
    expiring, retained, counts = list[int](), list[int](), Counter[str]()
    for index, ((number, time), (_, _, *texts)) in enumerate(zip(times, rows, strict=True)):
        is_retained = (
            index >= newest
            or time >= limit
            or (only is not None and number not in only)
            or any(fnmatchcase(text(value) or "", pattern) for value in texts for pattern in retention.keep)
        )
        if not is_retained:
            needs = {
                "write": oldest is not None and number >= oldest.snapshot_id,
                "tag": number in held,
                "table": number in of_tables,
            }
            if (reason := next((reason for reason, holds in needs.items() if holds), None)) is not None:
                counts[reason] += 1
                is_retained = True
        (retained if is_retained else expiring).append(number)
    plan = Expiry(
        snapshots=tuple(expiring),
        kept=len(retained),
        needed_by_writes=counts["write"],
        needed_by=oldest.owner if oldest and counts["write"] else None,
        tagged=counts["tag"],
        needed_by_tables=counts["table"],
    )
    return plan, retained


def _unseen(retained: Sequence[int]) -> Iterator[str]:
    """Return the conditions for rows that began and ended between two retained snapshots."""
    gaps = [(before, after) for before, after in pairwise([-1, *retained]) if after > before + 1]
    for start in range(0, len(gaps), _GAPS_IN_ONE_CONDITION):
        batch = gaps[start : start + _GAPS_IN_ONE_CONDITION]
        yield " OR ".join(f"(begin_snapshot > {before} AND end_snapshot <= {after})" for before, after in batch)
    yield "begin_snapshot >= end_snapshot"


def _remove(transaction: MetadataTransaction, found: _Found) -> None:
    metadata, tables = transaction.metadata, found.expiry.tables
    snapshots, files, deletes = found.expiry.snapshots, list(found.files), list(found.delete_files)
    # Queried before anything is deleted.
    inlined = _inlined_tables(metadata, tables)
    mappings = _ids(metadata, "mapping_id", "ducklake_column_mapping", f"table_id IN ({_list(tables)})")
    is_unseen = f"coalesce({' OR '.join(found.unseen)}, false)"
    macros = _ids(metadata, "macro_id", "ducklake_macro", f"true GROUP BY macro_id HAVING bool_and({is_unseen})")

    for name in ("ducklake_snapshot", "ducklake_snapshot_changes"):
        transaction.change_each(name, "DELETE FROM {} WHERE", "snapshot_id", snapshots)
    remove_tags_of(transaction, snapshots)
    for name in _OF_FILES:
        transaction.change_each(name, "DELETE FROM {} WHERE", "data_file_id", files)
    transaction.change_each("ducklake_delete_file", "DELETE FROM {} WHERE", "delete_file_id", deletes)
    schedule(transaction, [*found.files.items(), *found.delete_files.items()])
    for name in _OF_TABLES:
        transaction.change_each(name, "DELETE FROM {} WHERE", "table_id", tables)
    transaction.change_each("ducklake_name_mapping", "DELETE FROM {} WHERE", "mapping_id", mappings)
    for name in ("ducklake_schema", "ducklake_view", "ducklake_tag", "ducklake_macro"):
        for condition in found.unseen:
            transaction.change(name, f"DELETE FROM {{}} WHERE {condition}")
    for table in tables_with_ended_rows(metadata):
        for condition in found.unseen:
            transaction.change(table, f"DELETE FROM {{}} WHERE {condition}")
    for name in ("ducklake_macro_impl", "ducklake_macro_parameters"):
        transaction.change_each(name, "DELETE FROM {} WHERE", "macro_id", macros)
    for name in inlined:
        transaction.drop(name)


def schedule(transaction: MetadataTransaction, files: Sequence[tuple[int, str]]) -> None:
    """Schedule files for deletion, given as ids with absolute paths."""
    root = transaction.metadata.data_path()
    rows = [(number, *stored_path(path, root)) for number, path in files]
    transaction.insert(
        "ducklake_files_scheduled_for_deletion", Relation.of(SCHEDULED, rows), constants={"schedule_start": NOW}
    )


def _inlined_tables(metadata: Metadata, tables: Sequence[int]) -> list[str]:
    """Return the names of the metadata tables with inlined rows and inlined deletions of some tables."""
    registry = metadata.table_sql("ducklake_inlined_data_tables")
    rows = metadata.rows(f"SELECT table_name FROM {registry} WHERE table_id IN ({_list(tables)})")
    return [*(text(row[0]) or "" for row in rows), *(f"ducklake_inlined_delete_{table}" for table in tables)]


def _left_behind(transaction: MetadataTransaction) -> list[str]:
    """Return the names of the metadata tables of expired tables that an earlier expiry could not drop."""
    metadata, dialect = transaction.metadata, transaction.dialect
    if not dialect.is_server:
        return []
    known = set(_ids(metadata, "table_id", "ducklake_table", "true"))
    found = [(name, _INLINED.fullmatch(name)) for name in dialect.names(metadata.con, "ducklake_inlined_d")]
    # A table that is being created has a higher id than all others.
    past = range(transaction.latest.next_catalog_id)
    return [name for name, match in found if match and int(match[1]) in past and int(match[1]) not in known]


def _ids(metadata: Metadata, column: str, table: str, condition: str) -> list[int]:
    rows = metadata.rows(f"SELECT {column} FROM {metadata.table_sql(table)} WHERE {condition}")
    return [int(row[0]) for row in rows]


def _list(ids: Sequence[int]) -> str:
    return ", ".join(map(str, ids)) or "NULL"
