"""Maintenance clusters the rows of tables by their cluster keys or sort keys; no snapshot changes."""

from collections.abc import Sequence
from typing import Any

import duckdb
import pyarrow.compute as pc
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ConfigError, ObjectNotFoundError
from ducklake_orch.maintenance.results import PlannedStep
from tests.support.backends import POSTGRES, SQLITE, catalogs, on_sqlite
from tests.support.readers_of_the_past import Past
from tests.support.table_steps import latest

ROWS = 4_000
SMALL = {"target_file_size": "30KB"}
NO_MERGE = {"merge": {"enabled": False}}
_NO_KEYS = "it has no cluster keys, and no column as its first sort key"


def rows(first: int, count: int = ROWS) -> Any:
    """Return rows with unrelated columns."""
    numbers = f"SELECT range AS id FROM range({first}, {first + count})"
    columns = "id, (hash(id) % 100)::INTEGER AS a, 'v' || hash(id * 7) % 100 AS b, id % 2 AS p"
    return duckdb.sql(f"SELECT {columns} FROM ({numbers})").to_arrow_table()


def create(lake: DuckLake, files: int = 20, **layout: Any) -> None:
    """Create a table of files that each have all values."""
    schema = {"id": "BIGINT", "a": "INTEGER", "b": "VARCHAR", "p": "BIGINT"}
    lake.create_table("t", schema, **{"cluster_by": ["a", "b"], "options": SMALL} | layout)
    for number in range(files):
        lake.write(rows(number * ROWS), "t", mode="append")


def plan(lake: DuckLake, **layout: Any) -> Sequence[PlannedStep]:
    """Return the planned steps that run."""
    steps = lake.plan_maintenance({"layout": layout, **NO_MERGE}, ["layout"]).operations
    return [step for step in steps if step.action == "run"]


def why_not(lake: DuckLake, **layout: Any) -> str:
    """Return why no file is to be clustered."""
    [step] = lake.plan_maintenance({"layout": layout, **NO_MERGE}, ["layout"]).operations
    assert step.action == "skip"
    return step.reason


def cluster(lake: DuckLake, **layout: Any) -> None:
    lake.maintain({"layout": layout, **NO_MERGE}, ["layout"]).raise_for_error()


def files(lake: DuckLake, where: str | None = None) -> int:
    return len(lake.table("t").files(where=where))


def past_of(lake: DuckLake) -> Past:
    """Return the rows of the last snapshots, the files of which are those of the earlier ones, too."""
    return Past(lake, first=max(2, latest(lake) - 2))


def depth(lake: DuckLake) -> float:
    return float(lake.health().tables[0].metrics["depth"])


@catalogs(quick=[SQLITE, POSTGRES])
def test_conditions_on_each_key_need_few_of_the_clustered_files(lake: DuckLake) -> None:
    create(lake)
    lake.delete("t", "id % 50 = 3")
    lake.update("t", {"p": "9"}, "id % 100 = 7")
    past = past_of(lake)
    assert (files(lake, "a = 17"), files(lake, "b = 'v44'")) == (files(lake), files(lake))
    assert depth(lake) > 4
    cluster(lake)
    assert 15 <= files(lake) <= 25
    assert files(lake, "a = 17") <= 8
    assert files(lake, "b = 'v44'") <= 8
    assert files(lake, "a = 17 AND b = 'v44'") <= 3
    assert depth(lake) < 7
    past.check()
    assert why_not(lake, max_depth=1).endswith("files hold a value of a, b; clustering would hardly lower this")


@on_sqlite
def test_the_files_of_a_sorted_table_are_clustered_by_its_sort_keys(lake: DuckLake) -> None:
    create(lake, cluster_by=None, sort_by=["b DESC NULLS FIRST", "a"])
    past = past_of(lake)
    cluster(lake)
    assert files(lake, "b = 'v44'") <= 2
    past.check()
    for file in lake.table("t").files():
        values = duckdb.read_parquet(file.path).project("b, a").fetchall()
        assert values == sorted(values, key=lambda row: ([-ord(letter) for letter in row[0]] + [1], row[1]))


