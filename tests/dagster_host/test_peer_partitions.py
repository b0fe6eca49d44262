"""What Dagster's IO managers for DuckDB, Delta Lake, Iceberg and Polars do with partitions: docs/dagster-peers.md."""

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import dagster as dg
import pandas as pd
import pyarrow as pa
import pytest

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import failure_of, metadata_of

DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-01-15")
WEEKS = dg.WeeklyPartitionsDefinition("2024-01-01", end_date="2024-01-15", day_offset=1)
COLOURS = dg.StaticPartitionsDefinition(["red", "blue", "green"])
LETTERS = dg.StaticPartitionsDefinition(["a", "b"])
GRID = dg.MultiPartitionsDefinition({"day": DAYS, "colour": COLOURS})
LETTER_GRID = dg.MultiPartitionsDefinition({"day": DAYS, "letter": LETTERS})
FRUITS = dg.DynamicPartitionsDefinition(name="fruits")
# Assets that write several partitions in one run have a backfill policy, which is in preview.
pytestmark = pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")


def keyed(
    definition: dg.PartitionsDefinition, expression: Any = "key", name: str = "t", **metadata: Any
) -> dg.AssetsDefinition:
    """Return an asset with a row for each partition of a run: the key, and when the row was written."""

    @dg.asset(
        name=name,
        partitions_def=definition,
        metadata={"partition_expr": expression, **metadata},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def source(context: dg.AssetExecutionContext) -> pa.Table:
        keys = list(map(str, context.partition_keys))
        run = [context.run.tags["number"]] * len(keys)
        if isinstance(definition, dg.MultiPartitionsDefinition):
            parts = [
                dict(zip(sorted(context.partition_key.keys_by_dimension), key.split("|"), strict=True)) for key in keys
            ]
            return pa.table({column: [part[column] for part in parts] for column in parts[0]} | {"run": run})
        return pa.table({"key": keys, "run": run})

    return source


class Runs:
    """Runs of assets, numbered from 1; `rows` has what is stored."""

    def __init__(self, manager: DuckLakeIOManager, resource: DuckLakeResource, instance: dg.DagsterInstance) -> None:
        self.lake = resource.lake()
        self.instance = instance
        self.options: dict[str, Any] = {"resources": {"io_manager": manager}, "instance": instance}
        self.number = 0

    def write(self, asset: dg.AssetsDefinition, *keys: Any, **options: Any) -> None:
        for key in keys:
            assert self.run(asset, key, **options).success

    def run(self, asset: dg.AssetsDefinition, key: Any = None, **options: Any) -> dg.ExecuteInProcessResult:
        self.number += 1
        key = dg.MultiPartitionKey(key) if isinstance(key, Mapping) else key
        options |= self.options | {"raise_on_error": False, "tags": {"number": str(self.number)}}
        return dg.materialize([asset], partition_key=key, **options)

    def write_range(self, asset: dg.AssetsDefinition, first: str, last: str) -> dg.ExecuteInProcessResult:
        self.number += 1
        tags = {
            "number": str(self.number),
            "dagster/asset_partition_range_start": first,
            "dagster/asset_partition_range_end": last,
        }
        return dg.materialize([asset], tags=tags, **self.options)

    def rows(self) -> dict[str, str]:
        """Return the number of the run that wrote each key; keys of several dimensions are joined."""
        table = self.lake.read("t").to_pylist()
        found = {"|".join(str(value) for name, value in row.items() if name != "run"): row["run"] for row in table}
        assert len(found) == len(table)
        return found

    def read(
        self,
        asset: dg.AssetsDefinition,
        definition: dg.PartitionsDefinition | None,
        key: Any = None,
        mapping: dg.PartitionMapping | None = None,
        **metadata: Any,
    ) -> pa.Table:
        """Return what an asset with the given partitions gets of another."""
        seen: list[pa.Table] = []

        @dg.asset(
            partitions_def=definition, ins={"given": dg.AssetIn("t", partition_mapping=mapping, metadata=metadata)}
        )
        def sink(given: pa.Table) -> None:
            seen.append(given)

        key = dg.MultiPartitionKey(key) if isinstance(key, Mapping) else key
        assert dg.materialize([asset.to_source_asset(), sink], partition_key=key, **self.options).success
        return seen[0]


@pytest.fixture
def runs(io_manager: DuckLakeIOManager, resource: DuckLakeResource, instance: dg.DagsterInstance) -> Runs:
    return Runs(io_manager, resource, instance)


# --- keys and expressions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys", [["it's", 'a "b"', "a b", "'; DROP TABLE t; --"], ["ä/ö", "100%", "a=b&c", "."], ["NULL", "", " ", "\\"]]
)
def test_keys_may_have_quotes_spaces_and_signs(keys: list[str], runs: Runs) -> None:
    keys = [key for key in keys if key]
    asset = keyed(dg.StaticPartitionsDefinition(keys))
    runs.write(asset, *keys, keys[0])
    assert runs.rows() == {key: str(number) for number, key in enumerate(keys, 1)} | {keys[0]: str(len(keys) + 1)}
    for key in keys:
        assert runs.read(asset, dg.StaticPartitionsDefinition(keys), key)["key"].to_pylist() == [key]


