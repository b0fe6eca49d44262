"""A maintenance plan lists the steps of a run and the reasons of skipped steps, and changes nothing."""

import json
from typing import Any

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.errors import ConfigError, MaintenanceFloorError, ObjectNotFoundError, UnmatchedOverrideWarning
from ducklake_orch.maintenance.results import MaintenancePlan, PlannedStep
from tests.support.backends import MYSQL, POSTGRES, SQLITE, Backend, catalogs, on_sqlite
from tests.support.worn_lakes import ALL_OF_IT, contents, metadata, rows, small_files, worn

TABLES = ["flush", "rewrite", "merge"]


def step_of(plan: MaintenancePlan, operation: str, table: str | None = "main.t") -> PlannedStep:
    steps = [step for step in plan.operations if (step.operation, step.table) == (operation, table)]
    assert len(steps) == 1, steps
    return steps[0]


# --- planned steps ---------------------------------------------------------------------------------------------------


@catalogs()
def test_a_plan_has_figures_for_every_operation_and_changes_nothing(backend: Backend, lake: DuckLake) -> None:
    worn(lake)
    before = metadata(lake)
    plan = lake.plan_maintenance(ALL_OF_IT)
    assert metadata(lake) == before
    if backend.catalog is not MYSQL:  # the engine inlines no rows on MySQL
        flush = step_of(plan, "flush", "main.i")
        assert (flush.action, flush.rows, flush.files_out) == ("run", 3, 1)
    rewrite = step_of(plan, "rewrite", "main.d")
    assert (rewrite.action, rewrite.files_in, rewrite.files_out, rewrite.rows) == ("run", 1, 1, 75)
    files = {file.path: file for file in lake.table("d").files()}
    assert rewrite.bytes == sum(files[path].bytes for path in rewrite.paths)
    merge = step_of(plan, "merge")
    assert (merge.action, merge.files_in, merge.files_out) == ("run", 5, 1)
    expire = step_of(plan, "expire", None)
    assert (expire.action, expire.snapshots) == ("run", len(lake.snapshots()) - 1)
    assert sorted(expire.snapshot_ids) == sorted(s.snapshot_id for s in lake.snapshots()[1:])
    assert step_of(plan, "cleanup", None).action == "skip"
    assert step_of(plan, "orphans", None).action == "skip"


@on_sqlite
def test_a_plan_converts_to_json_and_text(lake: DuckLake) -> None:
    worn(lake)
    plan = lake.plan_maintenance()
    dumped = json.loads(json.dumps(plan.to_dict()))
    assert set(dumped) >= {"operations", "totals"}
    keys = {
        "operation",
        "table",
        "partition",
        "action",
        "reason",
        "files_in",
        "files_out",
        "bytes",
        "rows",
        "snapshots",
        "paths",
    }
    assert all(keys <= set(step) for step in dumped["operations"])
    assert {step["action"] for step in dumped["operations"]} == {"run", "skip"}
    todo = [step for step in dumped["operations"] if step["action"] == "run"]
    assert dumped["totals"]["steps"] == len(todo)
    assert dumped["totals"]["files_in"] == sum(step["files_in"] for step in todo)
    assert "merge main.t: 5 small files become 1" in str(plan)


@on_sqlite
def test_each_partition_is_planned_separately(lake: DuckLake) -> None:
    data = rows(0, 4).append_column("region", [["a", "a", "b", "b"]])
    for _ in range(5):
        lake.write(data, "t", mode="append", partition_by=["region"])
    lake.write(data.slice(0, 2), "t", mode="append")
    policy = MaintenancePolicy(merge={"min_files": 6})
    merges = [step for step in lake.plan_maintenance(policy).operations if step.operation == "merge"]
    assert [(step.partition, step.files_in) for step in merges] == [({"region": "a"}, 6)]


