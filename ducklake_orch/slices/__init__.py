"""From the partition keys of a host to the rows of a table; no host is imported."""

from ducklake_orch.slices.columns import PartitionColumn, partition_columns, partition_transforms
from ducklake_orch.slices.condition import condition
from ducklake_orch.slices.model import Key, Slice, Window, multi_key, split_multi_key

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
]
