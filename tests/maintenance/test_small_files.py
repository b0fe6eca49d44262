"""Small files that no ordinary merge takes: of partitions with few files, and of several schema versions."""

from typing import Any

import pyarrow as pa

from ducklake_orch import DuckLake
from ducklake_orch.maintenance.results import PlannedStep
from tests.support.backends import catalogs, on_sqlite
from tests.support.readers_of_the_past import Past

SETTLED = {"merge": {"settled_after": 0}}
MIB = 1 << 20


def append(lake: DuckLake, part: int, **more: Any) -> None:
    lake.write(
        pa.table({"k": [1, 2, 3], "p": [part] * 3} | more),
        "t",
        mode="append",
        partition_by=["p"],
        schema_evolution="add",
    )


def steps(lake: DuckLake, operation: str, policy: Any = None) -> list[PlannedStep]:
    plan = lake.plan_maintenance(policy, ["rewrite", "merge"])
    return [step for step in plan.operations if (step.operation, step.action) == (operation, "run")]


@catalogs()
def test_even_two_files_are_merged_once_a_partition_has_settled(lake: DuckLake) -> None:
    for part in (1, 2, 3):
        for _ in range(part):
            append(lake, part)
    past = Past(lake)
    assert steps(lake, "merge") == []  # younger than a day
    [step] = steps(lake, "merge", SETTLED)
    assert step.reason == "5 small files without new ones for 0 s in 2 partitions become 2"
    assert (step.files_in, step.files_out, step.partition) == (5, 2, None)
    lake.maintain(SETTLED, ["merge"]).raise_for_error()
    assert [partition.files for partition in lake.table("t").partitions()] == [1, 1, 1]
    past.check()
    assert steps(lake, "merge", SETTLED) == []


@on_sqlite
def test_a_partition_with_a_new_file_has_not_settled(lake: DuckLake) -> None:
    append(lake, 1)
    append(lake, 1)
    lake.execute("UPDATE __ducklake_metadata_lake.ducklake_snapshot SET snapshot_time = now() - INTERVAL 3 DAY")
    [step] = steps(lake, "merge")
    assert step.reason == "2 small files without new ones for 1 day become 1"
    append(lake, 1)
    assert steps(lake, "merge") == []
    append(lake, 2)
    assert steps(lake, "merge") == []


@on_sqlite
def test_a_run_merges_at_most_its_limit_of_settled_files(lake: DuckLake) -> None:
    for part in (1, 2, 3):
        append(lake, part)
        append(lake, part)
    [step] = steps(lake, "merge", {"merge": {"settled_after": 0, "max_files_per_run": 4}})
    assert (step.files_in, step.waiting) == (4, 2)


@on_sqlite
def test_small_files_of_several_schema_versions_are_rewritten_together(lake: DuckLake) -> None:
    for number in range(4):
        append(lake, 1, **{f"c{number}": [number] * 3})
        append(lake, 1, **{f"c{number}": [None, number, 7]})
    append(lake, 2)
    append(lake, 2, late=[1, 2, 3])
    lake.delete("t", "k = 3 AND c1 = 1")
    past = Past(lake)
    [step] = steps(lake, "rewrite")
    assert step.reason == "8 small files of several schema versions become 1"
    assert step.partition == {"p": "1"}
    assert steps(lake, "merge") == []
    lake.maintain(operations=["rewrite"]).raise_for_error()
    assert {part.values["p"]: part.files for part in lake.table("t").partitions()} == {"1": 1, "2": 2}
    past.check()
    assert steps(lake, "rewrite") == []


@on_sqlite
def test_files_that_a_merge_takes_are_not_rewritten(lake: DuckLake) -> None:
    for _ in range(6):
        append(lake, 1)
    for _ in range(6):
        append(lake, 1, more=[1, 2, 3])
    assert steps(lake, "rewrite") == []
    assert [step.files_in for step in steps(lake, "merge")] == [6, 6]


@on_sqlite
def test_the_policy_turns_the_combination_of_schema_versions_off(lake: DuckLake) -> None:
    for number in range(6):
        append(lake, 1, **{f"c{number}": [1, 2, 3]})
    assert len(steps(lake, "rewrite")) == 1
    assert steps(lake, "rewrite", {"merge": {"enabled": False}}) == []
    assert steps(lake, "rewrite", {"rewrite": {"enabled": False}}) == []


@on_sqlite
def test_large_tables_get_larger_files(lake: DuckLake) -> None:
    sizes = [300 * MIB] * 6 + [512 * MIB, 5 << 40]

    def merged(**policy: Any) -> list[int]:
        found = steps(lake, "merge", {"merge": {"min_files": 2} | policy})
        return [len(part.files) for step in found for part in step.bins]

    for _ in sizes:
        append(lake, 1)
    for number, size in enumerate(sizes):
        files = "__ducklake_metadata_lake.ducklake_data_file"
        lake.execute(f"UPDATE {files} SET file_size_bytes = {size} WHERE data_file_id = {number}")
    assert merged() == [2, 2, 2]
    assert merged(target_file_size="512MiB") == []
    lake.set_option("target_file_size", "1GiB", table="t")
    assert merged() == [3, 3]