@pytest.mark.parametrize(
    "expression", ["key", "strptime(key, '%Y-%m-%d')", "CAST(key AS TIMESTAMP)", "CAST(key AS DATE)"]
)
def test_the_column_of_the_keys_may_be_an_expression(expression: str, runs: Runs) -> None:
    asset = keyed(DAYS, expression)
    runs.write(asset, "2024-01-01", "2024-01-02", "2024-01-01")
    assert runs.rows() == {"2024-01-01": "3", "2024-01-02": "2"}
    assert runs.read(asset, DAYS, "2024-01-02")["run"].to_pylist() == ["2"]


def test_each_dimension_may_have_an_expression(runs: Runs) -> None:
    asset = keyed(GRID, {"day": "CAST(day AS TIMESTAMP)", "colour": "lower(colour)"})
    red, blue = ({"day": "2024-01-01", "colour": colour} for colour in ("red", "blue"))
    runs.write(asset, red, blue, {"day": "2024-01-02", "colour": "red"}, red)
    assert runs.rows() == {"red|2024-01-01": "4", "blue|2024-01-01": "2", "red|2024-01-02": "3"}


@pytest.mark.parametrize("column", ["day", "arrived"])
def test_a_changed_partition_expr_holds_from_the_next_run(column: str, runs: Runs) -> None:
    def daily(expression: str, shift: int) -> dg.AssetsDefinition:
        @dg.asset(name="t", partitions_def=DAYS, metadata={"partition_expr": expression})
        def t(context: dg.AssetExecutionContext) -> pa.Table:
            day = date.fromisoformat(context.partition_key)
            days = {"day": day, "arrived": day} | {expression: day}
            other = "arrived" if expression == "day" else "day"
            return pa.table({**{name: [value] for name, value in days.items()}, other: [day + timedelta(days=shift)]})

        return t

    runs.write(daily("day", 1), "2024-01-01", "2024-01-02")
    runs.write(daily(column, 0), "2024-01-02")
    stored = {(row["day"].day, row["arrived"].day) for row in runs.lake.read("t").to_pylist()}
    # By arrival, the row of the first day belongs to the second.
    assert stored == ({(1, 2), (2, 2)} if column == "day" else {(2, 3), (2, 2)})


@pytest.mark.parametrize(
    ("definition", "expression", "key", "words"),
    [
        (DAYS, None, "2024-01-01", 'Add this to its metadata: "partition_expr": "<column>"'),
        (GRID, {"day": "day"}, {"day": "2024-01-01", "colour": "red"}, '"colour": "<column>"'),
        (GRID, "day", {"day": "2024-01-01", "colour": "red"}, '{"colour": "<column>", "day": "<column>"}'),
        (COLOURS, "len(key)", "red", "The partition key 'red' cannot be a value of (len(key)), whose type is integer."),
        (COLOURS, "[key]", "red", "is of type VARCHAR[], which cannot hold partition keys"),
        (COLOURS, "color", "red", "The table has the columns key, run"),
    ],
)
def test_a_partition_expr_that_does_not_fit_is_explained(
    definition: dg.PartitionsDefinition, expression: Any, key: Any, words: str, runs: Runs
) -> None:
    failure = failure_of(runs.run(keyed(definition, expression), key))
    assert words in failure.user_failure_data.description
    assert runs.lake.tables() == []


# --- what one run writes ---------------------------------------------------------------------------------------------

CADENCES = [
    dg.HourlyPartitionsDefinition("2024-03-31-00:00", timezone="Europe/Berlin"),
    dg.DailyPartitionsDefinition("2024-03-29", timezone="Europe/Berlin"),
    dg.WeeklyPartitionsDefinition("2024-03-17", timezone="Europe/Berlin"),
    dg.MonthlyPartitionsDefinition("2024-01-01", timezone="Europe/Berlin"),
]


