"""What an input reads: rows of an earlier time, some rows and columns, and one frame for each partition."""

from datetime import UTC, datetime
from typing import Any, Optional

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import failure_of, materialize_range

KEYS = dg.StaticPartitionsDefinition(["c", "a", "b"])
GRID = dg.MultiPartitionsDefinition({"y": dg.StaticPartitionsDefinition(["1", "2"]), "x": KEYS})


class Reader:
    """An asset that reads the table `orders`."""

    def __init__(self, manager: DuckLakeIOManager) -> None:
        self.resources = {"io_manager": manager}

    def run(self, settings: dict[str, Any], kind: Any = pa.Table, **orders: Any) -> tuple[Any, str]:
        """Return what the asset gets, and the error if it gets nothing."""
        seen: list[Any] = []

        def sink(orders: Any) -> None:
            seen.append(orders)

        sink.__annotations__ = {"orders": kind, "return": None}
        asset = dg.asset(ins={"orders": dg.AssetIn(metadata=settings)})(sink)
        result = dg.materialize(
            [dg.AssetSpec("orders", **orders), asset], resources=self.resources, raise_on_error=False
        )
        if result.success:
            return seen[0], ""
        failure = failure_of(result)
        return None, f"{failure.error} {failure.user_failure_data}"

    def ids(self, metadata: dict[str, Any]) -> list[int]:
        """Return the ids that the asset reads."""
        return sorted(self.run(metadata)[0]["id"].to_pylist())


@pytest.fixture
def reader(io_manager: DuckLakeIOManager) -> Reader:
    return Reader(io_manager)


@pytest.fixture
def times(resource: DuckLakeResource) -> list[tuple[int, datetime]]:
    """Two snapshots of `orders`, each with the time right after it."""
    found = []
    for ids in ([1, 2], [3]):
        result = resource.lake().write(pa.table({"id": ids}), "orders", mode="overwrite")
        found.append((result.snapshot_id, datetime.now(UTC)))
    return found


def test_an_input_reads_an_earlier_snapshot_or_time(
    reader: Reader, resource: DuckLakeResource, times: list[tuple[int, datetime]]
) -> None:
    snapshot, moment = times[0]
    assert reader.ids({}) == [3]
    for prefix in ("", "ducklake/"):
        assert reader.ids({f"{prefix}snapshot": snapshot, "mine": "x"}) == [1, 2]
        assert reader.ids({f"{prefix}as_of": moment.isoformat()}) == [1, 2]
    assert reader.ids({"as_of": dg.MetadataValue.timestamp(moment)}) == [1, 2]
    resource.lake().tag("q3", snapshot)
    assert reader.ids({"tag": "q3"}) == [1, 2]


def test_an_input_reads_rows_that_meet_its_condition(reader: Reader, times: list[tuple[int, datetime]]) -> None:
    rows, _ = reader.run({"snapshot": times[0][0], "where": "id > 1 OR id < 0 -- or none", "columns": ["id"]})
    assert rows.to_pydict() == {"id": [2]}


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"snapshots": 1}, "Did you mean `snapshot`?"),
        ({"ducklake/snapshots": 1}, "Did you mean `snapshot`?"),
        ({"as-of": "2024-01-01"}, "Did you mean `as_of`?"),
        ({"write_mode": "append"}, "not a setting"),
        ({"snapshot": "first"}, "not a snapshot id"),
        ({"as_of": 5}, "not a time"),
        ({"tag": 5}, "not a name"),
        ({"as_of": "2024-01-01T00:00:00"}, "no time zone"),
        ({"as_of": "2024-01-01T00:00:00Z", "snapshot": 1}, "cannot be combined"),
        ({"where": ["id"]}, "not a condition"),
        ({"where": "no_such_column = 1"}, "no_such_column"),
    ],
)
def test_invalid_settings_of_an_input_are_refused(
    metadata: dict[str, Any], words: str, reader: Reader, times: list[tuple[int, datetime]]
) -> None:
    assert words in reader.run(metadata)[1]


