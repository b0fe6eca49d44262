"""Check whether a Spark session reaches the lake's storage with its own credentials; it never gets the lake's."""

from typing import TYPE_CHECKING

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import AzureStorage, BucketStorage, GCSStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_prefixes(spark: "SparkSession", config: LakeConfig, path: str) -> tuple[str, str] | None:
    """Return the prefix of the lake's paths and Spark's replacement for it, None if Spark cannot reach them.

    Args:
        spark: The session.
        config: The lake.
        path: The path of an existing file.
    """
    if "://" not in path:
        return "/", "file:///"
    for prefixes in _spellings(config, path):
        if _reaches(spark, path.replace(*prefixes, 1)):
            return prefixes
    return None


def _spellings(config: LakeConfig, path: str) -> list[tuple[str, str]]:
    """Return the prefixes by which Hadoop's file systems may name a path."""
    storage = config.storage
    scheme = path.partition("://")[0]
    if isinstance(storage, AzureStorage):
        root = f"{scheme}://{storage.container}/"
        host = f"{storage.container}@{storage.account_name}.dfs.{storage.endpoint_suffix}"
        return [(root, f"abfss://{host}/")] if storage.account_name else []
    if isinstance(storage, GCSStorage):
        return [(f"{scheme}://", "gs://")]
    return [(f"{scheme}://", f"{one}://") for one in ("s3a", "s3")] if isinstance(storage, BucketStorage) else []


def _reaches(spark: "SparkSession", uri: str) -> bool:
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
