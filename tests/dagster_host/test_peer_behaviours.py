"""What Dagster's IO managers for DuckDB, Delta Lake, Iceberg and Polars do: the rows of docs/dagster-peers.md."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Optional

import dagster as dg
import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import dataset, parquet
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import failure_of, metadata_of
from tests.support.fault_points import once_at

TWO = pa.table({"id": [1, 2], "name": ["a", None]})


def run(manager: DuckLakeIOManager, *assets: Any, **options: Any) -> dg.ExecuteInProcessResult:
    return dg.materialize(assets, resources={"io_manager": manager}, raise_on_error=False, **options)


def asset(value: Any, key: str = "t", **metadata: Any) -> dg.AssetsDefinition:
    """Return an asset with the given value. A function is called to get the value."""
    return dg.asset(key=key.split("/"), metadata=metadata)(lambda: value() if callable(value) else value)


def reader(frame: Any, key: str = "t", **options: Any) -> tuple[dg.AssetsDefinition, list[Any]]:
    """Return an asset that reads another as the given kind of frame, and the list of what it got."""
    seen: list[Any] = []

    def sink(given: Any) -> None:
        seen.append(given)

    sink.__annotations__ = {"return": None} if frame is None else {"given": frame, "return": None}
    ins = {"given": dg.AssetIn(key.split("/"), **options)}
    return dg.asset(ins=ins)(sink), seen


def ids(resource: DuckLakeResource, table: str = "t") -> list[int]:
    return sorted(resource.lake().read(table)["id"].to_pylist())


def types(resource: DuckLakeResource, table: str = "t") -> dict[str, str]:
    return {column.name: column.type for column in resource.lake().table(table).schema()}


def message(result: dg.ExecuteInProcessResult) -> str:
    failure = failure_of(result)
    return str(failure.user_failure_data.description if failure.user_failure_data else failure.error)


# --- names of tables and schemas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "manager_schema", "metadata_schema", "expected"),
    [
        ("t", None, None, "main"),
        ("raw/t", None, None, "raw"),
        ("any/raw/t", None, None, "raw"),
        ("t", "mine", None, "mine"),
        ("raw/t", "mine", None, "mine"),
        ("t", None, "other", "other"),
        ("raw/t", None, "other", "other"),
        ("raw/t", "mine", "other", "other"),
    ],
)
def test_the_metadata_go_before_the_io_manager_and_that_before_the_key(
    key: str, manager_schema: str | None, metadata_schema: str | None, expected: str, resource: DuckLakeResource
) -> None:
    manager = DuckLakeIOManager(lake=resource, **({"schema": manager_schema} if manager_schema else {}))
    metadata = {"schema": metadata_schema} if metadata_schema else {}
    sink, seen = reader(pa.Table, key)
    for _ in range(2):
        assert run(manager, asset(TWO, key, **metadata), sink).success
    assert [(table.schema, table.table) for table in resource.lake().tables()] == [(expected, "t")]
    assert seen == [TWO, TWO]


def test_op_outputs_are_in_the_schema_of_their_metadata(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    @dg.op(out=dg.Out(metadata={"schema": "a"}))
    def first() -> pd.DataFrame:
        return pd.DataFrame({"id": [1, 2]})

    @dg.op(out=dg.Out(metadata={"schema": "b", "table": "more"}))
    def second(given: pd.DataFrame) -> pd.DataFrame:
        return given + 1

    @dg.job(resource_defs={"io_manager": io_manager})
    def job() -> None:
        second(first())

    for _ in range(2):
        assert job.execute_in_process().success
    assert ids(resource, "b.more") == [2, 3]
    # Without `table`, each run has a table of its own.
    assert [table.schema for table in resource.lake().tables()].count("a") == 2


def test_names_may_be_keywords_and_have_quotes_and_spaces(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    rows = pa.table({"select": [1], "my column": [2], 'a "b"': [3], "it's": [4]})
    for key, metadata, table in (
        ("group/order", {}, "group.order"),
        ("x", {"schema": 'of "us"', "table": "it's all"}, '"of ""us"""."it\'s all"'),
    ):
        sink, seen = reader(pa.Table, key, metadata={"columns": ["my column", 'a "b"']})
        for _ in range(2):
            assert run(io_manager, asset(rows, key, **metadata), sink).success
        assert seen[0].to_pylist() == [{"my column": 2, 'a "b"': 3}]
        assert resource.lake().read(table).to_pylist() == rows.to_pylist()