@pytest.mark.parametrize("kind", [Optional[pa.Table], pa.Table | None, pd.DataFrame | None])  # noqa: UP045
def test_an_optional_input_is_none_until_its_table_exists(
    kind: Any, reader: Reader, resource: DuckLakeResource
) -> None:
    assert reader.run({}, kind) == (None, "")
    resource.lake().write(pa.table({"id": [1]}), "orders", mode="append")
    assert len(reader.run({}, kind)[0]) == 1


def test_an_input_without_its_table_is_refused(reader: Reader) -> None:
    assert "orders" in reader.run({}, pa.Table)[1]


@pytest.mark.parametrize(
    "kind", [int, dict, list[int], dict[int, pa.Table], list[list[pa.Table]], dict[str, pa.Table | None]]
)
def test_an_annotation_that_names_no_frames_is_refused(
    kind: Any, reader: Reader, times: list[tuple[int, datetime]]
) -> None:
    _, error = reader.run({}, kind)
    assert "cannot be read as" in error
    assert "dict[str, …]" in error


@pytest.mark.parametrize("kind", [list[pa.Table], dict[str, pa.Table]])
def test_frames_by_partition_need_a_partitioned_input(
    kind: Any, reader: Reader, times: list[tuple[int, datetime]]
) -> None:
    assert "one for each partition" in reader.run({}, kind)[1]


def partitioned(definition: dg.PartitionsDefinition, expression: Any, rows: pa.Table) -> dg.AssetsDefinition:
    @dg.asset(
        name="orders",
        partitions_def=definition,
        metadata={"partition_expr": expression},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def orders() -> pa.Table:
        return rows

    return orders


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
@pytest.mark.parametrize("frame", [pa.Table, pd.DataFrame, pl.DataFrame, duckdb.DuckDBPyRelation, Any])
def test_an_input_has_a_frame_for_each_partition(
    frame: Any, reader: Reader, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    rows = pa.table({"id": [1, 2, 3], "key": ["a", "a", "b"]})
    materialize_range([partitioned(KEYS, "key", rows)], "c", "b", resources={"io_manager": io_manager})
    orders: dict[str, Any] = {"partitions_def": KEYS, "metadata": {"partition_expr": "key"}}
    found, error = reader.run({"where": "id <> 2"}, dict[str, frame], **orders)
    assert not error
    assert {key: len(part) for key, part in found.items()} == {"c": 0, "a": 1, "b": 1}
    assert list(found) == ["c", "a", "b"]
    listed, _ = reader.run({}, list[frame], **orders)
    assert [len(part) for part in listed] == [0, 2, 1]


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
def test_frames_of_several_dimensions_have_dagsters_keys(reader: Reader, resource: DuckLakeResource) -> None:
    resource.lake().write(pa.table({"a": ["a", "b"], "n": [1, 2]}), "orders", mode="append")
    metadata = {"partition_expr": {"x": "a", "y": "n"}}
    found, _ = reader.run({}, dict[str, pa.Table], partitions_def=GRID, metadata=metadata)
    assert list(found) == list(map(str, GRID.get_partition_keys()))
    assert {key for key, part in found.items() if len(part)} == {"a|1", "b|2"}


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
def test_all_partitions_are_read_at_one_snapshot(
    reader: Reader, resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = resource.lake()
    lake.write(pa.table({"key": ["a", "b", "c"]}), "orders", mode="append")
    from ducklake_orch.dagster import input_read
    from ducklake_orch.host_partitions.frame_kinds import read_as

    def read_and_write(*arguments: Any, **options: Any) -> Any:
        rows = read_as(*arguments, **options)
        lake.write(pa.table({"key": ["a", "b", "c"]}), "orders", mode="append")
        return rows

    monkeypatch.setattr(input_read, "read_as", read_and_write)
    metadata = {"partition_expr": "key"}
    found, _ = reader.run({}, dict[str, pa.Table], partitions_def=KEYS, metadata=metadata)
    assert [len(part) for part in found.values()] == [1, 1, 1]
