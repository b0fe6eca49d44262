"""The metadata of a table as DataFrames: `t.snapshots`, `t.history`, `t.files`, `t.partitions`."""

import json
from typing import TYPE_CHECKING, Any

from ducklake_orch.catalog.scan import reading_table, table_files, table_partitions
from ducklake_orch.engine import introspection
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.results import Snapshot
from ducklake_orch.spark.sql.lake_moment import LakeMoment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SNAPSHOTS = (
    "snapshot_id BIGINT, snapshot_time TIMESTAMP, schema_version BIGINT, changes ARRAY<STRING>, author STRING,"
    " message STRING, extra STRING"
)
_FILES = "path STRING, row_count BIGINT, bytes BIGINT, partition MAP<STRING, STRING>, deletes BIGINT, snapshot BIGINT"
_PARTITIONS = "partition MAP<STRING, STRING>, row_count BIGINT, files BIGINT, bytes BIGINT"
METADATA_TABLES = ("snapshots", "history", "files", "partitions")


def metadata_frame(spark: "SparkSession", moment: LakeMoment, name: TableName, kind: str) -> "DataFrame":
    """Return a metadata table of a table as a DataFrame.

    Args:
        spark: The session.
        moment: The lake.
        name: The table.
        kind: One of `METADATA_TABLES`.
    """
    rows, schema = _rows(moment, name, kind)
    return spark.createDataFrame(rows, schema)


def _rows(moment: LakeMoment, name: TableName, kind: str) -> tuple[list[tuple[Any, ...]], str]:
    if kind in ("snapshots", "history"):
        with moment.lake.reading(moment.snapshot) as session:
            snapshots = introspection.snapshots(session)
        table = moment.tables[name.key]
        own = TableName(table.schema, table.name)
        return [
            _snapshot(snapshot)
            for snapshot in snapshots
            if kind == "snapshots" or introspection.concerns(snapshot, table.table_id, own)
        ], _SNAPSHOTS
    with moment.lake.reading(moment.snapshot, entering=False) as session, reading_table(session, name) as state:
        if kind == "files":
            return [
                (file.path, file.rows, file.bytes, dict(file.partition), file.deletes, file.snapshot)
                for file in table_files(*state)
            ], _FILES
        return [
            (dict(partition.values), partition.rows, partition.files, partition.bytes)
            for partition in table_partitions(*state)
        ], _PARTITIONS


def _snapshot(snapshot: Snapshot) -> tuple[Any, ...]:
    extra = snapshot.extra if snapshot.extra is None else json.dumps(snapshot.extra)
    return (
        snapshot.snapshot_id,
        snapshot.snapshot_time,
        snapshot.schema_version,
        snapshot.changes,
        snapshot.author,
        snapshot.message,
        extra,
    )