@pytest.mark.filterwarnings("ignore:Parameter .io_manager_def. of function .asset. is currently in beta")
def test_several_io_managers_store_side_by_side(resource: DuckLakeResource, tmp_path: Path) -> None:
    second = DuckLakeResource(
        name="second", catalog=f"sqlite:///{tmp_path / 'two.sqlite'}", storage=f"{tmp_path}/two", create_if_missing=True
    )

    @dg.asset(io_manager_key="here")
    def orders() -> pa.Table:
        return TWO

    @dg.asset(io_manager_key="there")
    def copied(orders: pa.Table) -> pa.Table:  # each input is loaded by the IO manager of its asset
        return orders.slice(0, 1)

    @dg.asset(io_manager_def=DuckLakeIOManager(lake=resource, schema="own"))
    def joined(orders: pd.DataFrame, copied: pd.DataFrame) -> pd.DataFrame:
        return orders.merge(copied, on="id")

    resources = {"here": DuckLakeIOManager(lake=resource), "there": DuckLakeIOManager(lake=second)}
    assert dg.materialize([orders, copied, joined], resources=resources).success
    assert ids(resource, "orders") == [1, 2]
    assert ids(second, "copied") == ids(resource, "own.joined") == [1]
    assert len(second.lake().tables()) == 1


def test_an_input_may_have_an_io_manager_of_its_own(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    resource.lake().write(TWO, "elsewhere.t", mode="append")
    sink, seen = reader(pa.Table, input_manager_key="other")
    resources = {"io_manager": io_manager, "other": DuckLakeIOManager(lake=resource, schema="elsewhere")}
    assert dg.materialize([dg.AssetSpec("t"), sink], resources=resources).success
    assert seen == [TWO]


# --- frames ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (lambda: TWO, pd.DataFrame),
        (TWO.to_pandas, pl.DataFrame),
        (lambda: pl.DataFrame({"id": [1, 2], "name": ["a", None]}), duckdb.DuckDBPyRelation),
        (lambda: pl.LazyFrame({"id": [1, 2], "name": ["a", None]}), pa.RecordBatchReader),
        (TWO.to_reader, pl.LazyFrame),
        (lambda: duckdb.connect().from_arrow(TWO), pa.Table),
    ],
    ids=["arrow-pandas", "pandas-polars", "polars-duckdb", "lazy-reader", "reader-lazy", "duckdb-arrow"],
)
def test_an_input_may_be_another_kind_of_frame(
    make: Callable[[], Any], kind: type, io_manager: DuckLakeIOManager
) -> None:
    sink, seen = reader(kind)
    assert run(io_manager, asset(make), sink).success
    assert isinstance(seen[0], kind)


def test_spark_frames_are_read_as_pandas_and_back(io_manager: DuckLakeIOManager, spark: SparkSession) -> None:
    @dg.asset
    def t() -> DataFrame:
        return spark.createDataFrame([(1, "a"), (2, None)], "id bigint, name string")

    @dg.asset
    def more(t: pd.DataFrame) -> pd.DataFrame:
        return t.assign(id=t["id"] + 1)

    @dg.asset
    def most(more: DataFrame) -> DataFrame:
        return more.where("name IS NOT NULL")

    sink, seen = reader(pl.DataFrame, "most")
    assert run(io_manager, t, more, most, sink).success
    assert seen[0].rows() == [(2, "a")]