@on_sqlite
def test_each_partition_is_clustered_alone(lake: DuckLake) -> None:
    create(lake, partition_by=["p"], options={"target_file_size": "15KB"})
    past = past_of(lake)
    steps = plan(lake)
    assert sorted(str(step.partition) for step in steps) == ["{'p': '0'}", "{'p': '1'}"]
    cluster(lake)
    assert files(lake, "a = 17 AND p = 1") <= 8
    past.check()


@on_sqlite
def test_a_partition_that_is_hardly_worse_than_necessary_is_left_alone(lake: DuckLake) -> None:
    create(lake, files=4)
    assert why_not(lake) == ("at most 4.0 files hold a value of a, b; `max_depth` is 4")
    [step] = plan(lake, max_depth=2)
    assert step.reason == "4.0 files hold a value of a, b; 4 files become 3"
    assert step.saves > 0
    assert step.benefit > 0


@on_sqlite
def test_a_byte_is_rewritten_only_a_few_times(lake: DuckLake) -> None:
    create(lake, files=0, cluster_by=["a"])
    written = rewritten = 0
    for number in range(60):
        lake.write(rows(number * ROWS), "t", mode="append")
        written += lake.table("t").files()[-1].bytes
        for step in lake.maintain(NO_MERGE, ["layout"]).operations:
            rewritten += step.bytes or 0 if step.status == "done" else 0
        assert depth(lake) <= 7
    assert rewritten < 5 * written


@on_sqlite
def test_large_partitions_are_clustered_in_parts(lake: DuckLake) -> None:
    create(lake, cluster_by=["a"])
    past, before = past_of(lake), depth(lake)
    limit = sum(file.bytes for file in lake.table("t").files()) // 3
    for _ in range(12):
        steps = plan(lake, max_bytes=limit, max_depth=2)
        assert all((step.bytes or 0) <= limit for step in steps)
        cluster(lake, max_bytes=limit, max_depth=2)
    assert depth(lake) < before / 3
    past.check()


@on_sqlite
def test_rows_with_equal_keys_are_divided_by_size_and_only_once(lake: DuckLake) -> None:
    create(lake, files=0, cluster_by=["p"], options={"target_file_size": "60KB", "parquet_row_group_size": 2048})
    for number in range(10):
        lake.write(rows(number * 10_000, 10_000).filter(pc.field("p") == 1), "t", mode="append")
    past = past_of(lake)
    cluster(lake, max_depth=1)
    sizes = [file.bytes for file in lake.table("t").files()]
    assert len(sizes) >= 3
    assert why_not(lake, max_depth=1)
    past.check()


VALUES = {
    "BIGINT": "id * 1000003 % 4000 - 2000",
    "DOUBLE": "CASE id % 7 WHEN 0 THEN 'inf'::DOUBLE WHEN 1 THEN '-inf'::DOUBLE ELSE hash(id) % 1000 / 7 END",
    "DECIMAL(38,4)": "hash(id)::DECIMAL(38,4) / 3",
    "VARCHAR": "CASE id % 9 WHEN 0 THEN repeat('é', 30) || id WHEN 1 THEN '' ELSE chr((65 + id % 26)::INTEGER) END",
    "DATE": "DATE '2024-01-01' + (hash(id) % 1000)::INTEGER",
    "TIMESTAMPTZ": "TIMESTAMPTZ '2024-01-01 00:00:00+02' + INTERVAL (hash(id) % 1000) HOUR",
    "UUID": "md5(id::VARCHAR)::UUID",
    "BOOLEAN": "hash(id) % 2 = 0",
    "UBIGINT": "hash(id)",
}


@on_sqlite
@pytest.mark.parametrize("kind", VALUES)
def test_keys_of_each_type_are_clustered_with_their_nulls(lake: DuckLake, kind: str) -> None:
    lake.create_table("t", {"id": "BIGINT", "k": kind}, cluster_by=["k"], options=SMALL)
    value = f"CASE WHEN id % 5 = 0 THEN NULL ELSE CAST({VALUES[kind]} AS {kind}) END"
    for number in range(6):
        numbers = f"SELECT range AS id FROM range({number * ROWS}, {(number + 1) * ROWS})"
        lake.write(duckdb.sql(f"SELECT id, {value} AS k FROM ({numbers})").to_arrow_table(), "t", mode="append")
    past = past_of(lake)
    cluster(lake, max_depth=1)
    past.check()
    assert files(lake, "k IS NULL") < files(lake) / 2


