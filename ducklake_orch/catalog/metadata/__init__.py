"""Read and write the metadata tables of the catalog: tables, columns, files and snapshots.

This package reads the state of a table at a snapshot, translates names, types and paths into DuckLake's own form, and
runs transactions on the metadata tables. It opens no data file. The entry points are `reading` to read and
`MetadataTransaction` to write.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.metadata.catalog_clock import Clock as Clock
    from ducklake_orch.catalog.metadata.catalog_clock import read_clock as read_clock
    from ducklake_orch.catalog.metadata.cell_values import maybe_int as maybe_int
    from ducklake_orch.catalog.metadata.cell_values import text as text
    from ducklake_orch.catalog.metadata.cell_values import truth as truth
    from ducklake_orch.catalog.metadata.change_tokens import DATA_CHANGES as DATA_CHANGES
    from ducklake_orch.catalog.metadata.change_tokens import DELETING_CHANGES as DELETING_CHANGES
    from ducklake_orch.catalog.metadata.change_tokens import MOVING_CHANGES as MOVING_CHANGES
    from ducklake_orch.catalog.metadata.change_tokens import Token as Token
    from ducklake_orch.catalog.metadata.change_tokens import changes_rows as changes_rows
    from ducklake_orch.catalog.metadata.change_tokens import format_tokens as format_tokens
    from ducklake_orch.catalog.metadata.change_tokens import parse_tokens as parse_tokens
    from ducklake_orch.catalog.metadata.change_tokens import quoted_path as quoted_path
    from ducklake_orch.catalog.metadata.column_evolution import read_as as read_as
    from ducklake_orch.catalog.metadata.commit_marks import marked_snapshot as marked_snapshot
    from ducklake_orch.catalog.metadata.file_paths import Paths as Paths
    from ducklake_orch.catalog.metadata.file_paths import as_listed as as_listed
    from ducklake_orch.catalog.metadata.file_paths import canonical as canonical
    from ducklake_orch.catalog.metadata.file_paths import canonical_paths as canonical_paths
    from ducklake_orch.catalog.metadata.file_paths import refuse_unowned as refuse_unowned
    from ducklake_orch.catalog.metadata.hive_folders import NULL_FOLDER as NULL_FOLDER
    from ducklake_orch.catalog.metadata.hive_folders import folder as folder
    from ducklake_orch.catalog.metadata.hive_folders import meant as meant
    from ducklake_orch.catalog.metadata.hive_folders import path_folders as path_folders
    from ducklake_orch.catalog.metadata.hive_folders import path_text as path_text
    from ducklake_orch.catalog.metadata.hive_folders import path_value as path_value
    from ducklake_orch.catalog.metadata.inlined_data import InlinedRows as InlinedRows
    from ducklake_orch.catalog.metadata.inlined_data import count_inlined as count_inlined
    from ducklake_orch.catalog.metadata.inlined_data import count_sql as count_sql
    from ducklake_orch.catalog.metadata.inlined_data import deletions_sql as deletions_sql
    from ducklake_orch.catalog.metadata.inlined_data import deletions_table as deletions_table
    from ducklake_orch.catalog.metadata.inlined_data import inlined_rows as inlined_rows
    from ducklake_orch.catalog.metadata.inlined_data import inlined_versions as inlined_versions
    from ducklake_orch.catalog.metadata.inlined_data import inlines as inlines
    from ducklake_orch.catalog.metadata.inlined_data import is_there as is_there
    from ducklake_orch.catalog.metadata.inlined_data import stored_types as stored_types
    from ducklake_orch.catalog.metadata.inlined_data import tables_with_ended_rows as tables_with_ended_rows
    from ducklake_orch.catalog.metadata.inlined_data import versions_of as versions_of
    from ducklake_orch.catalog.metadata.known_paths import absolute_paths as absolute_paths
    from ducklake_orch.catalog.metadata.known_paths import paths_of_tables as paths_of_tables
    from ducklake_orch.catalog.metadata.known_paths import scheduled_paths as scheduled_paths
    from ducklake_orch.catalog.metadata.known_paths import table_folders as table_folders
    from ducklake_orch.catalog.metadata.lake_mark import FILE_NAME as FILE_NAME
    from ducklake_orch.catalog.metadata.lake_mark import file_prefix as file_prefix
    from ducklake_orch.catalog.metadata.lake_mark import origin as origin
    from ducklake_orch.catalog.metadata.own_table import OwnTable as OwnTable
    from ducklake_orch.catalog.metadata.own_table import create_before as create_before
    from ducklake_orch.catalog.metadata.own_table import create_within as create_within
    from ducklake_orch.catalog.metadata.reserved_names import free_column_name as free_column_name
    from ducklake_orch.catalog.metadata.reserved_names import free_name as free_name
    from ducklake_orch.catalog.metadata.reserved_names import position_name as position_name
    from ducklake_orch.catalog.metadata.reserved_names import refuse_reserved as refuse_reserved
    from ducklake_orch.catalog.metadata.reserved_names import row_id_name as row_id_name
    from ducklake_orch.catalog.metadata.reserved_names import snapshot_id_name as snapshot_id_name
    from ducklake_orch.catalog.metadata.reserved_names import stored_name as stored_name
    from ducklake_orch.catalog.metadata.snapshot_reader import FORMAT_VERSION as FORMAT_VERSION
    from ducklake_orch.catalog.metadata.snapshot_reader import Metadata as Metadata
    from ducklake_orch.catalog.metadata.snapshot_reader import folder_name as folder_name
    from ducklake_orch.catalog.metadata.snapshot_reader import join_path as join_path
    from ducklake_orch.catalog.metadata.snapshot_reader import live as live
    from ducklake_orch.catalog.metadata.snapshot_reader import reading as reading
    from ducklake_orch.catalog.metadata.snapshot_reader import reading_shared as reading_shared
    from ducklake_orch.catalog.metadata.staged_rows import Relation as Relation
    from ducklake_orch.catalog.metadata.table_history import TableHistory as TableHistory
    from ducklake_orch.catalog.metadata.table_model import DELETED_PATH_FIELD as DELETED_PATH_FIELD
    from ducklake_orch.catalog.metadata.table_model import DELETED_POS_FIELD as DELETED_POS_FIELD
    from ducklake_orch.catalog.metadata.table_model import ROW_ID as ROW_ID
    from ducklake_orch.catalog.metadata.table_model import ROW_ID_FIELD as ROW_ID_FIELD
    from ducklake_orch.catalog.metadata.table_model import SNAPSHOT_ID as SNAPSHOT_ID
    from ducklake_orch.catalog.metadata.table_model import SNAPSHOT_ID_FIELD as SNAPSHOT_ID_FIELD
    from ducklake_orch.catalog.metadata.table_model import ColumnDef as ColumnDef
    from ducklake_orch.catalog.metadata.table_model import ColumnStats as ColumnStats
    from ducklake_orch.catalog.metadata.table_model import DataFile as DataFile
    from ducklake_orch.catalog.metadata.table_model import DeleteFile as DeleteFile
    from ducklake_orch.catalog.metadata.table_model import InlinedTable as InlinedTable
    from ducklake_orch.catalog.metadata.table_model import MappedName as MappedName
    from ducklake_orch.catalog.metadata.table_model import NewDeleteFile as NewDeleteFile
    from ducklake_orch.catalog.metadata.table_model import NewFile as NewFile
    from ducklake_orch.catalog.metadata.table_model import PartitionField as PartitionField
    from ducklake_orch.catalog.metadata.table_model import PartitionSpec as PartitionSpec
    from ducklake_orch.catalog.metadata.table_model import SnapshotRow as SnapshotRow
    from ducklake_orch.catalog.metadata.table_model import SortKey as SortKey
    from ducklake_orch.catalog.metadata.table_model import TableDef as TableDef
    from ducklake_orch.catalog.metadata.table_model import VariantStats as VariantStats
    from ducklake_orch.catalog.metadata.transaction import NOW as NOW
    from ducklake_orch.catalog.metadata.transaction import MetadataTransaction as MetadataTransaction
    from ducklake_orch.catalog.metadata.type_names import INEXACT_IN_PARQUET as INEXACT_IN_PARQUET
    from ducklake_orch.catalog.metadata.type_names import NESTED as NESTED
    from ducklake_orch.catalog.metadata.type_names import duckdb_type as duckdb_type
    from ducklake_orch.catalog.metadata.type_names import ducklake_type as ducklake_type
    from ducklake_orch.catalog.metadata.type_names import field_ids as field_ids
    from ducklake_orch.catalog.metadata.type_names import inexact_columns as inexact_columns
    from ducklake_orch.catalog.metadata.type_names import judged_by_rows as judged_by_rows
    from ducklake_orch.catalog.metadata.type_names import storable as storable
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "catalog_clock": ["Clock", "read_clock"],
            "cell_values": ["maybe_int", "text", "truth"],
            "change_tokens": [
                "DATA_CHANGES",
                "DELETING_CHANGES",
                "MOVING_CHANGES",
                "Token",
                "changes_rows",
                "format_tokens",
                "parse_tokens",
                "quoted_path",
            ],
            "column_evolution": ["read_as"],
            "commit_marks": ["marked_snapshot"],
            "file_paths": ["Paths", "as_listed", "canonical", "canonical_paths", "refuse_unowned"],
            "hive_folders": ["NULL_FOLDER", "folder", "meant", "path_folders", "path_text", "path_value"],
            "inlined_data": [
                "InlinedRows",
                "count_inlined",
                "count_sql",
                "deletions_sql",
                "deletions_table",
                "inlined_rows",
                "inlined_versions",
                "inlines",
                "is_there",
                "tables_with_ended_rows",
                "stored_types",
                "versions_of",
            ],
            "known_paths": ["absolute_paths", "paths_of_tables", "scheduled_paths", "table_folders"],
            "lake_mark": ["FILE_NAME", "file_prefix", "origin"],
            "own_table": ["OwnTable", "create_before", "create_within"],
            "reserved_names": [
                "free_column_name",
                "free_name",
                "position_name",
                "refuse_reserved",
                "row_id_name",
                "snapshot_id_name",
                "stored_name",
            ],
            "snapshot_reader": [
                "FORMAT_VERSION",
                "Metadata",
                "folder_name",
                "join_path",
                "live",
                "reading",
                "reading_shared",
            ],
            "staged_rows": ["Relation"],
            "table_history": ["TableHistory"],
            "table_model": [
                "ColumnDef",
                "ColumnStats",
                "DELETED_PATH_FIELD",
                "DELETED_POS_FIELD",
                "DataFile",
                "DeleteFile",
                "InlinedTable",
                "MappedName",
                "NewDeleteFile",
                "NewFile",
                "PartitionField",
                "PartitionSpec",
                "ROW_ID",
                "ROW_ID_FIELD",
                "SNAPSHOT_ID",
                "SNAPSHOT_ID_FIELD",
                "SnapshotRow",
                "SortKey",
                "TableDef",
                "VariantStats",
            ],
            "transaction": ["MetadataTransaction", "NOW"],
            "type_names": [
                "INEXACT_IN_PARQUET",
                "NESTED",
                "duckdb_type",
                "ducklake_type",
                "field_ids",
                "inexact_columns",
                "judged_by_rows",
                "storable",
            ],
        },
    )