@pytest.mark.parametrize("value", [1, "text", [1], {"a": 1}])
def test_an_unsupported_type_is_an_error_that_names_it(
    value: Any, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    assert f"Data of type {type(value).__name__} cannot be written" in message(run(io_manager, asset(value)))
    assert not resource.lake().exists("t")


def test_a_dataset_is_stored_but_not_loaded(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    assert run(io_manager, asset(lambda: dataset.dataset(TWO))).success
    assert ids(resource) == [1, 2]
    sink, _ = reader(dataset.Dataset)
    assert "cannot be read as `Dataset`" in message(run(io_manager, dg.AssetSpec("t"), sink))


def test_an_input_without_annotation_is_an_arrow_table(io_manager: DuckLakeIOManager) -> None:
    sink, seen = reader(None)
    assert run(io_manager, asset(TWO.to_pandas()), sink).success
    assert isinstance(seen[0], pa.Table)


def test_the_index_of_a_pandas_frame_is_not_a_column(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    frame = pd.DataFrame({"id": [3, 1, 2]}, index=["x", "y", "z"])
    assert run(io_manager, asset(frame[frame["id"] > 1])).success
    assert resource.lake().read("t").to_pylist() == [{"id": 3}, {"id": 2}]


def test_times_and_nested_values_are_read_as_they_were_written(io_manager: DuckLakeIOManager) -> None:
    frame = pl.DataFrame(
        {
            "naive": pl.Series(["2024-03-10 02:30:00.123456"]).str.to_datetime(time_unit="us"),
            "zoned": pl.Series(["2024-03-10 02:30:00"]).str.to_datetime(time_unit="us").dt.replace_time_zone("UTC"),
            "day": pl.Series(["1969-12-31"]).str.to_date(),
            "list": [[1, None, 3]],
            "struct": [{"a": 1, "b": {"c": ["x", None]}}],
            "bytes": [b"\x00\xff"],
        }
    )
    sink, seen = reader(pl.DataFrame)
    assert run(io_manager, asset(frame), sink).success
    assert seen[0].rows() == frame.rows()
    assert seen[0].schema["struct"] == frame.schema["struct"]


def test_an_optional_output_that_is_none_leaves_the_table_as_it_is(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    values: list[Any] = [None, TWO, None]

    @dg.asset
    def t() -> pa.Table | None:
        return values.pop(0)

    sink, seen = reader(Optional[pa.Table])  # noqa: UP045
    for expected in (None, TWO, TWO):
        assert run(io_manager, t, sink).success
        assert seen[-1] == expected
    assert [len(resource.lake().snapshots()), values] == [2, []]
    assert "`Optional[…]`" in message(run(io_manager, asset(None)))


def test_an_output_that_is_not_required_may_be_missing(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    @dg.multi_asset(outs={"one": dg.AssetOut(is_required=False), "two": dg.AssetOut(is_required=False)})
    def several() -> Iterator[Any]:
        yield dg.Output(TWO, "two")

    sink, seen = reader(pa.Table, "one")
    assert run(io_manager, several, sink).success
    assert (resource.lake().exists("one"), ids(resource, "two"), seen) == (False, [1, 2], [])


# --- empty frames ----------------------------------------------------------------------------------------------------

UNTYPED = [
    lambda: pd.DataFrame({"id": [1], "name": ["a"]}).iloc[0:0],
    lambda: pd.DataFrame({"id": [], "name": []}, dtype=object),
    lambda: pd.DataFrame({"id": [], "name": pd.Categorical([])}),
    pd.DataFrame,
    lambda: pl.DataFrame({"id": [], "name": []}),
    lambda: pa.table({"id": pa.nulls(0, pa.int64()), "name": pa.nulls(0, pa.list_(pa.null()))}),
    lambda: pa.table({"id": pa.nulls(0), "name": pa.nulls(0)}).to_reader(),
]


@pytest.mark.parametrize("make", UNTYPED)
def test_an_empty_frame_without_types_creates_no_table(
    make: Callable[[], Any],
    io_manager: DuckLakeIOManager,
    resource: DuckLakeResource,
    capfd: pytest.CaptureFixture[str],
) -> None:
    result = run(io_manager, asset(make))
    assert "which does not exist. The table is not created" in capfd.readouterr().err
    assert (metadata_of(result, "t")["dagster/row_count"], resource.lake().exists("t")) == (0, False)
    assert run(io_manager, asset(TWO)).success
    assert types(resource) == {"id": "BIGINT", "name": "VARCHAR"}
    assert metadata_of(run(io_manager, asset(make)), "t")["ducklake/rows_removed"] == 2
    assert (ids(resource), types(resource)) == ([], {"id": "BIGINT", "name": "VARCHAR"})


def test_an_empty_spark_frame_without_types_creates_no_table(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource, spark: SparkSession
) -> None:
    assert run(io_manager, asset(lambda: spark.createDataFrame([], "id bigint, name void"))).success
    assert not resource.lake().exists("t")


def test_an_empty_frame_without_types_needs_a_lake(tmp_path: Path) -> None:
    lake = DuckLakeResource(name="lake", catalog=f"sqlite:///{tmp_path}/no.sqlite", storage=f"{tmp_path}/files")
    assert "There is no lake" in message(run(DuckLakeIOManager(lake=lake), asset(pd.DataFrame)))


@pytest.mark.parametrize("make", [lambda: TWO, TWO.to_pandas, lambda: pl.DataFrame(TWO), TWO.to_reader])
def test_an_empty_frame_with_types_creates_an_empty_table(
    make: Callable[[], Any], io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    def empty() -> Any:
        frame = make()
        if isinstance(frame, pa.RecordBatchReader):
            return frame.schema.empty_table().to_reader()
        return frame.astype({"name": "string[pyarrow]"}).iloc[0:0] if isinstance(frame, pd.DataFrame) else frame[:0]

    result = run(io_manager, asset(empty))
    assert (metadata_of(result, "t")["dagster/row_count"], ids(resource)) == (0, [])
    assert types(resource) == {"id": "BIGINT", "name": "VARCHAR"}


def test_a_stream_that_begins_with_an_empty_batch_is_written_completely(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    schema = pa.schema({"id": pa.int64(), "nothing": pa.null()})
    batches = [pa.record_batch([ids, [None] * len(ids)], schema=schema) for ids in ([], [1, 2], [3])]
    assert run(io_manager, asset(lambda: pa.RecordBatchReader.from_batches(schema, batches))).success
    assert ids(resource) == [1, 2, 3]


# --- writes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "succeeds"), [("error", False), ("ignore", True)])
def test_modes_error_and_ignore_write_only_a_new_table(
    mode: str, succeeds: bool, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    assert run(io_manager, asset(TWO.slice(0, 1), write_mode=mode)).success
    assert run(io_manager, asset(TWO, write_mode=mode)).success is succeeds
    assert ids(resource) == [1]


def test_table_options_hold_for_the_write_that_sets_them(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    def codec() -> str:
        (file,) = resource.lake().table("t").files()
        return str(parquet.read_metadata(file.path).row_group(0).column(0).compression)

    assert run(io_manager, asset(TWO)).success
    assert codec() == "SNAPPY"
    level = {"parquet_compression_level": 5}
    for options, expected in (
        ({"parquet_compression": "gzip"}, "GZIP"),
        (level | {"parquet_compression": "zstd"}, "ZSTD"),
    ):
        assert run(io_manager, asset(TWO, table_options=options)).success
        assert codec() == expected
    # An option stays when the metadata no longer name it.
    assert run(io_manager, asset(TWO)).success
    assert codec() == "ZSTD"
    assert "only zstd has levels" in message(run(io_manager, asset(TWO, table_options={"parquet_compression": "gzip"})))


def test_wrong_table_options_are_refused_before_the_first_write(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    assert "Did you mean `target_file_size`?" in message(
        run(io_manager, asset(TWO, table_options={"target_file_sise": 1}))
    )
    assert resource.lake().tables() == []


@pytest.mark.parametrize(
    ("rows", "evolution", "expected"),
    [
        ({"id": [3], "name": ["c"], "more": [1.5]}, "error", "more"),
        ({"id": [3], "name": ["c"], "more": [1.5]}, "add", {"id": "BIGINT", "name": "VARCHAR", "more": "DOUBLE"}),
        ({"id": ["x"], "name": ["c"]}, "error", "id"),
        ({"name": ["c"]}, "error", {"id": "BIGINT", "name": "VARCHAR"}),
    ],
)
def test_changed_columns_are_refused_or_added(
    rows: dict[str, Any], evolution: str, expected: Any, io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    assert run(io_manager, asset(TWO)).success
    result = run(io_manager, asset(pa.table(rows), schema_evolution=evolution))
    if isinstance(expected, str):
        assert f"`{expected}`" in message(result)
        assert ids(resource) == [1, 2]
    else:
        assert types(resource) == expected
        assert resource.lake().read("t")["name"].to_pylist() == ["c"]


def test_rows_that_can_be_read_only_once_are_not_lost_to_a_concurrent_write(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource, monkeypatch: pytest.MonkeyPatch
) -> None:
    once_at(monkeypatch, "files.written", lambda: run(io_manager, asset(TWO)))
    result = run(io_manager, asset(TWO.slice(0, 1).to_reader))
    assert "can be read only once" in message(result)
    assert ids(resource) == [1, 2]
    assert run(io_manager, asset(TWO.slice(0, 1).to_reader)).success
    assert ids(resource) == [1]


# --- reads -----------------------------------------------------------------------------------------------------------


def test_definitions_load_the_value_of_an_asset(io_manager: DuckLakeIOManager) -> None:
    defs = dg.Definitions([asset(TWO, "raw/t")], resources={"io_manager": io_manager})
    assert defs.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert defs.load_asset_value(["raw", "t"]) == TWO
    loaded: Any = defs.load_asset_value(["raw", "t"], python_type=pd.DataFrame)
    assert list(loaded["id"]) == [1, 2]


def test_a_check_gets_the_table_as_a_frame(io_manager: DuckLakeIOManager) -> None:
    @dg.asset_check(asset="t")
    def has_names(t: pd.DataFrame) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=bool(t["name"].notna().all()))

    defs = dg.Definitions([asset(TWO)], asset_checks=[has_names], resources={"io_manager": io_manager})
    result = defs.resolve_implicit_global_asset_job_def().execute_in_process()
    assert [evaluation.passed for evaluation in result.get_asset_check_evaluations()] == [False]
