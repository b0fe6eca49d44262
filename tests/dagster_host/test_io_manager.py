"""The IO manager: table names, write modes, metadata, kinds of frames, and failures."""

import inspect
from datetime import date
from typing import Any

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dagster_shared.libraries import DagsterLibraryRegistry

import ducklake_orch
from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource, with_table_names
from ducklake_orch.dagster.table_names import specs_of
from tests.support.dagster_runs import central, failure_of, materialize_range, metadata_of

TWO = pa.table({"id": [1, 2], "name": ["a", None]})


def rows(resource: DuckLakeResource, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = resource.lake().read(table).to_pylist()
    return sorted(found, key=str)


@central
def test_an_asset_is_a_table_and_an_input_reads_it(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.asset(key_prefix="sales")
    def orders() -> pa.Table:
        return TWO

    @dg.asset(key_prefix=["any", "sales"], ins={"given": dg.AssetIn(key=orders.key)})
    def twice(given: pa.Table) -> pa.Table:
        return pa.concat_tables([given, given])

    @dg.asset(ins={"given": dg.AssetIn(key=twice.key)})
    def plain(given: pa.Table) -> pa.Table:
        return given.select(["id"])

    for _ in range(2):  # the second run replaces the rows of the first
        assert dg.materialize([orders, twice, plain], resources={"io_manager": io_manager}).success
        assert rows(resource, "sales.orders") == TWO.to_pylist()
        assert [row["id"] for row in rows(resource, "sales.twice")] == [1, 1, 2, 2]
        assert [row["id"] for row in rows(resource, "main.plain")] == [1, 1, 2, 2]


def test_metadata_name_schema_and_table(resource: DuckLakeResource) -> None:
    @dg.asset(metadata={"schema": "other", "table": "t"}, key_prefix="sales")
    def orders() -> pa.Table:
        return TWO

    @dg.asset(ins={"orders": dg.AssetIn(key=dg.AssetKey(["sales", "orders"]), metadata={"columns": ["id"]})})
    def ids(orders: pa.Table) -> pa.Table:
        assert orders.column_names == ["id"]
        return orders

    manager = DuckLakeIOManager(lake=resource, schema="mine")
    assert dg.materialize([orders, ids], resources={"io_manager": manager}).success
    assert {(table.schema, table.table) for table in resource.lake().tables()} == {("other", "t"), ("mine", "ids")}


def test_definitions_and_events_name_the_same_tables(io_manager: DuckLakeIOManager) -> None:
    @dg.asset(key_prefix="sales", metadata={"table": "t", "mine": 1})
    def orders() -> pa.Table:
        return TWO

    named = with_table_names([orders, dg.AssetSpec("x")], alias="lake")
    assert [spec.metadata["dagster/table_name"] for spec in specs_of(named)] == ["lake.sales.t", "lake.main.x"]
    for spec in specs_of(named):
        assert spec.metadata["dagster/storage_kind"] == "ducklake"
    assert specs_of(named)[0].metadata["mine"] == 1
    result = dg.materialize([named[0]], resources={"io_manager": io_manager})
    assert metadata_of(result, "sales/orders")["dagster/table_name"] == "lake.sales.t"


def test_dagster_lists_the_package_among_its_libraries() -> None:
    assert DagsterLibraryRegistry.get()["ducklake-orch"] == ducklake_orch.__version__


@pytest.mark.parametrize(
    ("kind", "frame"),
    [
        (pa.Table, lambda: TWO),
        (pa.RecordBatchReader, TWO.to_reader),
        (pd.DataFrame, TWO.to_pandas),
        (pl.DataFrame, lambda: pl.from_arrow(TWO)),
        (pl.LazyFrame, lambda: pl.from_arrow(TWO).lazy()),  # type: ignore[union-attr]
        (duckdb.DuckDBPyRelation, lambda: duckdb.connect().from_arrow(TWO)),
    ],
)
@pytest.mark.parametrize("partitioned", [False, True])
def test_every_kind_of_frame_is_stored_and_loaded(
    kind: Any, frame: Any, partitioned: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    static = dg.StaticPartitionsDefinition(["1", "2"]) if partitioned else None
    seen: list[Any] = []

    source = dg.asset(name="source")(lambda: frame())
    if partitioned:
        # All rows belong to one partition.
        metadata = {"partition_expr": "id % 1 + 1"}
        source = dg.asset(name="source", partitions_def=static, metadata=metadata)(lambda: frame())

    def reads(source: Any) -> None:
        seen.append(source)

    reads.__annotations__ = {"source": kind, "return": None}
    sink = dg.asset(partitions_def=static, name="sink")(reads)
    key = "1" if partitioned else None
    assert dg.materialize([source, sink], resources={"io_manager": io_manager}, partition_key=key).success
    assert isinstance(seen[0], kind)
    assert rows(resource, "source") == TWO.to_pylist()
    columns = seen[0].collect_schema().names() if kind is pl.LazyFrame else None
    assert columns in (None, ["id", "name"])


def test_op_outputs_are_stored_as_tables(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.op(out=dg.Out(metadata={"schema": "ops", "table": "made"}))
    def make() -> pa.Table:
        return TWO

    @dg.op
    def take(made: pa.Table) -> None:
        assert made.to_pylist() == TWO.to_pylist()

    @dg.job(resource_defs={"io_manager": io_manager})
    def both() -> None:
        take(make())

    for _ in range(2):
        assert both.execute_in_process().success
    assert rows(resource, "ops.made") == TWO.to_pylist()


def test_multi_assets_and_results_keep_their_metadata(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    @dg.multi_asset(outs={"one": dg.AssetOut(), "two": dg.AssetOut(metadata={"write_mode": "append"})})
    def several() -> Any:
        yield dg.Output(TWO, "one", metadata={"mine": 1})
        yield dg.Output(TWO, "two")

    @dg.asset
    def valued() -> Any:
        return dg.MaterializeResult(value=TWO, metadata={"mine": 2})

    @dg.asset
    def nothing() -> None:
        return None

    for _ in range(2):
        result = dg.materialize([several, valued, nothing], resources={"io_manager": io_manager})
    assert metadata_of(result, "one")["mine"] == 1
    assert metadata_of(result, "valued")["mine"] == 2
    assert [metadata_of(result, key)["dagster/row_count"] for key in ("one", "two", "valued")] == [2, 4, 2]
    assert not resource.lake().exists("nothing")


@central
def test_a_materialization_event_describes_the_write(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.asset(metadata={"preview": 5, "partition_by": ["name"]})
    def orders() -> pa.Table:
        return TWO

    result = dg.materialize([orders], resources={"io_manager": io_manager})
    metadata = metadata_of(result, "orders")
    snapshot = resource.lake().snapshots(1)[0]
    assert metadata["dagster/table_name"] == "lake.main.orders"
    assert metadata["dagster/row_count"] == metadata["ducklake/rows_written"] == 2
    assert metadata["ducklake/snapshot_id"] == snapshot.snapshot_id
    assert metadata["ducklake/write_mode"] == "overwrite"
    assert (metadata["ducklake/attempts"], metadata["ducklake/replayed"], metadata["ducklake/files_added"]) == (
        1,
        False,
        2,
    )
    schema = metadata["dagster/column_schema"]
    assert [(column.name, column.type) for column in schema.columns] == [("id", "BIGINT"), ("name", "VARCHAR")]
    assert schema.columns[1].tags["partition"]
    assert metadata["ducklake/preview"].splitlines()[0] == "| id | name |"
    about = snapshot.extra["dagster"]
    assert (about["run_id"], about["asset"], about["output"]) == (result.run_id, "orders", "result")
    assert result.run_id in (snapshot.message or "")


def test_table_comment_and_column_lineage_are_recorded(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    lineage = dg.TableColumnLineage({"id": [dg.TableColumnDep(asset_key=dg.AssetKey("raw"), column_name="key")]})
    comments = ["it's mine", "it's mine", "ours"]

    @dg.asset(metadata={"dagster/column_lineage": lineage})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata({"comment": comments.pop(0)})
        return TWO

    for comment, snapshots in (("it's mine", 3), ("it's mine", 4), ("ours", 6)):
        result = dg.materialize([orders], resources={"io_manager": io_manager})
        assert [table.comment for table in resource.lake().tables()] == [comment]
        assert len(resource.lake().snapshots()) == snapshots
    assert metadata_of(result, "orders")["dagster/column_lineage"] == lineage


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
def test_a_schema_may_share_the_name_of_its_lake(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.asset(
        key_prefix="lake",
        partitions_def=dg.StaticPartitionsDefinition(["1", "2"]),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "id", "comment": "mine", "preview": True},
    )
    def orders() -> pa.Table:
        return TWO

    result = materialize_range([orders], "1", "2", resources={"io_manager": io_manager})
    assert metadata_of(result, "lake/orders", "2")["dagster/partition_row_count"] == 1
    assert resource.lake().tables()[0].comment == "mine"


def test_run_time_metadata_override_the_write_mode(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    @dg.asset(metadata={"write_mode": "overwrite"})
    def events(context: dg.AssetExecutionContext) -> pa.Table:
        context.add_output_metadata({"write_mode": "append"})
        return TWO

    for _ in range(2):
        dg.materialize([events], resources={"io_manager": io_manager})
    assert len(rows(resource, "events")) == 4


@central
def test_a_merge_matches_rows_by_merge_keys(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    frames = [TWO, pa.table({"name": ["b", "c"], "id": [2, 3]})]

    @dg.asset(metadata={"write_mode": "merge", "merge_keys": ["id"]})
    def customers() -> pa.Table:
        return frames.pop(0)

    for _ in range(2):
        result = dg.materialize([customers], resources={"io_manager": io_manager})
    assert [(row["id"], row["name"]) for row in rows(resource, "customers")] == [(1, "a"), (2, "b"), (3, "c")]
    assert metadata_of(result, "customers")["dagster/row_count"] == 3


def test_columns_are_matched_by_name(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    frames = [pa.table({"a": [1], "b": [2]}), pa.table({"b": [4], "a": [3]})]

    @dg.asset
    def swapped() -> pa.Table:
        return frames.pop(0)

    for _ in range(2):
        dg.materialize([swapped], resources={"io_manager": io_manager})
    assert rows(resource, "swapped") == [{"a": 3, "b": 4}]


@central
def test_a_terminal_error_is_not_retried(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    ran = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=3))
    def orders() -> pa.Table:
        ran.append(1)
        return TWO if len(ran) == 1 else TWO.append_column("more", pa.array([1, 2]))

    assert dg.materialize([orders], resources={"io_manager": io_manager}).success
    result = dg.materialize([orders], resources={"io_manager": io_manager}, raise_on_error=False)
    failure = failure_of(result)
    assert len(ran) == 2
    assert "more" in failure.user_failure_data.description
    metadata = failure.user_failure_data.metadata
    assert metadata["ducklake/table"].value == "main.orders"
    assert metadata["ducklake/schema_difference"].value.splitlines()[2:] == ["| more | BIGINT | missing |"]
    assert rows(resource, "orders") == TWO.to_pylist()


@pytest.mark.parametrize(
    ("value", "metadata", "words"),
    [
        (None, {}, "returned None"),
        ({"a": 1}, {}, "dict cannot be written"),
        (TWO, {"write_mode": "appends"}, "append"),
        (TWO, {"write_mode": "replace_where"}, "needs `where`"),
        (TWO, {"write_mode": "merge"}, "keys"),
    ],
)
def test_invalid_outputs_fail_with_an_explanation(
    value: Any, metadata: dict[str, Any], words: str, io_manager: DuckLakeIOManager
) -> None:
    wrong = dg.asset(name="wrong", metadata=metadata)(lambda: value)
    result = dg.materialize([wrong], resources={"io_manager": io_manager}, raise_on_error=False)
    assert words in failure_of(result).user_failure_data.description


def test_an_input_of_an_unsupported_type_is_refused(io_manager: DuckLakeIOManager) -> None:
    @dg.asset
    def orders() -> pa.Table:
        return TWO

    @dg.asset
    def sink(orders: date) -> None:
        return None

    result = dg.materialize([orders, sink], resources={"io_manager": io_manager}, raise_on_error=False)
    assert "cannot be read as `date`" in str(failure_of(result).error)


@central
def test_a_retried_step_appends_once(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource, instance: dg.DagsterInstance
) -> None:
    ran = []

    @dg.asset(metadata={"write_mode": "append"})
    def events() -> pa.Table:
        ran.append(1)
        return TWO

    @dg.asset(deps=[events])
    def later() -> None:
        return None

    # The answer to the first COMMIT is lost: the step fails although its rows are committed.
    class FailsAfterCommit(dg.IOManager):
        def __init__(self, inner: dg.IOManager) -> None:
            self.inner = inner

        def handle_output(self, context: dg.OutputContext, obj: Any) -> None:
            self.inner.handle_output(context, obj)
            if len(ran) == 1:
                raise dg.RetryRequested(max_retries=1)

        def load_input(self, context: dg.InputContext) -> Any:
            return self.inner.load_input(context)

    @dg.io_manager(required_resource_keys={"inner"})
    def fails_after_commit(context: dg.InitResourceContext) -> dg.IOManager:
        return FailsAfterCommit(context.resources.inner)

    resources = {"io_manager": fails_after_commit, "inner": io_manager}
    result = dg.materialize([events, later], resources=resources, instance=instance)
    assert result.success
    assert (len(ran), len(rows(resource, "events"))) == (2, 2)
    assert metadata_of(result, "events")["ducklake/replayed"] is True
    assert dg.materialize([events], resources={"io_manager": io_manager}, instance=instance).success
    assert len(rows(resource, "events")) == 4


def test_the_io_manager_works_with_built_contexts(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    manager = io_manager.create_io_manager(dg.build_init_resource_context())
    for count in (2, 4):  # two writes, not two attempts of one step
        metadata = {"write_mode": "append", "comment": "mine"}
        context = dg.build_output_context(asset_key=["sales", "orders"], definition_metadata=metadata)
        manager.handle_output(context, TWO)
        assert context.get_logged_metadata()["dagster/row_count"] == dg.MetadataValue.int(count)
    assert manager.load_input(dg.build_input_context(asset_key=["sales", "orders"])).num_rows == 4

    named = dg.build_output_context(step_key="make", name="made")
    manager.handle_output(named, TWO)
    assert manager.load_input(dg.build_input_context(upstream_output=named)) == TWO


@pytest.mark.skipif(
    "asset_partitions_def" not in inspect.signature(dg.build_output_context).parameters,
    reason="the first releases of Dagster 1.12 build no contexts with partitions",
)
def test_the_io_manager_works_with_built_partitioned_contexts(io_manager: DuckLakeIOManager) -> None:
    manager = io_manager.create_io_manager(dg.build_init_resource_context())
    days = dg.DailyPartitionsDefinition("2024-01-01")
    span = dg.PartitionKeyRange("2024-01-01", "2024-01-03")
    daily = dg.build_output_context(
        asset_key="daily",
        definition_metadata={"partition_expr": "day"},
        asset_partitions_def=days,
        asset_partition_key_range=span,
    )
    manager.handle_output(daily, pa.table({"day": ["2024-01-01", "2024-01-02"]}))
    assert daily.get_logged_metadata()["ducklake/write_mode"] == dg.MetadataValue.text("replace_where")
    part = dg.build_input_context(
        asset_key="daily",
        upstream_output=daily,
        asset_partitions_def=days,
        partition_key="2024-01-02",
        dagster_type=dg.DagsterType(lambda _, __: True, "frame", typing_type=pd.DataFrame),
    )
    assert manager.load_input(part)["day"].tolist() == ["2024-01-02"]