@pytest.mark.parametrize("definition", CADENCES, ids=lambda definition: str(definition.schedule_type.value))
def test_a_range_of_each_cadence_is_one_snapshot_across_a_clock_change(
    definition: dg.TimeWindowPartitionsDefinition, runs: Runs
) -> None:
    @dg.asset(
        name="t",
        partitions_def=definition,
        metadata={"partition_expr": "at"},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        starts = [definition.time_window_for_partition_key(key).start.astimezone(UTC) for key in context.partition_keys]
        at = pa.array(starts, pa.timestamp("us", "UTC"))
        return pa.table({"at": at, "run": [context.run.tags["number"]] * len(starts)})

    keys = definition.get_partition_keys(current_time=datetime(2024, 6, 1, tzinfo=UTC))[:5]
    runs.write_range(t, keys[0], keys[4])
    result = runs.write_range(t, keys[1], keys[3])
    assert list(runs.rows().values()).count("2") == 3
    assert sorted(runs.rows().items())[0][1] == sorted(runs.rows().items())[4][1] == "1"
    assert len(runs.lake.snapshots()) == 3
    assert [metadata_of(result, "t", key)["dagster/partition_row_count"] for key in keys[1:4]] == [1, 1, 1]
    for position, key in enumerate(keys):
        (at,) = runs.read(t, definition, key)["at"].to_pylist()
        assert at == definition.time_window_for_partition_key(keys[position]).start


def test_a_range_of_static_keys_replaces_those_between(runs: Runs) -> None:
    asset = keyed(dg.StaticPartitionsDefinition(["z", "b", "y", "a"]))
    runs.write_range(asset, "z", "a")
    runs.write_range(asset, "b", "y")  # in the order of the definition
    assert runs.rows() == {"z": "1", "b": "2", "y": "2", "a": "1"}


def test_a_partitioned_append_adds_to_its_partition(runs: Runs) -> None:
    asset = keyed(COLOURS, write_mode="append")
    runs.write(asset, "red", "blue", "red")
    assert sorted(runs.read(asset, COLOURS, "red")["run"].to_pylist()) == ["1", "3"]


def test_a_graph_and_a_multi_asset_write_their_partitions(runs: Runs) -> None:
    @dg.op(out={"result": dg.Out(pa.Table, metadata={"partition_expr": "key"})})
    def make(context: dg.OpExecutionContext) -> pa.Table:
        return pa.table({"key": [context.partition_key], "run": [context.run.tags["number"]]})

    graph = dg.AssetsDefinition.from_graph(
        dg.GraphDefinition("t", node_defs=[make], output_mappings=[dg.OutputMapping("result", "make", "result")]),
        partitions_def=COLOURS,
        metadata_by_output_name={"result": {"partition_expr": "key"}},
    )

    @dg.multi_asset(
        outs={name: dg.AssetOut(metadata={"partition_expr": "key"}) for name in ("one", "two")}, partitions_def=COLOURS
    )
    def several(context: dg.AssetExecutionContext) -> Any:
        for name in ("one", "two"):
            yield dg.Output(pd.DataFrame({"key": [context.partition_key]}), name)

    runs.write(graph, "red", "blue", "red")
    runs.write(several, "red", "blue", "red")
    assert runs.rows() == {"red": "3", "blue": "2"}
    assert [runs.lake.table(name).count() for name in ("one", "two")] == [2, 2]


def test_an_untyped_empty_partition_creates_no_table_and_clears_its_rows(runs: Runs) -> None:
    full = keyed(COLOURS)

    @dg.asset(name="t", partitions_def=COLOURS, metadata={"partition_expr": "key"})
    def empty() -> pd.DataFrame:
        return pd.DataFrame([])

    result = runs.run(empty, "red")
    assert metadata_of(result, "t", "red")["dagster/partition_row_count"] == 0
    assert runs.lake.tables() == []
    runs.write(full, "red", "blue")
    runs.write(empty, "red")
    assert runs.rows() == {"blue": "3"}


def test_the_partitions_of_an_asset_may_change(runs: Runs) -> None:
    whole = dg.asset(name="t")(lambda: pa.table({"key": ["2024-01-01", "2024-01-09"], "run": ["0", "0"]}))
    runs.write(whole, None)
    runs.write(keyed(DAYS, "CAST(key AS DATE)"), "2024-01-02", "2024-01-09")
    assert runs.rows() == {"2024-01-01": "0", "2024-01-02": "2", "2024-01-09": "3"}
    runs.write(keyed(WEEKS, "CAST(key AS DATE)"), "2024-01-01")
    assert runs.rows() == {"2024-01-01": "4", "2024-01-09": "3"}
    runs.write(whole, None)
    assert runs.rows() == {"2024-01-01": "0", "2024-01-09": "0"}


# --- dynamic partitions ----------------------------------------------------------------------------------------------


def test_rows_of_a_removed_dynamic_key_stay_but_are_not_read(runs: Runs) -> None:
    asset = keyed(FRUITS)
    runs.instance.add_dynamic_partitions("fruits", ["apple", "pear"])
    runs.write(asset, "apple", "pear")
    assert sorted(runs.read(asset, None)["key"].to_pylist()) == ["apple", "pear"]
    runs.instance.delete_dynamic_partition("fruits", "pear")
    runs.write(asset, "apple")
    assert runs.rows() == {"apple": "3", "pear": "2"}
    assert runs.read(asset, None)["key"].to_pylist() == ["apple"]
    runs.instance.delete_dynamic_partition("fruits", "apple")
    assert runs.read(asset, None).num_rows == 0


def test_one_dimension_may_be_dynamic(runs: Runs) -> None:
    both = dg.MultiPartitionsDefinition({"colour": COLOURS, "fruit": FRUITS})
    asset = keyed(both, {"colour": "colour", "fruit": "fruit"})
    runs.instance.add_dynamic_partitions("fruits", ["apple"])
    apple = {"colour": "green", "fruit": "apple"}
    runs.write(asset, apple)
    runs.instance.add_dynamic_partitions("fruits", ["pear"])
    runs.write(asset, {"colour": "green", "fruit": "pear"}, apple)
    assert runs.rows() == {"green|apple": "3", "green|pear": "2"}


# --- what an input gets ----------------------------------------------------------------------------------------------

MAPPINGS = [
    (DAYS, DAYS, "2024-01-03", None, {"2024-01-03"}),
    (DAYS, DAYS, "2024-01-03", dg.TimeWindowPartitionMapping(start_offset=-1), {"2024-01-02", "2024-01-03"}),
    (DAYS, DAYS, "2024-01-03", dg.TimeWindowPartitionMapping(start_offset=-2, end_offset=-2), {"2024-01-01"}),
    (DAYS, DAYS, "2024-01-03", dg.LastPartitionMapping(), {"2024-01-14"}),
    (
        DAYS,
        COLOURS,
        "red",
        dg.SpecificPartitionsPartitionMapping(["2024-01-02", "2024-01-09"]),
        {"2024-01-02", "2024-01-09"},
    ),
    (DAYS, WEEKS, "2024-01-01", None, {f"2024-01-0{day}" for day in range(1, 8)}),
    (WEEKS, DAYS, "2024-01-10", None, {"2024-01-08"}),
    (COLOURS, COLOURS, "blue", dg.IdentityPartitionMapping(), {"blue"}),
    (COLOURS, COLOURS, "blue", dg.AllPartitionMapping(), {"red", "blue", "green"}),
    (COLOURS, LETTERS, "a", dg.StaticPartitionMapping({"red": "a", "blue": "b", "green": "a"}), {"red", "green"}),
    (COLOURS, None, None, None, {"red", "blue", "green"}),
]


@pytest.mark.parametrize(("upstream", "downstream", "key", "mapping", "expected"), MAPPINGS)
def test_an_input_gets_the_partitions_that_are_mapped_to_it(
    upstream: dg.PartitionsDefinition,
    downstream: dg.PartitionsDefinition | None,
    key: str | None,
    mapping: dg.PartitionMapping | None,
    expected: set[str],
    runs: Runs,
) -> None:
    asset = keyed(upstream)
    keys = upstream.get_partition_keys()
    runs.write_range(asset, keys[0], keys[-1])
    assert set(runs.read(asset, downstream, key, mapping)["key"].to_pylist()) == expected


RED = {"day": "2024-01-02", "colour": "red"}
GRID_MAPPINGS = [
    (GRID, RED, None, {"red|2024-01-02"}),
    (
        DAYS,
        "2024-01-02",
        lambda: dg.MultiToSingleDimensionPartitionMapping("day"),
        {"red|2024-01-02", "blue|2024-01-02"},
    ),
    (COLOURS, "red", lambda: dg.MultiToSingleDimensionPartitionMapping("colour"), {"red|2024-01-01", "red|2024-01-02"}),
    (DAYS, "2024-01-02", None, {"red|2024-01-02", "blue|2024-01-02"}),
    (
        LETTER_GRID,
        {"day": "2024-01-02", "letter": "a"},
        lambda: dg.MultiPartitionMapping(
            {
                "colour": dg.DimensionPartitionMapping("letter", dg.StaticPartitionMapping({"blue": "a", "red": "b"})),
                "day": dg.DimensionPartitionMapping("day", dg.TimeWindowPartitionMapping(start_offset=-1)),
            }
        ),
        {"blue|2024-01-01", "blue|2024-01-02"},
    ),
    (None, None, None, {"red|2024-01-01", "blue|2024-01-01", "red|2024-01-02", "blue|2024-01-02"}),
]


@pytest.mark.filterwarnings("ignore:Class .Multi.* is currently in beta")
@pytest.mark.parametrize(("downstream", "key", "mapping", "expected"), GRID_MAPPINGS)
def test_an_input_gets_the_cells_that_are_mapped_to_it(
    downstream: dg.PartitionsDefinition | None,
    key: Any,
    mapping: Callable[[], dg.PartitionMapping] | None,
    expected: set[str],
    runs: Runs,
) -> None:
    asset = keyed(GRID, {"day": "day", "colour": "colour"})
    cells = [{"day": day, "colour": colour} for day in ("2024-01-01", "2024-01-02") for colour in ("red", "blue")]
    runs.write(asset, *cells)
    found = runs.read(asset, downstream, key, mapping and mapping()).to_pylist()
    assert {f"{row['colour']}|{row['day']}" for row in found} == expected
    assert len(found) == len(expected)


def test_an_asset_of_several_dimensions_reads_one_of_a_single_dimension(runs: Runs) -> None:
    asset = keyed(DAYS)
    runs.write(asset, "2024-01-01", "2024-01-02")
    assert runs.read(asset, GRID, RED)["key"].to_pylist() == ["2024-01-02"]


def test_a_partitioned_asset_reads_an_unpartitioned_one_as_a_whole(runs: Runs) -> None:
    whole = dg.asset(name="t")(lambda: pa.table({"key": ["a", "b"], "run": ["0", "0"]}))
    runs.write(whole, None)
    assert runs.read(whole, DAYS, "2024-01-01").num_rows == 2


def test_columns_of_an_input_need_not_have_the_partition_column(runs: Runs) -> None:
    asset = keyed(DAYS)
    runs.write(asset, "2024-01-01", "2024-01-02")
    assert runs.read(asset, DAYS, "2024-01-02", columns=["run"]).to_pylist() == [{"run": "2"}]


def test_a_partition_that_was_never_written_is_an_empty_frame(runs: Runs) -> None:
    asset = keyed(DAYS)
    runs.write(asset, "2024-01-01")
    missing = runs.read(asset, DAYS, "2024-01-05")
    assert (missing.num_rows, missing.column_names) == (0, ["key", "run"])


def test_definitions_load_the_value_of_a_partition(runs: Runs) -> None:
    asset = keyed(DAYS)
    runs.write(asset, "2024-01-01", "2024-01-02")
    defs = dg.Definitions([asset], resources=runs.options["resources"])
    loaded: Any = defs.load_asset_value("t", partition_key="2024-01-02", python_type=pd.DataFrame)
    assert list(loaded["run"]) == ["2"]


def test_a_range_of_an_asset_that_reads_itself_gets_the_partitions_before(runs: Runs) -> None:
    before = dg.TimeWindowPartitionMapping(start_offset=-1, end_offset=-1)
    seen: list[dict[str, int]] = []

    @dg.asset(
        name="t",
        partitions_def=DAYS,
        metadata={"partition_expr": "key"},
        ins={"t": dg.AssetIn(partition_mapping=before)},
        backfill_policy=dg.BackfillPolicy.single_run(),
    )
    def running(context: dg.AssetExecutionContext, t: dict[str, pa.Table]) -> pa.Table:
        seen.append({key: rows.num_rows for key, rows in t.items()})
        return pa.table(
            {"key": list(context.partition_keys), "run": [context.run.tags["number"]] * len(context.partition_keys)}
        )

    runs.write_range(running, "2024-01-01", "2024-01-03")
    runs.write(running, "2024-01-04")
    runs.write_range(running, "2024-01-02", "2024-01-03")
    first = {"2024-01-01": 0, "2024-01-02": 0}  # the table does not exist yet
    assert seen == [first, {"2024-01-03": 1}, {"2024-01-01": 1, "2024-01-02": 1}]
    assert runs.rows() == {"2024-01-01": "1", "2024-01-02": "3", "2024-01-03": "3", "2024-01-04": "2"}
