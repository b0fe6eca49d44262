"""Build SQL over data files: which columns a file has, its live rows, its row versions, and its statistics.

This package does not read the catalog; callers pass in descriptions of tables and files. Most of it only builds SQL, so
it runs in this process and in Spark tasks alike.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.parquet.arrow_types import (
        arrow_storage_type,
        arrow_value,
        carried,
        cast_to_storage_type,
        exact_wide,
        refuse_truncated_intervals,
    )
    from ducklake_orch.catalog.parquet.column_mapping import StoredColumn, known_columns, stored_columns
    from ducklake_orch.catalog.parquet.column_stats import TableColumnStats, file_stats, summarize, widen
    from ducklake_orch.catalog.parquet.deletion_vectors import decoded, read_vectors
    from ducklake_orch.catalog.parquet.encrypted_columns import footers_of
    from ducklake_orch.catalog.parquet.encryption import ENCRYPTION_CONFIG, encrypt_next
    from ducklake_orch.catalog.parquet.file_schema import FileColumn, file_columns
    from ducklake_orch.catalog.parquet.footers import Footer, LeafStats, Shape, constant_stats, read_footers
    from ducklake_orch.catalog.parquet.live_row_count import count_rows
    from ducklake_orch.catalog.parquet.live_rows_sql import (
        data_sql,
        deleted_sql,
        deletes_sql,
        has_own,
        parquet_sql,
        placed_rows_sql,
        read_columns,
        renamed,
        rows_sql,
        value_sql,
    )
    from ducklake_orch.catalog.parquet.merged_versions_sql import read_versions
    from ducklake_orch.catalog.parquet.partitioning import (
        DEFAULT_FILE_SIZE,
        OWN_FILES,
        PartitionKey,
        bucket_sql,
        copy_options,
        depends_on_zone,
        file_size,
        hashed_as_text,
        key_name,
        key_names,
        key_sql,
        partition_keys,
        sort_sql,
        typed_default,
    )
    from ducklake_orch.catalog.parquet.readable_types import advice, holds
    from ducklake_orch.catalog.parquet.row_versions_sql import (
        FileLife,
        Span,
        changes_sql,
        events_sql,
        file_versions,
        inlined_versions_sql,
        inserts_sql,
        same_sql,
        short,
        state_sql,
        with_vectors,
    )
    from ducklake_orch.catalog.parquet.variant_bounds import copied_stats, variant_stats
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