@on_sqlite
def test_rows_deleted_after_the_plan_stay_deleted(lake: DuckLake) -> None:
    create(lake)
    stale = lake.plan_maintenance(NO_MERGE, ["layout"])
    lake.delete("t", "id < 10")
    lake.write(rows(20 * ROWS), "t", mode="append")
    past = past_of(lake)
    lake.maintain(stale).raise_for_error()
    past.check()
    cluster(lake)
    past.check()
    assert lake.table("t").count() == 21 * ROWS - 10


@on_sqlite
def test_files_of_other_schemas_and_partition_keys_are_clustered_too(lake: DuckLake) -> None:
    create(lake, files=10)
    lake.alter_table("t", add_columns={"c": "INTEGER"}, rename_columns={"id": "number"}, partition_by=["p"])
    for number in range(10, 20):
        data = rows(number * ROWS).rename_columns(["number", "a", "b", "p"])
        lake.write(data, "t", mode="append")
    past = past_of(lake)
    for _ in range(3):
        cluster(lake, max_depth=1.5)
    assert files(lake, "a = 17 AND p = 1") <= 3
    past.check()


@on_sqlite
def test_merged_files_are_clustered_inside(lake: DuckLake) -> None:
    create(lake, files=6, options={"parquet_row_group_size": 2048})
    past = past_of(lake)
    lake.maintain(operations=["merge"]).raise_for_error()
    [file] = lake.table("t").files()
    bounds = duckdb.sql(
        "SELECT stats_min_value::INTEGER, stats_max_value::INTEGER"
        f" FROM parquet_metadata({literal(file.path)}) WHERE path_in_schema = 'a'"
    ).fetchall()
    assert len(bounds) > 8
    assert sum(low <= 17 <= high for low, high in bounds) <= len(bounds) / 2
    past.check()


@on_sqlite
def test_the_policy_sets_keys_and_turns_clustering_off(lake: DuckLake) -> None:
    create(lake)
    assert why_not(lake, cluster="off") == "the policy's `layout.cluster` is off"
    assert plan(lake, cluster_by=["b"])[0].reason.startswith("20.0 files hold a value of b; ")
    assert why_not(lake, cluster_by=["c"]) == "its cluster key `c` is not one of its columns"
    lake.table("t").set_cluster_by([])
    assert why_not(lake) == _NO_KEYS
    assert lake.health().tables[0].metrics["depth"] is None


@on_sqlite
def test_a_renamed_key_is_named(lake: DuckLake) -> None:
    create(lake)
    lake.alter_table("t", rename_columns={"a": "c"})
    assert why_not(lake) == "its cluster key `a` is not one of its columns"
    lake.table("t").set_cluster_by(["C"])
    assert plan(lake)


@on_sqlite
def test_a_badly_clustered_table_is_a_finding(lake: DuckLake) -> None:
    create(lake, cluster_by=["a"])
    [table] = lake.health().tables
    [finding] = [finding for finding in table.findings if finding.metric == "depth"]
    assert finding.grade == "bad"
    assert finding.value == pytest.approx(20)
    assert finding.remedy == "`ducklake-orch maintain --operation layout --table main.t`"
    assert 'ducklake_table_depth{lake="lake",schema="main",table="t"} 20' in lake.health().to_prometheus()


@catalogs()
def test_cluster_keys_are_replaced_and_removed(lake: DuckLake) -> None:
    create(lake, files=0)
    table = lake.table("t")
    for keys in (["b"], ["b"], ["id", "A", "b", "p"], []):
        table.set_cluster_by(keys)
        stored = [option.value for option in lake.options() if option.name == "cluster_by"]
        assert stored == ([str([key.lower() for key in keys]).replace("'", '"')] if keys else [])


