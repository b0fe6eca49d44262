"""Plan a read: which data files, delete files and inlined rows make up a table at a snapshot.

DuckDB parses the condition of a read. This package turns it into conditions on statistics and partition values, and
prunes files with them in one query on the catalog. The entry point is `plan_scan`. Summaries of tables use the same
pruning.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.scan.arrow_reader import Selection as Selection
    from ducklake_orch.catalog.scan.arrow_reader import read_arrow as read_arrow
    from ducklake_orch.catalog.scan.arrow_reader import read_batches as read_batches
    from ducklake_orch.catalog.scan.live_files import DELETE_FILE as DELETE_FILE
    from ducklake_orch.catalog.scan.live_files import FILE as FILE
    from ducklake_orch.catalog.scan.live_files import LiveFiles as LiveFiles
    from ducklake_orch.catalog.scan.live_files import data_file as data_file
    from ducklake_orch.catalog.scan.live_files import delete_file as delete_file
    from ducklake_orch.catalog.scan.live_files import next_file_id as next_file_id
    from ducklake_orch.catalog.scan.predicate import COMPARISONS as COMPARISONS
    from ducklake_orch.catalog.scan.predicate import Node as Node
    from ducklake_orch.catalog.scan.predicate import Predicate as Predicate
    from ducklake_orch.catalog.scan.predicate import changing_function as changing_function
    from ducklake_orch.catalog.scan.predicate import parse_predicate as parse_predicate
    from ducklake_orch.catalog.scan.predicate import parse_value as parse_value
    from ducklake_orch.catalog.scan.predicate import refuse_changing as refuse_changing
    from ducklake_orch.catalog.scan.scan_plan import ScanPlan as ScanPlan
    from ducklake_orch.catalog.scan.scan_plan import choose as choose
    from ducklake_orch.catalog.scan.scan_plan import classify as classify
    from ducklake_orch.catalog.scan.scan_plan import count as count
    from ducklake_orch.catalog.scan.scan_plan import inlined_positions as inlined_positions
    from ducklake_orch.catalog.scan.scan_plan import name_mappings as name_mappings
    from ducklake_orch.catalog.scan.scan_plan import plan_scan as plan_scan
    from ducklake_orch.catalog.scan.table_summary import reading_table as reading_table
    from ducklake_orch.catalog.scan.table_summary import snapshot_of as snapshot_of
    from ducklake_orch.catalog.scan.table_summary import table_columns as table_columns
    from ducklake_orch.catalog.scan.table_summary import table_files as table_files
    from ducklake_orch.catalog.scan.table_summary import table_partitions as table_partitions
    from ducklake_orch.catalog.scan.table_summary import table_stats as table_stats
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "arrow_reader": ["Selection", "read_arrow", "read_batches"],
            "live_files": ["DELETE_FILE", "FILE", "LiveFiles", "data_file", "delete_file", "next_file_id"],
            "predicate": [
                "COMPARISONS",
                "Node",
                "Predicate",
                "changing_function",
                "parse_predicate",
                "parse_value",
                "refuse_changing",
            ],
            "scan_plan": ["ScanPlan", "choose", "classify", "count", "inlined_positions", "name_mappings", "plan_scan"],
            "table_summary": [
                "reading_table",
                "snapshot_of",
                "table_columns",
                "table_files",
                "table_partitions",
                "table_stats",
            ],
        },
    )
