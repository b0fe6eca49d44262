"""Find the files whose partition values Spark can take from their paths: `PathPartitions`.

Spark then reads these columns as partition columns of its relation. It opens no file of a partition that a filter
excludes, neither a filter on the DataFrame nor the other side of a join (dynamic partition pruning).
"""

import re
from collections.abc import Sequence
from functools import cached_property

from ducklake_orch.catalog.metadata import NULL_FOLDER, DataFile
from ducklake_orch.catalog.parquet import PartitionKey, StoredColumn, partition_keys
from ducklake_orch.catalog.scan import ScanPlan

# Names and values that are the same in a path as in the catalog, by type, and that Spark parses to the same value.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUES = {
    "varchar": re.compile(r"[A-Za-z0-9_.~-]+"),
    "date": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    "int32": re.compile(r"-?[0-9]+"),
    "int64": re.compile(r"-?[0-9]+"),
}


class PathPartitions:
    """The partition columns of a scan.

    Args:
        plan: The scan.
    """

    def __init__(self, plan: ScanPlan) -> None:
        self._table = plan.table
        self._needed = {column.column_id for column in plan.needed}

    def has_values_in_path(self, file: DataFile, stored: Sequence[StoredColumn]) -> bool:
        """Whether the folders of a file show the values of all partition keys, under the names of its columns.

        Args:
            file: The file.
            stored: How it stores the columns.
        """
        spec, keys, folder = self._table.partition, self._keys, self._table.folder
        if not keys or spec is None or file.partition_id != spec.partition_id or file.mapping_id is not None:
            return False
        if not file.path.startswith(folder):
            return False
        folders = file.path.removeprefix(folder).split("/")[:-1]
        if len(folders) != len(keys) or len(file.partition_values) != len(keys):
            return False
        names = {column.column.column_id: column.name for column in stored}
        return all(
            names[key.field.column_id] == key.folder and _shows(part, key, value)
            for part, key, value in zip(folders, keys, file.partition_values, strict=True)
        )

    @cached_property
    def _keys(self) -> list[PartitionKey]:
        """The keys if all are columns to read, of types whose values Spark parses, else none."""
        keys = partition_keys(self._table)
        usable = all(
            key.is_identity
            and key.column.type in _VALUES
            and _NAME.fullmatch(key.folder)
            and key.field.column_id in self._needed
            for key in keys
        )
        return keys if usable else []


def _shows(folder: str, key: PartitionKey, value: str | None) -> bool:
    if value is None:
        return folder == f"{key.folder}={NULL_FOLDER}"
    is_plain = _VALUES[key.column.type].fullmatch(value) is not None and value != NULL_FOLDER
    return is_plain and folder == f"{key.folder}={value}"
