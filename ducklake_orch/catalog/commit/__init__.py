"""Commit finished files as one snapshot: conflict checks, retired rows, statistics, idempotency keys.

A commit is one transaction of plain SQL on the metadata tables. The entry point is `commit_change`: it takes a
`TableChange` that says what to add and what to retire, checks it against every commit since it was planned, and writes
the snapshot.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.commit.active_writes import (
        LEASES,
        end_stage_leases,
        lease_stage,
        lease_stream,
        leased,
        read_leases,
        record_lease,
        remove_lease,
    )
    from ducklake_orch.catalog.commit.conflicts import FileState, judge_table
    from ducklake_orch.catalog.commit.consecutive_snapshots import Append, KeysCommittedError, commit_appends
    from ducklake_orch.catalog.commit.ddl import add_inlined_table
    from ducklake_orch.catalog.commit.delete_file_rows import delete_files_of_retired, insert_delete_files
    from ducklake_orch.catalog.commit.duplicate_files import refuse_known
    from ducklake_orch.catalog.commit.idempotency import (
        KEYS_TABLE,
        WHOLE_LAKE,
        check_key,
        find_key,
        has_keys,
        last_commit,
        last_commits,
        snapshot_of_key,
    )
    from ducklake_orch.catalog.commit.late_rows import inlined_versions_of
    from ducklake_orch.catalog.commit.native_commit import Closing, commit_change, commit_changes
    from ducklake_orch.catalog.commit.recording import begin_recording, end_recording, record_change, recording_of
    from ducklake_orch.catalog.commit.retire import NotAlignedError, Retired, file_states, partitions_condition
    from ducklake_orch.catalog.commit.serializable_reads import Reads
    from ducklake_orch.catalog.commit.staged_deletes import DeleteFiles, InlinedDeletes, inlined_deletes
    from ducklake_orch.catalog.commit.staged_files import PreparedFiles, prepare, stored_path
    from ducklake_orch.catalog.commit.table_change import (
        Committed,
        Everything,
        ExactRows,
        Matching,
        Partitions,
        Removal,
        Rollback,
        TableChange,
    )
    from ducklake_orch.catalog.commit.table_statistics import read_table_statistics, widen_table_statistics
    from ducklake_orch.catalog.commit.write_outcome import find_replay, partitions_written, write_result
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
