"""Runs assets with Dagster, and inspects the results."""

from collections.abc import Sequence
from typing import Any

import dagster as dg
import pytest

from tests.support.backends import LOCAL, POSTGRES, S3_DISK, SQLITE, Backend

FAR = Backend(POSTGRES, S3_DISK)
# For tests of the central guarantees: a lake on SQLite, and one on a server with a bucket.
central = pytest.mark.parametrize("resource", [Backend(SQLITE, LOCAL), FAR], indirect=True, ids=str)


def metadata_of(result: dg.ExecuteInProcessResult, key: str, partition: str | None = None) -> dict[str, Any]:
    """Return the metadata of an asset's materialization."""
    materializations = [
        event.step_materialization_data.materialization
        for event in result.get_asset_materialization_events()
        if event.asset_key == dg.AssetKey(key.split("/")) and event.partition == partition
    ]
    assert len(materializations) == 1
    return {name: getattr(value, "value", value) for name, value in materializations[0].metadata.items()}


def materialize_range(assets: Sequence[Any], first: str, last: str, **options: Any) -> dg.ExecuteInProcessResult:
    """Materialize a range of partitions in one run, as a backfill with `single_run` does."""
    tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}
    return dg.materialize(assets, tags=tags, **options)


def failure_of(result: dg.ExecuteInProcessResult) -> Any:
    """Return the error of the only failed step."""
    assert not result.success
    events = [event for event in result.all_events if event.is_step_failure]
    assert len(events) == 1
    return events[0].step_failure_data
