"""Check who reaches a lake's storage: Spark's tasks with the lake's credentials, and Spark itself with its own."""

from typing import TYPE_CHECKING, Any

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import AzureStorage, BucketStorage, GCSStorage
from ducklake_orch.errors import UnsupportedStatementError
from ducklake_orch.spark.session import is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def check_reachable(config: LakeConfig) -> None:
    """Refuse a storage that Spark's tasks cannot reach."""
    if config.storage is None:
        raise UnsupportedStatementError(
            f"Lake `{config.name}` keeps its files at MotherDuck, where Spark's tasks cannot write.",
            remedy="Give the lake a bucket of your own (`mode` = `own_bucket` or `own_compute`).",
        )
    refuse_local_secret(config)


def refuse_local_secret(config: LakeConfig) -> None:
    """Refuse a storage whose secret exists only in this process."""
    storage = config.storage
    if isinstance(storage, BucketStorage) and storage.secret_name:
        raise UnsupportedStatementError(
            f"The secret `{storage.secret_name}` exists only in this process, not in Spark's tasks.",
            remedy="Configure the storage's credentials, or `provider` = `credential_chain`.",
        )


def is_reachable(config: LakeConfig, spark: Any) -> bool:
    """Whether tasks certainly reach the files and support every SQL that this process supports."""
    path, storage = config.data_path, config.storage
    if config.on_connect is not None or config.extensions:
        return False  # tasks do not have the SQL that these add
    if path is None or ("://" not in path and not is_local(spark)):
        return False
    return not (isinstance(storage, BucketStorage) and storage.secret_name)


def spark_prefixes(spark: "SparkSession", config: LakeConfig, path: str) -> tuple[str, str] | None:
    """Return the prefix of the lake's paths and Spark's replacement for it, None if Spark cannot reach them.

    Spark never gets the lake's credentials.

    Args:
        spark: The session.
        config: The lake.
        path: The path of an existing file.
    """
    if "://" not in path:
        return "/", "file:///"
    for prefixes in _prefix_candidates(config, path):
        if _can_open(spark, path.replace(*prefixes, 1)):
            return prefixes
    return None


def _prefix_candidates(config: LakeConfig, path: str) -> list[tuple[str, str]]:
    """Return the prefixes by which Hadoop's file systems may name a path."""
    storage = config.storage
    scheme = path.partition("://")[0]
    if isinstance(storage, AzureStorage):
        root = f"{scheme}://{storage.container}/"
        host = f"{storage.container}@{storage.account_name}.dfs.{storage.endpoint_suffix}"
        return [(root, f"abfss://{host}/")] if storage.account_name else []
    if isinstance(storage, GCSStorage):
        return [(f"{scheme}://", "gs://")]
    return [(f"{scheme}://", f"{hadoop}://") for hadoop in ("s3a", "s3")] if isinstance(storage, BucketStorage) else []


def _can_open(spark: "SparkSession", uri: str) -> bool:
    from pyspark.errors import PySparkException

    try:
        # Asking for the schema makes every kind of session search for the file; some do not search earlier.
        return bool(spark.read.schema("probe BIGINT").parquet(uri).schema)
    except PySparkException:
        return False
    except Exception as error:  # raised by Java, when a class that the file system needs is missing
        if type(error).__module__.startswith("py4j"):
            return False
        raise