@on_sqlite
def test_target_size_and_tiers_select_the_files_to_merge(lake: DuckLake) -> None:
    small_files(lake, "t", files=4, each=20)
    small_files(lake, "t", files=3, each=5000)
    sizes = sorted(file.bytes for file in lake.table("t").files())

    def planned(**merge: Any) -> tuple[int, int | None]:
        step = step_of(lake.plan_maintenance({"merge": {"min_files": 2} | merge}), "merge")
        return step.files_in, step.files_out

    assert planned() == (7, 1)
    assert planned(target_file_size=2 * sizes[3]) == (4, 2)
    assert planned(tiers=[sizes[3] + 1]) == (4, 1)
    assert planned(tiers=[sizes[3] + 1, "1 GB"]) == (7, 2)
    assert planned(max_files_per_run=3) == (3, 1)
    assert planned(target_file_size=2 * sizes[3], max_files_per_run=3) == (2, 1)
    assert planned(target_file_size=sizes[0]) == (0, 0)
    lake.set_option("target_file_size", f"{sizes[0]}B", table="t")
    assert planned() == (0, 0)


# --- skipped steps ---------------------------------------------------------------------------------------------------


@on_sqlite
def test_a_skipped_step_has_a_reason(lake: DuckLake) -> None:
    small_files(lake, "t", files=2)
    lake.delete("t", "k = 1")
    lake.write(rows(100, 2), "t", mode="append", inline="auto")

    def reason(operation: str, table: str | None = "main.t", **policy: Any) -> str:
        step = step_of(lake.plan_maintenance(MaintenancePolicy(**policy)), operation, table)
        assert step.action == "skip"
        return step.reason

    assert "min_rows" in reason("flush", flush={"min_rows": 3})
    assert "min_age" in reason("flush", flush={"min_age": "1h"})
    assert "5%" in reason("rewrite")
    assert "fewer than `min_files` = 5" in reason("merge")
    assert "policy" in reason("merge", merge={"enabled": False})
    assert "younger than 7 days" in reason("expire", None)
    assert "2 days" in reason("cleanup", None)
    assert "policy" in reason("orphans", None, orphans={"action": "off"})
    lake.set_option("auto_compact", False, table="t")
    for operation in TABLES:
        assert "auto_compact" in reason(operation)
    lake.create_table("empty", {"k": "BIGINT"})
    assert "nothing is inlined" in reason("flush", "main.empty")
    assert "no row is deleted" in reason("rewrite", "main.empty")


@catalogs(sql_writes=True)
def test_only_a_rewrite_by_the_extension_needs_a_flush_first(lake: DuckLake) -> None:
    worn(lake)
    lake.write(rows(2000, 2), "d", mode="append", inline="auto")
    lake.execute("DELETE FROM d WHERE k = 60").raise_for_error()  # an inlined deletion

    def planned(flush: dict[str, object], engine: str) -> dict[str, str]:
        policy = {"flush": flush, "rewrite": {"engine": engine}}
        plan = lake.plan_maintenance(policy, tables=["d"], operations=["flush", "rewrite"])
        return {step.operation: step.action for step in plan.operations}

    offs: list[dict[str, object]] = [{"enabled": False}, {"min_rows": 1000}]
    for off in offs:
        assert planned(off, "auto") == {"flush": "skip", "rewrite": "run"}
        assert planned(off, "extension") == {"flush": "skip", "rewrite": "skip"}
    assert list(planned({}, "extension").items()) == [("flush", "run"), ("rewrite", "run")]
    alone = lake.plan_maintenance({"rewrite": {"engine": "extension"}}, tables=["d"], operations=["rewrite"])
    assert "inlined deletions" in alone.operations[0].reason


