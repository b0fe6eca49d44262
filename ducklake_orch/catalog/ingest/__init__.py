"""Add existing Parquet files to a table: inspect them, prove their partitions, copy and commit them.

A file is compared with the table by its footer. It is refused if its columns, values or pages do not fit.
"""

from typing import TYPE_CHECKING

from ducklake_orch.catalog.faces import lazy_face

if TYPE_CHECKING:
    from ducklake_orch.catalog.ingest.add_files import AddRequest, add_data_files
    from ducklake_orch.catalog.ingest.file_inspection import inspect_files
else:
    __getattr__, __dir__, __all__ = lazy_face(__name__)
