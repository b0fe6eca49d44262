"""Check whether Spark's tasks can reach a lake's storage, which this process always can."""

from typing import Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import BucketStorage
from ducklake_orch.errors import UnsupportedStatementError
from ducklake_orch.spark.session import is_local


def check_reachable(config: LakeConfig) -> None:
    """Refuse a storage that Spark's tasks cannot reach."""
    storage = config.storage
    if storage is None:
        raise UnsupportedStatementError(
            f"Lake `{config.name}` keeps its files at MotherDuck, where Spark's tasks cannot write.",
            remedy="Give the lake a bucket of your own (`mode` = `own_bucket` or `own_compute`).",
        )
    if isinstance(storage, BucketStorage) and storage.secret_name:
        raise UnsupportedStatementError(
            f"The secret `{storage.secret_name}` is in the engine of this process; Spark's tasks do not have it.",
            remedy="Configure credentials of the storage, or `provider` = `credential_chain`.",
        )


def are_reached(config: LakeConfig, spark: Any) -> bool:
    """Whether tasks certainly reach the files and support every SQL that this process supports."""
    path, storage = config.data_path, config.storage
    if config.on_connect is not None or config.extensions:
        return False  # tasks do not have the SQL that these add
    if path is None or ("://" not in path and not is_local(spark)):
        return False
    return not (isinstance(storage, BucketStorage) and storage.secret_name)