@on_sqlite
def test_expiry_retains_the_last_snapshots_and_those_to_keep(lake: DuckLake) -> None:
    from ducklake_orch import CommitInfo

    lake.write(rows(0, 1), "t", mode="append", commit=CommitInfo(message="release 1"))
    lake.write(rows(1, 1), "t", mode="append", commit=CommitInfo(author="ann"))
    small_files(lake, "t", files=4)
    everything = {"older_than": 0, "retain_last": 1}
    plan = lake.plan_maintenance(MaintenancePolicy(expire=everything, force=True))
    assert list(step_of(plan, "expire", None).snapshot_ids) == [0, 1, 2, 3, 4, 5]
    retained = everything | {"retain_last": 3, "keep": ["release *", "ann"]}
    plan = lake.plan_maintenance(MaintenancePolicy(expire=retained, force=True))
    assert list(step_of(plan, "expire", None).snapshot_ids) == [0, 3]
    assert step_of(lake.plan_maintenance(), "expire", None).action == "skip"


# --- arguments -------------------------------------------------------------------------------------------------------


@on_sqlite
def test_unknown_names_are_refused(lake: DuckLake) -> None:
    worn(lake)
    with pytest.raises(ConfigError, match="rewrite"):
        lake.plan_maintenance(operations=["rewrit"])
    with pytest.raises(ObjectNotFoundError, match=r"main\.t"):
        lake.plan_maintenance(tables=["tt"])
    with pytest.raises(ObjectNotFoundError, match="main"):
        lake.plan_maintenance(schemas=["mainz"])
    with pytest.raises(MaintenanceFloorError):
        lake.plan_maintenance({"cleanup": {"older_than": "1m"}})
    with pytest.raises(MaintenanceFloorError):
        lake.plan_maintenance(ALL_OF_IT.model_copy(update={"force": False}))
    with pytest.warns(UnmatchedOverrideWarning, match=r"main\.tt.*main\.t"):
        plan = lake.plan_maintenance({"overrides": {"main.tt": {"merge": {"min_files": 2}}}})
    assert any("main.tt" in warning for warning in plan.warnings)


@on_sqlite
def test_a_plan_has_only_the_selected_operations_and_tables(lake: DuckLake) -> None:
    worn(lake)
    lake.write(rows(0, 1), "other.t", mode="append")
    tables = {step.table for step in lake.plan_maintenance(operations=TABLES).operations}
    assert tables == {"main.t", "main.d", "main.i", "other.t"}
    assert {step.table for step in lake.plan_maintenance(operations=TABLES, schemas=["oth*"]).operations} == {"other.t"}
    assert {step.table for step in lake.plan_maintenance(operations=TABLES, tables=["*.t"]).operations} == {
        "main.t",
        "other.t",
    }
    assert [step.operation for step in lake.plan_maintenance(operations="expire").operations] == ["expire"]


def test_ages_beyond_the_range_of_timestamps_work(tmp_path: Any) -> None:
    lake = DuckLake.local(tmp_path / "l")
    worn(lake)
    plan = lake.plan_maintenance({"expire": {"older_than": "900000 days"}, "cleanup": {"older_than": "900000 days"}})
    assert step_of(plan, "expire", None).action == "skip"
    assert contents(lake)


# --- cost ------------------------------------------------------------------------------------------------------------


@catalogs(quick=[POSTGRES, SQLITE])
def test_the_number_of_queries_is_independent_of_the_number_of_tables(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ducklake_orch.catalog.metadata import Metadata

    queries_run: list[str] = []
    real = Metadata.rows

    def counting(self: Metadata, sql: str) -> Any:
        queries_run.append(sql)
        return real(self, sql)

    monkeypatch.setattr(Metadata, "rows", counting)

    def queries() -> int:
        queries_run.clear()
        lake.plan_maintenance(ALL_OF_IT)
        return len(queries_run)

    small_files(lake, "t0", files=2)
    lake.delete("t0", "k = 1")
    lake.write(rows(100, 2), "t0", mode="append", inline="auto")
    count_before = queries()
    for number in range(1, 8):
        small_files(lake, f"t{number}", files=2)
        lake.delete(f"t{number}", "k = 1")
    lake.write(rows(100, 2), "t3", mode="append", inline="auto")
    assert queries() == count_before
