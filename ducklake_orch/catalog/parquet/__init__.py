"""Build SQL over data files: which columns a file has, its live rows, its row versions, and its statistics.

This package does not read the catalog; callers pass in descriptions of tables and files. Most of it only builds SQL, so
it runs in this process and in Spark tasks alike.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.parquet.arrow_types import arrow_value as arrow_value
    from ducklake_orch.catalog.parquet.arrow_types import carried as carried
    from ducklake_orch.catalog.parquet.arrow_types import exact_wide as exact_wide
    from ducklake_orch.catalog.parquet.arrow_types import landed as landed
    from ducklake_orch.catalog.parquet.arrow_types import landing as landing
    from ducklake_orch.catalog.parquet.arrow_types import refuse_cut as refuse_cut
    from ducklake_orch.catalog.parquet.column_mapping import StoredColumn as StoredColumn
    from ducklake_orch.catalog.parquet.column_mapping import known_columns as known_columns
    from ducklake_orch.catalog.parquet.column_mapping import stored_columns as stored_columns
    from ducklake_orch.catalog.parquet.column_stats import TableColumnStats as TableColumnStats
    from ducklake_orch.catalog.parquet.column_stats import file_stats as file_stats
    from ducklake_orch.catalog.parquet.column_stats import summarize as summarize
    from ducklake_orch.catalog.parquet.column_stats import widen as widen
    from ducklake_orch.catalog.parquet.file_schema import FileColumn as FileColumn
    from ducklake_orch.catalog.parquet.file_schema import file_columns as file_columns
    from ducklake_orch.catalog.parquet.footers import Footer as Footer
    from ducklake_orch.catalog.parquet.footers import LeafStats as LeafStats
    from ducklake_orch.catalog.parquet.footers import Shape as Shape
    from ducklake_orch.catalog.parquet.footers import constant_stats as constant_stats
    from ducklake_orch.catalog.parquet.footers import read_footers as read_footers
    from ducklake_orch.catalog.parquet.live_rows_sql import encrypted_columns as encrypted_columns
    from ducklake_orch.catalog.parquet.live_rows_sql import parquet_sql as parquet_sql
    from ducklake_orch.catalog.parquet.live_rows_sql import placed_rows_sql as placed_rows_sql
    from ducklake_orch.catalog.parquet.live_rows_sql import read_columns as read_columns
    from ducklake_orch.catalog.parquet.live_rows_sql import refuse_vectors as refuse_vectors
    from ducklake_orch.catalog.parquet.live_rows_sql import renamed as renamed
    from ducklake_orch.catalog.parquet.live_rows_sql import rows_sql as rows_sql
    from ducklake_orch.catalog.parquet.live_rows_sql import value_sql as value_sql
    from ducklake_orch.catalog.parquet.merged_versions_sql import read_versions as read_versions
    from ducklake_orch.catalog.parquet.partitioning import DEFAULT_FILE_SIZE as DEFAULT_FILE_SIZE
    from ducklake_orch.catalog.parquet.partitioning import OWN_FILES as OWN_FILES
    from ducklake_orch.catalog.parquet.partitioning import PartitionKey as PartitionKey
    from ducklake_orch.catalog.parquet.partitioning import bucket_sql as bucket_sql
    from ducklake_orch.catalog.parquet.partitioning import copy_options as copy_options
    from ducklake_orch.catalog.parquet.partitioning import depends_on_zone as depends_on_zone
    from ducklake_orch.catalog.parquet.partitioning import file_size as file_size
    from ducklake_orch.catalog.parquet.partitioning import hashed_as_text as hashed_as_text
    from ducklake_orch.catalog.parquet.partitioning import key_name as key_name
    from ducklake_orch.catalog.parquet.partitioning import key_sql as key_sql
    from ducklake_orch.catalog.parquet.partitioning import partition_keys as partition_keys
    from ducklake_orch.catalog.parquet.partitioning import sort_sql as sort_sql
    from ducklake_orch.catalog.parquet.partitioning import typed_default as typed_default
    from ducklake_orch.catalog.parquet.readable_types import advice as advice
    from ducklake_orch.catalog.parquet.readable_types import holds as holds
    from ducklake_orch.catalog.parquet.row_origins import count_rows as count_rows
    from ducklake_orch.catalog.parquet.row_versions_sql import FileLife as FileLife
    from ducklake_orch.catalog.parquet.row_versions_sql import Span as Span
    from ducklake_orch.catalog.parquet.row_versions_sql import changes_sql as changes_sql
    from ducklake_orch.catalog.parquet.row_versions_sql import events_sql as events_sql
    from ducklake_orch.catalog.parquet.row_versions_sql import file_versions as file_versions
    from ducklake_orch.catalog.parquet.row_versions_sql import inlined_versions_sql as inlined_versions_sql
    from ducklake_orch.catalog.parquet.row_versions_sql import inserts_sql as inserts_sql
    from ducklake_orch.catalog.parquet.row_versions_sql import same_sql as same_sql
    from ducklake_orch.catalog.parquet.row_versions_sql import short as short
    from ducklake_orch.catalog.parquet.row_versions_sql import state_sql as state_sql
    from ducklake_orch.catalog.parquet.variant_bounds import copied_stats as copied_stats
    from ducklake_orch.catalog.parquet.variant_bounds import variant_stats as variant_stats
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "arrow_types": ["arrow_value", "carried", "exact_wide", "landed", "landing", "refuse_cut"],
            "column_mapping": ["StoredColumn", "known_columns", "stored_columns"],
            "column_stats": ["TableColumnStats", "file_stats", "summarize", "widen"],
            "file_schema": ["FileColumn", "file_columns"],
            "footers": ["Footer", "LeafStats", "Shape", "constant_stats", "read_footers"],
            "live_rows_sql": [
                "encrypted_columns",
                "parquet_sql",
                "placed_rows_sql",
                "read_columns",
                "refuse_vectors",
                "renamed",
                "rows_sql",
                "value_sql",
            ],
            "merged_versions_sql": ["read_versions"],
            "partitioning": [
                "DEFAULT_FILE_SIZE",
                "OWN_FILES",
                "PartitionKey",
                "bucket_sql",
                "copy_options",
                "depends_on_zone",
                "file_size",
                "hashed_as_text",
                "key_name",
                "key_sql",
                "partition_keys",
                "sort_sql",
                "typed_default",
            ],
            "readable_types": ["advice", "holds"],
            "row_origins": ["count_rows"],
            "row_versions_sql": [
                "FileLife",
                "Span",
                "changes_sql",
                "events_sql",
                "file_versions",
                "inlined_versions_sql",
                "inserts_sql",
                "same_sql",
                "short",
                "state_sql",
            ],
            "variant_bounds": ["copied_stats", "variant_stats"],
        },
    )
