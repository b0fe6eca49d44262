"""Settings of an asset that describe its table and its commits: comments, options, author, message, partitions."""

from datetime import date
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from tests.support.dagster_runs import failure_of, materialize_range, metadata_of

TWO = pa.table({"id": [1, 2], "Name": ["a", "b"]})


def described(**descriptions: str) -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(name, description=text) for name, text in descriptions.items()])


def written(manager: DuckLakeIOManager, rows: pa.Table = TWO, **metadata: Any) -> dg.ExecuteInProcessResult:
    asset = dg.asset(name="t", metadata={name.replace("__", "/"): value for name, value in metadata.items()})(
        lambda: rows
    )
    return dg.materialize([asset], resources={"io_manager": manager}, raise_on_error=False)


def test_descriptions_of_columns_become_their_comments(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    lake = resource.lake()
    first = described(id="the order's number", name="who", unknown="no column")
    # A write, and the comments in one snapshot of their own when they differ.
    for schema, comment, snapshots in ((first, "t", 2), (first, "t", 1), (described(id="number"), "t", 2)):
        before = len(lake.snapshots())
        result = written(io_manager, dagster__column_schema=schema, comment=comment)
        assert result.success
        assert len(lake.snapshots()) - before - (before == 0) == snapshots
    assert [column.comment for column in lake.table("t").schema()] == ["number", "who"]
    assert lake.tables()[0].comment == "t"


def test_the_column_schema_of_an_event_has_the_descriptions(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    resource.lake().write(TWO, "t", mode="append")
    resource.lake().execute("COMMENT ON COLUMN t.Name IS 'stored'").raise_for_error()
    schema = metadata_of(written(io_manager, dagster__column_schema=described(id="number")), "t")[
        "dagster/column_schema"
    ]
    assert [(column.name, column.type, column.description) for column in schema.columns] == [
        ("id", "BIGINT", "number"),
        ("Name", "VARCHAR", "stored"),
    ]


def test_author_and_message_of_the_commits_are_settings(
    io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    result = written(io_manager, commit_author="etl", commit_message="orders of the shop", comment="mine")
    for snapshot in resource.lake().snapshots(2):
        assert (snapshot.author, snapshot.message) == ("etl", "orders of the shop")
        assert snapshot.extra["dagster"]["run_id"] == result.run_id


def test_options_of_the_table_are_settings(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    for _ in range(2):
        assert written(io_manager, table_options={"target_file_size": "64MB"}).success
    options = [option for option in resource.lake().options() if option.scope == "table"]
    assert [(option.name, option.entry) for option in options] == [("target_file_size", "main.t")]
    assert (
        "target_file_size"
        in failure_of(written(io_manager, table_options={"target_file_sise": "64MB"})).user_failure_data.description
    )


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ({}, {1: "x", 2: "b", 3: "x"}),
        ({"when_matched": "keep"}, {1: "a", 2: "b", 3: "x"}),
        ({"when_not_matched": "ignore"}, {1: "x", 2: "b"}),
        ({"when_not_matched_by_source": "delete"}, {1: "x", 3: "x"}),
        ({"matched_condition": "target.name <> 'a'"}, {1: "a", 2: "b", 3: "x"}),
        ({"delete_condition": "source.name = 'x'"}, {2: "b"}),
        ({"ducklake__when_matched": {"name": "concat(target.name, source.name)"}}, {1: "ax", 2: "b", 3: "x"}),
    ],
)
def test_the_clauses_of_a_merge_are_settings(
    clauses: dict[str, Any], expected: dict[int, str], io_manager: DuckLakeIOManager, resource: DuckLakeResource
) -> None:
    resource.lake().write(TWO, "t", mode="append")
    rows = pa.table({"id": [1, 3], "Name": ["x", "x"]})
    assert written(io_manager, rows, write_mode="merge", merge_keys=["id"], **clauses).success
    assert {row["id"]: row["Name"] for row in resource.lake().read("t").to_pylist()} == expected


def test_the_strategy_of_a_merge_is_a_setting(io_manager: DuckLakeIOManager, resource: DuckLakeResource) -> None:
    for day, name in (("2024-01-01", "a"), ("2024-01-02", "b")):
        rows = pa.table({"id": [1], "name": [name], "gone": [False]})
        settings = {"merge_strategy": "scd2", "boundary": day, "valid_from": "since", "hard_delete": "gone"}
        assert written(io_manager, rows, write_mode="merge", merge_keys=["id"], **settings).success
    versions = resource.lake().read("t").sort_by("since").to_pylist()
    first, second = date(2024, 1, 1), date(2024, 1, 2)
    assert [tuple(row.values()) for row in versions] == [(1, "a", first, second), (1, "b", second, None)]


def test_a_clause_of_a_merge_without_a_merge_is_refused(io_manager: DuckLakeIOManager) -> None:
    result = written(io_manager, when_matched="keep")
    assert "`when_matched` cannot be combined" in failure_of(result).user_failure_data.description


@pytest.mark.filterwarnings("ignore:Parameter .backfill_policy.")
def test_an_event_names_the_partitions_of_its_write(io_manager: DuckLakeIOManager) -> None:
    keys = [f"{number:03}" for number in range(120)]

    @dg.asset(
        partitions_def=dg.StaticPartitionsDefinition(keys),
        backfill_policy=dg.BackfillPolicy.single_run(),
        metadata={"partition_expr": "key"},
    )
    def t(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"key": list(context.partition_keys)})

    resources = {"io_manager": io_manager}
    one = metadata_of(dg.materialize([t], partition_key="007", resources=resources), "t", "007")
    assert (one["ducklake/partitions"], one["ducklake/partition_count"]) == (["007"], 1)
    many = metadata_of(materialize_range([t], "000", "119", resources=resources), "t", "119")
    assert (many["ducklake/partitions"], many["ducklake/partition_count"]) == (keys[:100], 120)
