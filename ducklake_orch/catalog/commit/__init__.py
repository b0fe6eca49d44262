"""Commit finished files as one snapshot: conflict checks, retired rows, statistics, idempotency keys.

A commit is one transaction of plain SQL on the metadata tables. The entry point is `commit_change`: it takes a
`TableChange` that says what to add and what to retire, checks it against every commit since it was planned, and writes
the snapshot.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.commit.active_writes import pin as pin
    from ducklake_orch.catalog.commit.active_writes import pinned as pinned
    from ducklake_orch.catalog.commit.active_writes import read_pins as read_pins
    from ducklake_orch.catalog.commit.active_writes import unpin as unpin
    from ducklake_orch.catalog.commit.conflicts import FileState as FileState
    from ducklake_orch.catalog.commit.conflicts import judge_table as judge_table
    from ducklake_orch.catalog.commit.ddl import add_inlined_table as add_inlined_table
    from ducklake_orch.catalog.commit.delete_file_rows import delete_files_of_retired as delete_files_of_retired
    from ducklake_orch.catalog.commit.delete_file_rows import insert_delete_files as insert_delete_files
    from ducklake_orch.catalog.commit.duplicate_files import refuse_known as refuse_known
    from ducklake_orch.catalog.commit.idempotency import KEYS_TABLE as KEYS_TABLE
    from ducklake_orch.catalog.commit.idempotency import check_key as check_key
    from ducklake_orch.catalog.commit.idempotency import has_keys as has_keys
    from ducklake_orch.catalog.commit.idempotency import last_commits as last_commits
    from ducklake_orch.catalog.commit.idempotency import snapshot_of_key as snapshot_of_key
    from ducklake_orch.catalog.commit.native_commit import commit_change as commit_change
    from ducklake_orch.catalog.commit.retire import NotAlignedError as NotAlignedError
    from ducklake_orch.catalog.commit.retire import Retired as Retired
    from ducklake_orch.catalog.commit.retire import file_states as file_states
    from ducklake_orch.catalog.commit.retire import partitions_condition as partitions_condition
    from ducklake_orch.catalog.commit.staged_deletes import DeleteFiles as DeleteFiles
    from ducklake_orch.catalog.commit.staged_deletes import InlinedDeletes as InlinedDeletes
    from ducklake_orch.catalog.commit.staged_deletes import inlined_deletes as inlined_deletes
    from ducklake_orch.catalog.commit.staged_files import PreparedFiles as PreparedFiles
    from ducklake_orch.catalog.commit.staged_files import prepare as prepare
    from ducklake_orch.catalog.commit.staged_files import stored_path as stored_path
    from ducklake_orch.catalog.commit.table_change import Committed as Committed
    from ducklake_orch.catalog.commit.table_change import Everything as Everything
    from ducklake_orch.catalog.commit.table_change import ExactRows as ExactRows
    from ducklake_orch.catalog.commit.table_change import Matching as Matching
    from ducklake_orch.catalog.commit.table_change import Partitions as Partitions
    from ducklake_orch.catalog.commit.table_change import Removal as Removal
    from ducklake_orch.catalog.commit.table_change import Rollback as Rollback
    from ducklake_orch.catalog.commit.table_change import TableChange as TableChange
    from ducklake_orch.catalog.commit.table_statistics import widen_table_statistics as widen_table_statistics
    from ducklake_orch.catalog.commit.write_outcome import find_replay as find_replay
    from ducklake_orch.catalog.commit.write_outcome import partitions_written as partitions_written
    from ducklake_orch.catalog.commit.write_outcome import write_result as write_result
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "active_writes": ["pin", "pinned", "read_pins", "unpin"],
            "conflicts": ["FileState", "judge_table"],
            "ddl": ["add_inlined_table"],
            "delete_file_rows": ["delete_files_of_retired", "insert_delete_files"],
            "duplicate_files": ["refuse_known"],
            "idempotency": ["KEYS_TABLE", "check_key", "has_keys", "last_commits", "snapshot_of_key"],
            "native_commit": ["commit_change"],
            "retire": ["NotAlignedError", "Retired", "file_states", "partitions_condition"],
            "staged_deletes": ["DeleteFiles", "InlinedDeletes", "inlined_deletes"],
            "staged_files": ["PreparedFiles", "prepare", "stored_path"],
            "table_change": [
                "Committed",
                "Everything",
                "ExactRows",
                "Matching",
                "Partitions",
                "Removal",
                "Rollback",
                "TableChange",
            ],
            "table_statistics": ["widen_table_statistics"],
            "write_outcome": ["find_replay", "partitions_written", "write_result"],
        },
    )
