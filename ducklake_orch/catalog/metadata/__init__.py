"""Read and write the metadata tables of the catalog: tables, columns, files and snapshots.

This package reads the state of a table at a snapshot, translates names, types and paths into DuckLake's own form, and
runs transactions on the metadata tables. It opens no data file. The entry points are `reading` to read and
`MetadataTransaction` to write.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.metadata.catalog_clock import Clock, read_clock
    from ducklake_orch.catalog.metadata.catalog_indexes import (
        INDEXED_LENGTH,
        create_indexes,
        drop_indexes,
        has_indexes,
        indexed_value,
    )
    from ducklake_orch.catalog.metadata.cell_values import maybe_int, text, truth
    from ducklake_orch.catalog.metadata.change_tokens import (
        DATA_CHANGES,
        DELETING_CHANGES,
        MOVING_CHANGES,
        Token,
        changed_tables,
        changes_rows,
        format_tokens,
        parse_tokens,
        quoted_path,
    )
    from ducklake_orch.catalog.metadata.column_evolution import read_as
    from ducklake_orch.catalog.metadata.column_listing import lake_columns, lake_partition_keys
    from ducklake_orch.catalog.metadata.commit_marks import marked_snapshot
    from ducklake_orch.catalog.metadata.damaged_cells import naming_damage
    from ducklake_orch.catalog.metadata.file_paths import (
        QUARANTINE_FOLDER,
        Paths,
        as_listed,
        canonical,
        canonical_paths,
        refuse_unowned,
    )
    from ducklake_orch.catalog.metadata.hive_folders import (
        NULL_FOLDER,
        folder,
        longest_name,
        meant,
        path_folders,
        path_text,
        path_value,
    )
    from ducklake_orch.catalog.metadata.inlined_data import (
        InlinedRows,
        count_inlined,
        count_sql,
        deletions_sql,
        deletions_table,
        inlined_rows,
        inlined_versions,
        inlines,
        stored_types,
        table_exists,
        tables_with_ended_rows,
        versions_of,
    )
    from ducklake_orch.catalog.metadata.known_paths import (
        absolute_paths,
        paths_of_tables,
        scheduled_paths,
        table_folders,
    )
    from ducklake_orch.catalog.metadata.lake_mark import FILE_NAME, MARK_OPTION, file_prefix, origin
    from ducklake_orch.catalog.metadata.own_table import OwnTable, create_before_transaction, create_in_transaction
    from ducklake_orch.catalog.metadata.readable_structs import make_structs_readable, unreadable_structs
    from ducklake_orch.catalog.metadata.reserved_names import (
        free_column_name,
        free_name,
        position_name,
        refuse_reserved,
        row_id_name,
        snapshot_id_name,
        stored_name,
    )
    from ducklake_orch.catalog.metadata.snapshot_reader import (
        Metadata,
        Settings,
        folder_name,
        join_path,
        live,
        reading,
        reading_shared,
    )
    from ducklake_orch.catalog.metadata.staged_rows import Relation
    from ducklake_orch.catalog.metadata.table_history import TableHistory
    from ducklake_orch.catalog.metadata.table_model import (
        DELETED_PATH_FIELD,
        DELETED_POS_FIELD,
        ROW_ID,
        ROW_ID_FIELD,
        SNAPSHOT_ID,
        SNAPSHOT_ID_FIELD,
        ColumnDef,
        ColumnStats,
        DataFile,
        DeleteFile,
        InlinedTable,
        MappedName,
        NewDeleteFile,
        NewFile,
        PartitionField,
        PartitionSpec,
        SnapshotRow,
        SortKey,
        TableDef,
        VariantStats,
        unnumbered,
    )
    from ducklake_orch.catalog.metadata.table_reader import build_columns
    from ducklake_orch.catalog.metadata.transaction import NOW, MetadataTransaction, commit_metadata
    from ducklake_orch.catalog.metadata.type_names import (
        INEXACT_IN_PARQUET,
        NESTED,
        duckdb_type,
        ducklake_type,
        field_ids,
        inexact_columns,
        judged_by_rows,
        storable,
    )
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
