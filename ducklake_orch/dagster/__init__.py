"""The Dagster integration: a lake as a resource and an IO manager, with maintenance assets, checks and a sensor."""

try:
    import dagster as _dagster  # noqa: F401
except ImportError as error:
    from ducklake_orch.errors import MissingExtraError
    from ducklake_orch.install_commands import install_extra

    raise MissingExtraError("Dagster is not installed.", remedy=install_extra("dagster")) from error

from dagster_shared.libraries import DagsterLibraryRegistry

from ducklake_orch import __version__
from ducklake_orch.dagster.asset_specs import ducklake_asset_specs
from ducklake_orch.dagster.change_sensor import ducklake_snapshot_sensor
from ducklake_orch.dagster.components import DuckLakeComponent, DuckLakeMaintenanceComponent
from ducklake_orch.dagster.configuration import (
    AzureStorage,
    DefaultStorage,
    DuckDBCatalog,
    GCSStorage,
    LocalStorage,
    MotherDuckCatalog,
    MySQLCatalog,
    PoolPolicy,
    PostgresCatalog,
    R2Storage,
    RetryPolicy,
    S3Storage,
    SQLiteCatalog,
    UrlCatalog,
    UrlStorage,
)
from ducklake_orch.dagster.health_checks import build_health_checks
from ducklake_orch.dagster.io_manager import DuckLakeIOManager
from ducklake_orch.dagster.maintenance import MaintenanceConfig, build_maintenance_definitions
from ducklake_orch.dagster.op_outputs import drop_op_outputs
from ducklake_orch.dagster.publication import ducklake_publication
from ducklake_orch.dagster.resource import DuckLakeFileResource, DuckLakeResource, SparkConfig
from ducklake_orch.dagster.sql_assets import ducklake_sql_assets
from ducklake_orch.dagster.step_run import pipes_extras
from ducklake_orch.dagster.table_names import with_table_names
from ducklake_orch.dagster.table_owners import check_definitions

__all__ = [
    "AzureStorage",
    "DefaultStorage",
    "DuckDBCatalog",
    "DuckLakeComponent",
    "DuckLakeFileResource",
    "DuckLakeIOManager",
    "DuckLakeMaintenanceComponent",
    "DuckLakeResource",
    "GCSStorage",
    "LocalStorage",
    "MaintenanceConfig",
    "MotherDuckCatalog",
    "MySQLCatalog",
    "PoolPolicy",
    "PostgresCatalog",
    "R2Storage",
    "RetryPolicy",
    "S3Storage",
    "SQLiteCatalog",
    "SparkConfig",
    "UrlCatalog",
    "UrlStorage",
    "build_health_checks",
    "build_maintenance_definitions",
    "check_definitions",
    "drop_op_outputs",
    "ducklake_asset_specs",
    "ducklake_publication",
    "ducklake_snapshot_sensor",
    "ducklake_sql_assets",
    "pipes_extras",
    "with_table_names",
]

refuse_shared_tables = check_definitions  # its earlier name

DagsterLibraryRegistry.register("ducklake-orch", __version__, is_dagster_package=False)
