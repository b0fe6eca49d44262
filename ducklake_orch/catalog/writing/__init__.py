"""Turn rows into files: take the caller's data as Arrow, cast them to the table, and write data and delete files.

The writers need no catalog, so they run in this process and in Spark tasks. Small writes become inlined rows instead of
files.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.writing.altered_table import Alteration
    from ducklake_orch.catalog.writing.arrow_source import Source, source_of
    from ducklake_orch.catalog.writing.cast_to_table import SourceColumn, explain, projection, source_columns
    from ducklake_orch.catalog.writing.clustered_writer import (
        Clustering,
        cell_of,
        cluster_mark,
        write_clustered_rows,
    )
    from ducklake_orch.catalog.writing.delete_file_writer import Loss, write_delete_file, write_delete_files
    from ducklake_orch.catalog.writing.file_writer import (
        WrittenVersions,
        fitted,
        write_files,
        write_known_rows,
        write_row_versions,
        write_versions,
    )
    from ducklake_orch.catalog.writing.inlining import InlinableRows, inlinable_rows, inline_limit, row_limit
    from ducklake_orch.catalog.writing.remote_queries import (
        FileQuery,
        Lent,
        Workers,
        integers,
        staged,
        staged_sql,
        staged_table,
        stand_in,
    )
    from ducklake_orch.catalog.writing.target_table import check_layout, columns_of, commented, evolved, new_table
    from ducklake_orch.catalog.writing.where_check import RowsInside, outside_queries, rows_outside
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
