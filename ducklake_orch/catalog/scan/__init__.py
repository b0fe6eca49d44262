"""Plan a read: which data files, delete files and inlined rows make up a table at a snapshot.

DuckDB parses the condition of a read. This package turns it into conditions on statistics and partition values, and
prunes files with them in one query on the catalog. The entry point is `plan_scan`. Summaries of tables use the same
pruning.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.scan.arrow_reader import Selection, read_arrow, read_batches
    from ducklake_orch.catalog.scan.file_rows import DELETE_FILE, FILE
    from ducklake_orch.catalog.scan.live_files import LiveFiles, data_file, delete_file, next_file_id
    from ducklake_orch.catalog.scan.predicate import (
        COMPARISONS,
        Node,
        Predicate,
        changing_function,
        parse_predicate,
        parse_value,
        refuse_changing,
    )
    from ducklake_orch.catalog.scan.reads_seen import WHOLE_TABLE, note_read, note_read_of, read_counts, write_reads
    from ducklake_orch.catalog.scan.scan_plan import (
        ScanPlan,
        choose,
        classify,
        count,
        inlined_positions,
        name_mappings,
        plan_scan,
    )
    from ducklake_orch.catalog.scan.table_counts import counted_tables
    from ducklake_orch.catalog.scan.table_listing import ListedTable, list_tables
    from ducklake_orch.catalog.scan.table_summary import (
        reading_table,
        snapshot_of,
        table_columns,
        table_files,
        table_partitions,
        table_stats,
    )
    from ducklake_orch.catalog.scan.view_query import find_view
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
