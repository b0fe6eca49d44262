"""The metadata keys with which Dagster and Airflow report a write; each host adds its own."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

from ducklake_orch.engine.quoting import TableName
from ducklake_orch.results import WriteResult

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake


def bounded_key(begin: str, *parts: Any) -> str:
    """Return an idempotency key of bounded length: a readable beginning and a hash of all parts."""
    return f"{begin}:{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def table_address(lake: "DuckLake", table: TableName) -> str:
    """Return the name of the table in SQL, with the alias of the attached lake."""
    return f"{lake.config.alias}.{table}"


def result_metadata(
    lake: "DuckLake", table: TableName, result: WriteResult
) -> dict[str, str | int | float | bool | None]:
    """Return the metadata that every write has, as plain values by name."""
    metadata: dict[str, str | int | float | bool | None] = {
        "dagster/table_name": table_address(lake, table),
        "dagster/storage_kind": "ducklake",
        "ducklake/snapshot_id": result.snapshot_id,
        "ducklake/previous_snapshot_id": result.previous_snapshot_id,
        "ducklake/rows_written": result.rows_written,
        "ducklake/rows_removed": result.rows_removed,
        "ducklake/files_added": result.files_added,
        "ducklake/files_removed": result.files_removed,
        "ducklake/bytes_written": result.bytes_written,
        "ducklake/write_mode": result.mode,
        "ducklake/engine": result.engine,
        "ducklake/attempts": result.attempts,
        "ducklake/replayed": result.replayed,
        "ducklake/seconds": round(result.duration_s, 3),
        "ducklake/seconds_planning": round(result.timings.plan_s, 3),
        "ducklake/seconds_waiting": round(result.timings.wait_s, 3),
        "ducklake/seconds_files": round(result.timings.files_s, 3),
        "ducklake/seconds_committing": round(result.timings.commit_s, 3),
    }
    if lake.config.data_path is not None:
        metadata["dagster/uri"] = lake.config.data_path
    return metadata
