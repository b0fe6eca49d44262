"""Converts the partition keys of a host (Dagster or Airflow) to conditions on table rows. It imports no host."""

from ducklake_orch.host_partitions.key_columns import (
    PartitionColumn,
    partition_columns,
    partition_transforms,
    written_columns,
)
from ducklake_orch.host_partitions.slice_condition import condition
from ducklake_orch.host_partitions.slice_model import Key, Slice, Window, multi_key, split_multi_key

__all__ = [
    "Key",
    "PartitionColumn",
    "Slice",
    "Window",
    "condition",
    "multi_key",
    "partition_columns",
    "partition_transforms",
    "split_multi_key",
    "written_columns",
]
