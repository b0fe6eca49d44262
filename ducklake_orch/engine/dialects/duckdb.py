"""DuckDB files as catalogs, for one process at a time, or for several that only read."""

from typing import TYPE_CHECKING, Any

from ducklake_orch.config.catalogs import DuckDBCatalog
from ducklake_orch.engine.dialects.base import FileDialect

if TYPE_CHECKING:
    from ducklake_orch.engine.locks import Queue


class DuckDBDialect(FileDialect[DuckDBCatalog]):
    """A DuckDB file. Its lock is held while the file is attached, so writers need no other queue."""

    database_type = "duckdb"
    attached_by_one_process = True

    def metadata_path(self) -> str:
        return str(self.path)

    def attach_options(self, *, writable: bool) -> dict[str, Any]:
        # Without `meta_type` the engine inspects the file, and for a SQLite file it would download an extension.
        return {"meta_type": self.database_type}

    def attach_lock(self, *, shared: bool) -> "Queue":
        from ducklake_orch.engine.locks import FileQueue

        return FileQueue(self.path, shared=shared)
