"""Turn rows into files: take the caller's data as Arrow, cast them to the table, and write data and delete files.

The writers need no catalog, so they run in this process and in Spark tasks. Small writes become inlined rows instead of
files.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.writing.arrow_source import Source as Source
    from ducklake_orch.catalog.writing.arrow_source import source_of as source_of
    from ducklake_orch.catalog.writing.cast_to_table import SourceColumn as SourceColumn
    from ducklake_orch.catalog.writing.cast_to_table import explain as explain
    from ducklake_orch.catalog.writing.cast_to_table import projection as projection
    from ducklake_orch.catalog.writing.cast_to_table import source_columns as source_columns
    from ducklake_orch.catalog.writing.delete_file_writer import Loss as Loss
    from ducklake_orch.catalog.writing.delete_file_writer import write_delete_file as write_delete_file
    from ducklake_orch.catalog.writing.delete_file_writer import write_delete_files as write_delete_files
    from ducklake_orch.catalog.writing.file_writer import WrittenVersions as WrittenVersions
    from ducklake_orch.catalog.writing.file_writer import write_files as write_files
    from ducklake_orch.catalog.writing.file_writer import write_known_rows as write_known_rows
    from ducklake_orch.catalog.writing.file_writer import write_row_versions as write_row_versions
    from ducklake_orch.catalog.writing.file_writer import write_versions as write_versions
    from ducklake_orch.catalog.writing.inlining import FewRows as FewRows
    from ducklake_orch.catalog.writing.inlining import few_at_most as few_at_most
    from ducklake_orch.catalog.writing.inlining import few_rows as few_rows
    from ducklake_orch.catalog.writing.inlining import row_limit as row_limit
    from ducklake_orch.catalog.writing.remote_queries import FOLDER as FOLDER
    from ducklake_orch.catalog.writing.remote_queries import FileQuery as FileQuery
    from ducklake_orch.catalog.writing.remote_queries import Lent as Lent
    from ducklake_orch.catalog.writing.remote_queries import Workers as Workers
    from ducklake_orch.catalog.writing.remote_queries import integers as integers
    from ducklake_orch.catalog.writing.remote_queries import staged as staged
    from ducklake_orch.catalog.writing.remote_queries import staged_sql as staged_sql
    from ducklake_orch.catalog.writing.remote_queries import staged_table as staged_table
    from ducklake_orch.catalog.writing.target_table import check_layout as check_layout
    from ducklake_orch.catalog.writing.target_table import columns_of as columns_of
    from ducklake_orch.catalog.writing.target_table import commented as commented
    from ducklake_orch.catalog.writing.target_table import evolved as evolved
    from ducklake_orch.catalog.writing.target_table import new_table as new_table
    from ducklake_orch.catalog.writing.where_check import RowsInside as RowsInside
    from ducklake_orch.catalog.writing.where_check import rows_outside as rows_outside
else:
    __getattr__, __dir__, __all__ = lazy_face(
        __name__,
        {
            "arrow_source": ["Source", "source_of"],
            "cast_to_table": ["SourceColumn", "explain", "projection", "source_columns"],
            "delete_file_writer": ["Loss", "write_delete_file", "write_delete_files"],
            "file_writer": [
                "WrittenVersions",
                "write_files",
                "write_known_rows",
                "write_row_versions",
                "write_versions",
            ],
            "inlining": ["FewRows", "few_at_most", "few_rows", "row_limit"],
            "remote_queries": [
                "FOLDER",
                "FileQuery",
                "Lent",
                "Workers",
                "integers",
                "staged",
                "staged_sql",
                "staged_table",
            ],
            "target_table": ["check_layout", "columns_of", "commented", "evolved", "new_table"],
            "where_check": ["RowsInside", "rows_outside"],
        },
    )
