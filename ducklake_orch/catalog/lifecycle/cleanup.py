"""Clean-up: delete the files that the catalog has scheduled for deletion, then remove them from the schedule.

A file that could not be deleted stays scheduled. After a crash between the two steps, the next clean-up completes them:
a file that does not exist counts as deleted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from ducklake_orch.catalog.commit import read_leases
from ducklake_orch.catalog.metadata import (
    Metadata,
    canonical,
    commit_metadata,
    paths_of_tables,
    scheduled_paths,
)
from ducklake_orch.catalog.search import planning
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.exactly_once import Write, refuse_read_only
from ducklake_orch.engine.fault_points import fault_point
from ducklake_orch.engine.session import open_session


@dataclass(frozen=True)
class Cleanup:
    """The result of a clean-up, or of its plan.

    Attributes:
        files: How many files are deleted.
        paths: Paths of these files.
        needed_by_writes: How many more are not deleted because a running write may read them.
        in_use: Scheduled files that a table still refers to. They are not deleted; fsck repairs the schedule.
        failed: Errors by path of the files that could not be deleted; they stay scheduled.
    """

    files: int
    paths: tuple[str, ...] = field(repr=False)
    needed_by_writes: int
    in_use: tuple[str, ...]
    failed: Mapping[str, str] = field(default_factory=dict)


def plan_cleanup(metadata: Metadata, before: datetime) -> Cleanup:
    """Return what a clean-up would delete, without changing anything.

    Args:
        metadata: The metadata tables.
        before: Only files that were scheduled before this time.
    """
    found = _find(metadata, before)
    return Cleanup(len(found.to_delete), tuple(found.to_delete.values()), found.needed_by_writes, found.in_use)


def clean_up(config: LakeConfig, before: datetime, *, only: Collection[str] | None = None) -> Cleanup:
    """Delete files that were scheduled before a time.

    Args:
        config: The lake.
        before: The time.
        only: Delete no files but these, for example those that a plan has shown.
    """
    purpose = "cleaning up old files"
    refuse_read_only(config, purpose)
    with planning(config, purpose) as metadata:
        found = _find(metadata, before)
    to_delete = {number: path for number, path in found.to_delete.items() if only is None or path in only}
    failed = delete_files(config, list(to_delete.values()))
    fault_point("files.deleted")
    deleted = {number: path for number, path in to_delete.items() if path not in failed}
    if deleted:
        with open_session(config, entering=False) as session:
            commit_metadata(
                session,
                Write(purpose, marked=False, repeatable=True),
                lambda transaction: transaction.change_each(
                    "ducklake_files_scheduled_for_deletion", "DELETE FROM {} WHERE", "data_file_id", list(deleted)
                ),
            )
    return Cleanup(len(deleted), tuple(deleted.values()), found.needed_by_writes, found.in_use, failed)


@dataclass(frozen=True)
class _Found:
    """The files to delete, by id, and those that must not be deleted."""

    to_delete: dict[int, str]
    needed_by_writes: int
    in_use: tuple[str, ...]


def _find(metadata: Metadata, before: datetime) -> _Found:
    scheduled, root, needed_by_writes = scheduled_paths(metadata, before), metadata.data_path(), 0
    since = read_leases(metadata).needed_since
    if since is not None and since < before:
        unneeded = scheduled_paths(metadata, since)
        scheduled, needed_by_writes = unneeded, len(scheduled) - len(unneeded)
    names = {path.rpartition("/")[2] for path in scheduled.values()}
    known = {canonical(path, root) for path in paths_of_tables(metadata, names)} if names else set()
    to_delete = {number: path for number, path in scheduled.items() if not known or canonical(path, root) not in known}
    return _Found(
        to_delete, needed_by_writes, tuple(path for number, path in scheduled.items() if number not in to_delete)
    )
