"""Run the repairs: while holding the catalog's queue, in one transaction, as one snapshot."""

from collections.abc import Mapping

from ducklake_orch.catalog.fsck.local_copy import LocalCopy, copy_metadata
from ducklake_orch.catalog.fsck.repair_context import RepairContext
from ducklake_orch.catalog.fsck.repair_list import REPAIRS
from ducklake_orch.catalog.fsck.repairs import Repair, Rows
from ducklake_orch.catalog.metadata import NOW, MetadataTransaction, commit_metadata, format_tokens
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.quoting import literal
from ducklake_orch.engine.session import open_session
from ducklake_orch.results import CommitInfo

# The codes of states that clients reload only when the schema version changes.
_SHAPES = {"schema-version-not-bumped", "inlined-table-of-former-columns"}


def query_files(copy: LocalCopy) -> dict[str, Rows]:
    """Return the results of the queries that need files or the storage, by the first code of each repair."""
    return {repair.codes[0]: _query(copy, repair) for repair in REPAIRS if repair.from_files}


def run_repairs(config: LakeConfig, known: Mapping[str, Rows]) -> int | None:
    """Repair what can be repaired; return the id of the snapshot, or None if there was nothing to repair.

    Args:
        config: The lake.
        known: The results of the queries that need files or the storage.
    """
    with open_session(config, entering=False) as session:
        if (statement := dialect_of(config).cache_reset) is not None:
            # A catalog that was attached earlier may not show newer tables.
            session.instance.root.execute(statement)
        write = Write("repairing the lake", CommitInfo(message="ducklake-orch fsck --repair"))
        return commit_metadata(session, write, lambda transaction: _repair(transaction, write, known))


def _repair(transaction: MetadataTransaction, write: Write, known: Mapping[str, Rows]) -> int | None:
    copy = copy_metadata(transaction.con, transaction.config)
    todo = {repair: rows for repair in REPAIRS if (rows := _rows(copy, repair, known))}
    if not todo or _cannot_commit(copy):
        return None
    snapshot = transaction.latest.snapshot_id + 1
    files = sum(len(rows) for repair, rows in todo.items() if repair.folds)
    first_file = _add_snapshot(transaction, copy, snapshot, files, todo)
    context = RepairContext(transaction, copy, write.write_id, first_file)
    for repair in REPAIRS:
        # Query again: an earlier repair may have changed the result.
        if rows := _rows(copy, repair, known):
            repair.apply(context, rows)
    row = {"snapshot_id": snapshot, "changes_made": format_tokens(context.tokens), "author": write.info.author}
    row |= {"commit_message": write.info.message, "commit_extra_info": write.extra}
    transaction.insert_row("ducklake_snapshot_changes", row)
    return snapshot


def _rows(copy: LocalCopy, repair: Repair, known: Mapping[str, Rows]) -> Rows:
    return known.get(repair.codes[0], ()) if repair.from_files else _query(copy, repair)


def _query(copy: LocalCopy, repair: Repair) -> Rows:
    return copy.con.execute(repair.query.replace("{data_path}", literal(copy.data_path))).fetchall()


def _cannot_commit(copy: LocalCopy) -> bool:
    """Return whether catalog rows refer to a future snapshot: the repair's own snapshot would put them into effect."""
    return copy.count("life, latest WHERE greatest(life.begin_snapshot, life.end_snapshot) > latest.snapshot_id") > 0


def _add_snapshot(
    transaction: MetadataTransaction, copy: LocalCopy, snapshot: int, files: int, todo: Mapping[Repair, Rows]
) -> int:
    """Insert the snapshot, with counters above every id in use; return the id of the first new file.

    The primary key makes a concurrent commit fail that does not use the queue. The counters tell clients that their
    cached state is out of date.
    """
    latest = transaction.latest
    first_file = max(latest.next_file_id, copy.number("SELECT max(id) + 1 FROM file_number"))
    version = max(latest.schema_version, copy.number("SELECT max(schema_version) FROM ducklake_schema_versions"))
    changed = any(_SHAPES.intersection(repair.codes) for repair in todo)
    row = {"snapshot_id": snapshot, "snapshot_time": NOW, "schema_version": version + int(changed)}
    row |= {"next_catalog_id": max(latest.next_catalog_id, copy.number("SELECT max(id) + 1 FROM catalog_number"))}
    transaction.insert_row("ducklake_snapshot", row | {"next_file_id": first_file + max(files, 1)})
    return first_file
