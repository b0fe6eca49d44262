"""Run a DuckLake lakehouse from Dagster and Airflow on Spark.

Everything public is importable from here; names are resolved on first use, so that ``import ducklake_orch`` loads
neither an engine nor a host.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ducklake_orch import errors as errors
    from ducklake_orch.config.catalogs import DuckDBCatalog as DuckDBCatalog
    from ducklake_orch.config.catalogs import MotherDuckCatalog as MotherDuckCatalog
    from ducklake_orch.config.catalogs import MySQLCatalog as MySQLCatalog
    from ducklake_orch.config.catalogs import PostgresCatalog as PostgresCatalog
    from ducklake_orch.config.catalogs import SQLiteCatalog as SQLiteCatalog
    from ducklake_orch.config.lake import LakeConfig as LakeConfig
    from ducklake_orch.config.lake import PoolPolicy as PoolPolicy
    from ducklake_orch.config.lake import RetryPolicy as RetryPolicy
    from ducklake_orch.config.maintenance import MaintenancePolicy as MaintenancePolicy
    from ducklake_orch.config.storages import AzureStorage as AzureStorage
    from ducklake_orch.config.storages import GCSStorage as GCSStorage
    from ducklake_orch.config.storages import LocalStorage as LocalStorage
    from ducklake_orch.config.storages import R2Storage as R2Storage
    from ducklake_orch.config.storages import S3Storage as S3Storage
    from ducklake_orch.lake import DuckLake as DuckLake
    from ducklake_orch.results import CommitInfo as CommitInfo

__version__ = "0.1.0rc1"

_HOMES = {
    "DuckLake": "ducklake_orch.lake",
    "LakeConfig": "ducklake_orch.config.lake",
    "PoolPolicy": "ducklake_orch.config.lake",
    "RetryPolicy": "ducklake_orch.config.lake",
    "DuckDBCatalog": "ducklake_orch.config.catalogs",
    "SQLiteCatalog": "ducklake_orch.config.catalogs",
    "PostgresCatalog": "ducklake_orch.config.catalogs",
    "MySQLCatalog": "ducklake_orch.config.catalogs",
    "MotherDuckCatalog": "ducklake_orch.config.catalogs",
    "LocalStorage": "ducklake_orch.config.storages",
    "S3Storage": "ducklake_orch.config.storages",
    "R2Storage": "ducklake_orch.config.storages",
    "GCSStorage": "ducklake_orch.config.storages",
    "AzureStorage": "ducklake_orch.config.storages",
    "MaintenancePolicy": "ducklake_orch.config.maintenance",
    "CommitInfo": "ducklake_orch.results",
}

__all__ = [*_HOMES, "errors"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    if name == "errors":
        return import_module("ducklake_orch.errors")
    raise AttributeError(f"module 'ducklake_orch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