@on_sqlite
@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (["x"], "The cluster key `x` is not a column"),
        (["a", "A"], "The cluster key `a` is given twice"),
        (["s"], "`s` is STRUCT.* cannot be a cluster key"),
        (["h"], "`h` is HUGEINT and cannot be a cluster key"),
        (["a", "b", "c", "d", "e"], "5 cluster keys are too many"),
        ("a", "`cluster_by` = 'a' is not a list"),
    ],
)
def test_unfit_keys_are_refused_before_anything_is_created(lake: DuckLake, keys: Any, words: str) -> None:
    schema = dict.fromkeys("abcde", "INTEGER") | {"s": "STRUCT(x INTEGER)", "h": "HUGEINT"}
    with pytest.raises(ConfigError, match=words):
        lake.create_table("t", schema, cluster_by=keys)
    assert not lake.exists("t")
    lake.create_table("t", schema)
    with pytest.raises(ConfigError, match=words):
        lake.table("t").set_cluster_by(keys)
    with pytest.raises(ObjectNotFoundError):
        lake.table("u").set_cluster_by(["a"])


@on_sqlite
def test_rewritten_files_can_still_be_clustered(lake: DuckLake) -> None:
    create(lake)
    lake.delete("t", "hash(id) % 10 = 1")
    past = past_of(lake)
    lake.maintain({"rewrite": {"delete_threshold": 0.05}, **NO_MERGE}, ["rewrite"]).raise_for_error()
    before = files(lake)
    assert files(lake, "a = 17") == before
    cluster(lake)
    assert files(lake, "a = 17") <= before / 2
    past.check()


@on_sqlite
def test_one_small_file_does_not_rewrite_clustered_ones(lake: DuckLake) -> None:
    create(lake)
    cluster(lake)
    for number in range(2):
        lake.write(rows(number * 100, 100), "t", mode="append")
        assert plan(lake, max_depth=1) == []


@on_sqlite
def test_a_key_with_two_values_settles_in_parts(lake: DuckLake) -> None:
    create(lake, cluster_by=["p"])
    past, limit = past_of(lake), sum(file.bytes for file in lake.table("t").files()) // 3
    for _ in range(12):
        if not plan(lake, max_bytes=limit):
            break
        cluster(lake, max_bytes=limit)
    assert plan(lake, max_bytes=limit) == []
    assert depth(lake) <= 4
    assert lake.health().tables[0].grade == "ok"
    past.check()


@on_sqlite
def test_keys_without_values_are_left_alone(lake: DuckLake) -> None:
    create(lake, files=8)
    lake.alter_table("t", add_columns={"new": "INTEGER"})
    lake.table("t").set_cluster_by(["new", "a"])
    limit = sum(file.bytes for file in lake.table("t").files()) // 2
    past = past_of(lake)
    for _ in range(3):
        cluster(lake, max_bytes=limit, max_depth=2)
    past.check()
    lake.table("t").set_cluster_by(["new"])
    assert why_not(lake, max_bytes=limit) == "at most 0.0 files hold a value of new; `max_depth` is 4"


@on_sqlite
@pytest.mark.parametrize(
    ("layout", "change"),
    [
        ({}, {"rename_columns": {"a": "c"}}),
        ({}, {"drop_columns": ["b"]}),
        ({"cluster_by": None, "sort_by": ["a"]}, {"sort_by": []}),
    ],
)
def test_keys_that_are_lost_after_the_plan_stop_the_step(lake: DuckLake, layout: Any, change: Any) -> None:
    create(lake, files=6, **layout)
    stale = lake.plan_maintenance(NO_MERGE, ["layout"])
    assert stale.operations[0].action == "run"
    lake.alter_table("t", **change)
    [step] = lake.maintain(stale).operations
    assert step.status == "skipped"
    assert "a concurrent write changed it" in step.reason


@on_sqlite
def test_files_are_left_alone_if_memory_does_not_suffice(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    create(lake)
    past = past_of(lake)
    lake.maintain({"layout": {}, "memory_limit": "8 MiB", **NO_MERGE}, ["layout"]).raise_for_error()
    assert "are not clustered: " in caplog.text
    assert files(lake) == 20
    past.check()


@on_sqlite
def test_two_keys_settle_in_parts(lake: DuckLake) -> None:
    create(lake)
    past, size = past_of(lake), sum(file.bytes for file in lake.table("t").files())
    rewritten = 0
    for _ in range(15):
        if not (steps := plan(lake, max_bytes=size // 4)):
            break
        rewritten += sum(step.bytes or 0 for step in steps)
        cluster(lake, max_bytes=size // 4)
    assert plan(lake, max_bytes=size // 4) == []
    assert rewritten < 4 * size
    past.check()
