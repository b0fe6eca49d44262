"""Whether a Spark session reaches the lake's storage by itself: no credential of the lake is ever put into it."""

from typing import TYPE_CHECKING

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.storages import AzureStorage, BucketStorage, GCSStorage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def spark_prefixes(spark: "SparkSession", config: LakeConfig, path: str) -> tuple[str, str] | None:
    """Return how paths of the lake begin and what Spark has there instead, None where Spark does not get there.

    Args:
        spark: The session.
        config: The lake.
        path: Of a file that is there.
    """
    if "://" not in path:
        return "/", "file:///"
    for prefixes in _spellings(config, path):
        if _reaches(spark, path.replace(*prefixes, 1)):
            return prefixes
    return None


def _spellings(config: LakeConfig, path: str) -> list[tuple[str, str]]:
    """Return how Hadoop's file systems may spell the beginning of a path."""
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
        # Spark looks for the file when it has to know the schema, and not before in every kind of session.
        return bool(spark.read.schema("probe BIGINT").parquet(uri).schema)
    except PySparkException:
        return False
    except Exception as error:  # of Java, when a class that the file system needs is missing
        if type(error).__module__.startswith("py4j"):
            return False
        raise
