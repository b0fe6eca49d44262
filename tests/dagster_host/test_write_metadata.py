"""Metadata that configure a write, in the definition and at run time, and the metadata of its snapshot."""

from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import failure_of, materialize_range

ROWS = pa.table({"id": [2, 1], "name": ["b", "a"]})
WIDE = pa.table({"id": [3], "name": ["b"], "more": [1.5]})


class Writer:
    """An asset that writes given rows, with the metadata of its definition."""

    def __init__(self, manager: DuckLakeIOManager, **metadata: Any) -> None:
        self.resources = {"io_manager": manager}
        self.run_time_metadata: dict[str, Any] = {}

        @dg.asset(metadata=metadata)
        def t(context: dg.AssetExecutionContext) -> pa.Table:
            context.add_output_metadata(self.run_time_metadata)
            return self.rows

        self.asset = t

    def write(self, rows: pa.Table, **run_time_metadata: Any) -> dg.ExecuteInProcessResult:
        """Write rows, with metadata added at run time."""
        self.rows, self.run_time_metadata = rows, run_time_metadata
        return dg.materialize([self.asset], resources=self.resources, raise_on_error=False)


def names(resource: DuckLakeResource) -> list[str]:
    return sorted(row["name"] for row in resource.lake().read("t").to_pylist())


@pytest.mark.parametrize("at_run_time", [False, True])
def test_schema_evolution_metadata_add_new_columns(
    at_run_time: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    writer = Writer(io_manager, write_mode="append", schema_evolution="error" if at_run_time else "add")
    assert writer.write(ROWS).success
    if at_run_time:
        assert "more" in failure_of(writer.write(WIDE)).user_failure_data.description
    assert writer.write(WIDE, **({"schema_evolution": "add"} if at_run_time else {})).success
    assert sorted(map(str, resource.lake().read("t")["more"].to_pylist())) == ["1.5", "None", "None"]


@pytest.mark.parametrize("at_run_time", [False, True])
def test_layout_metadata_sort_and_partition_a_new_table(
    at_run_time: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    layout = {"sort_by": ["id"], "partition_by": ["bucket(2, name)"]}
    writer = Writer(io_manager, **({"sort_by": ["name"], "partition_by": ["name"]} if at_run_time else layout))
    same = pa.table({"id": [3, 1, 2], "name": ["a", "a", "a"]})
    assert writer.write(same, **(layout if at_run_time else {})).success
    lake = resource.lake()
    assert lake.read("t")["id"].to_pylist() == [1, 2, 3]
    assert [column.partition for column in lake.table("t").schema()] == [None, "bucket(2)"]


@pytest.mark.parametrize("at_run_time", [False, True])
def test_overwrite_partitions_replaces_only_partitions_in_the_data(
    at_run_time: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    mode = {"write_mode": "overwrite_partitions"}
    writer = Writer(io_manager, partition_by=["name"], **({"write_mode": "append"} if at_run_time else mode))
    for rows in (ROWS, pa.table({"id": [7, 8], "name": ["b", "c"]})):
        assert writer.write(rows, **(mode if at_run_time else {})).success
    assert sorted(resource.lake().read("t")["id"].to_pylist()) == [1, 7, 8]


@pytest.mark.parametrize("at_run_time", [False, True])
def test_replace_where_replaces_only_rows_that_match(
    at_run_time: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    where = {"where": "name = 'b'", "write_mode": "replace_where"}
    writer = Writer(io_manager, **({"write_mode": "overwrite"} if at_run_time else where))
    assert writer.write(ROWS, where="true", write_mode="replace_where").success
    run_time_metadata = where if at_run_time else {}
    assert writer.write(pa.table({"id": [5, 6], "name": ["b", "b"]}), **run_time_metadata).success
    assert names(resource) == ["a", "b", "b"]
    assert not writer.write(ROWS, **run_time_metadata).success  # the row `a` does not match `where`
    assert names(resource) == ["a", "b", "b"]


def test_merge_keys_may_be_given_at_run_time(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    writer = Writer(io_manager)
    assert writer.write(ROWS).success
    rows = pa.table({"id": [2, 3], "name": ["z", "c"]})
    assert writer.write(rows, write_mode="merge", merge_keys=["id"]).success
    assert names(resource) == ["a", "c", "z"]


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
def test_a_snapshot_records_job_partitions_and_dagster_version(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    numbers = dg.StaticPartitionsDefinition([f"{number:03}" for number in range(150)])

    @dg.asset(
        partitions_def=numbers,
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "key"},
    )
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"key": list(context.partition_keys)})

    job = dg.Definitions([t], jobs=[dg.define_asset_job("t_job", [t])], resources={"io_manager": io_manager})
    result = job.resolve_job_def("t_job").execute_in_process(partition_key="007")
    single = resource.lake().snapshots(1)[0].extra["dagster"]
    assert (single["run_id"], single["job"], single["step"], single["output"]) == (
        result.run_id,
        "t_job",
        "t",
        "result",
    )
    assert (single["asset"], single["partitions"], single["partition_count"]) == ("t", ["007"], 1)
    assert single["version"] == dg.__version__
    materialize_range([t], "000", "149", resources={"io_manager": io_manager})
    many = resource.lake().snapshots(1)[0].extra["dagster"]
    assert (many["partitions"], many["partition_count"]) == ([f"{number:03}" for number in range(100)], 150)
