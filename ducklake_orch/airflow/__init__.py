"""The Airflow provider: a connection type for lakes, a hook, operators, sensors, a trigger, assets and a decorator.

Airflow imports this package in every process to read the provider's description. Its names are therefore imported on
first access.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ducklake_orch.airflow.assets import ducklake_asset
    from ducklake_orch.airflow.execute_operator import DuckLakeExecuteOperator
    from ducklake_orch.airflow.frame_references import read_reference
    from ducklake_orch.airflow.hook import DuckLakeHook
    from ducklake_orch.airflow.maintenance_dag import build_maintenance_dag, maintenance_task_group
    from ducklake_orch.airflow.maintenance_operators import (
        DuckLakeCleanupOperator,
        DuckLakeExpireOperator,
        DuckLakeFlushOperator,
        DuckLakeHealthOperator,
        DuckLakeLayoutOperator,
        DuckLakeMaintenanceOperator,
        DuckLakeMergeFilesOperator,
        DuckLakeOrphansOperator,
        DuckLakeRewriteOperator,
    )
    from ducklake_orch.airflow.publication import publication_task_group
    from ducklake_orch.airflow.publish_operator import DuckLakePublishOperator
    from ducklake_orch.airflow.sensors import DuckLakePartitionSensor, DuckLakeSnapshotSensor
    from ducklake_orch.airflow.task_run import retry_policy
    from ducklake_orch.airflow.triggers import DuckLakeSnapshotTrigger
    from ducklake_orch.airflow.write_operator import DuckLakeWriteOperator

_WHERE = {
    "DuckLakeCleanupOperator": "maintenance_operators",
    "DuckLakeExecuteOperator": "execute_operator",
    "DuckLakeExpireOperator": "maintenance_operators",
    "DuckLakeFlushOperator": "maintenance_operators",
    "DuckLakeHealthOperator": "maintenance_operators",
    "DuckLakeHook": "hook",
    "DuckLakeLayoutOperator": "maintenance_operators",
    "DuckLakeMaintenanceOperator": "maintenance_operators",
    "DuckLakeMergeFilesOperator": "maintenance_operators",
    "DuckLakeOrphansOperator": "maintenance_operators",
    "DuckLakePartitionSensor": "sensors",
    "DuckLakePublishOperator": "publish_operator",
    "DuckLakeRewriteOperator": "maintenance_operators",
    "DuckLakeSnapshotSensor": "sensors",
    "DuckLakeSnapshotTrigger": "triggers",
    "DuckLakeWriteOperator": "write_operator",
    "build_maintenance_dag": "maintenance_dag",
    "ducklake_asset": "assets",
    "maintenance_task_group": "maintenance_dag",
    "publication_task_group": "publication",
    "read_reference": "frame_references",
    "retry_policy": "task_run",
}

__all__ = [
    "DuckLakeCleanupOperator",
    "DuckLakeExecuteOperator",
    "DuckLakeExpireOperator",
    "DuckLakeFlushOperator",
    "DuckLakeHealthOperator",
    "DuckLakeHook",
    "DuckLakeLayoutOperator",
    "DuckLakeMaintenanceOperator",
    "DuckLakeMergeFilesOperator",
    "DuckLakeOrphansOperator",
    "DuckLakePartitionSensor",
    "DuckLakePublishOperator",
    "DuckLakeRewriteOperator",
    "DuckLakeSnapshotSensor",
    "DuckLakeSnapshotTrigger",
    "DuckLakeWriteOperator",
    "build_maintenance_dag",
    "ducklake_asset",
    "maintenance_task_group",
    "publication_task_group",
    "read_reference",
    "retry_policy",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        import airflow.sdk  # noqa: F401
    except ModuleNotFoundError as error:
        from ducklake_orch.errors import MissingExtraError
        from ducklake_orch.install_commands import install_extra

        raise MissingExtraError("Airflow is not installed.", remedy=install_extra("airflow")) from error
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return __all__
