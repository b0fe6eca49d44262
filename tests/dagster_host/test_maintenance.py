"""Maintenance as assets: order of operations, event log, checks, run config, and plans that change nothing."""

import os
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from ducklake_orch import MaintenancePolicy
from ducklake_orch.config.maintenance import OPERATIONS
from ducklake_orch.dagster import DuckLakeResource, build_health_checks, build_maintenance_definitions
from ducklake_orch.dagster.maintenance_summary import done
from ducklake_orch.errors import ConfigError, MaintenanceFloorError
from ducklake_orch.maintenance.run_log import only_runner
from tests.support.dagster_runs import metadata_of
from tests.support.refusals import refused

NOW: dict[str, Any] = {"expire": {"older_than": 0, "retain_last": 1}, "cleanup": {"older_than": 0}, "force": True}


@pytest.fixture
def busy(resource: DuckLakeResource) -> DuckLakeResource:
    """A lake that needs every operation."""
    lake = resource.lake()
    lake.set_option("data_inlining_row_limit", 0)
    files = [f"INSERT INTO orders VALUES ({n}, {n}), ({n + 100}, {n})" for n in range(25)]
    lake.execute(["CREATE TABLE orders (id BIGINT, day BIGINT)", *files]).raise_for_error()
    lake.set_option("data_inlining_row_limit", 10)
    lake.execute(["INSERT INTO orders VALUES (1000, 1)", "DELETE FROM orders WHERE id < 10"]).raise_for_error()
    return resource


def run(job: str, definitions: dg.Definitions, resource: DuckLakeResource, **options: Any) -> dg.ExecuteInProcessResult:
    both = dg.Definitions.merge(definitions, dg.Definitions(resources={"lake": resource}))
    return both.resolve_job_def(job).execute_in_process(**options)


def checks_of(result: dg.ExecuteInProcessResult) -> dict[str, dg.AssetCheckEvaluation]:
    return {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}


def test_the_maintenance_job_runs_all_operations_in_order(busy: DuckLakeResource) -> None:
    before = busy.lake().read("orders").num_rows
    result = run("lake_maintenance", build_maintenance_definitions(policy=NOW), busy)
    order = [event.asset_key.path[-1] for event in result.get_asset_materialization_events() if event.asset_key]
    assert order == ["flush", "rewrite", "merge", "layout", "expire", "cleanup", "orphans"]
    lake = busy.lake()
    assert lake.read("orders").num_rows == before
    assert len(lake.table("orders").files()) == 1
    merged, cleaned = metadata_of(result, "lake/maintenance/merge"), metadata_of(result, "lake/maintenance/cleanup")
    assert (merged["ducklake/status"], merged["ducklake/done"], merged["ducklake/files_out"]) == ("ok", 1, 1)
    said = {operation: metadata_of(result, f"lake/maintenance/{operation}") for operation in order}
    assert {next(iter(metadata)) for metadata in said.values()} == {"ducklake/summary"}
    assert [
        re.sub(r" \([0-9.]+ KiB\)|, \d+\.\d s\.", "", metadata["ducklake/summary"]) for metadata in said.values()
    ] == [
        "Wrote 1 row and 10 deletions of `main.orders` to 1 file",
        "Rewrote 10 files of `main.orders` into 1",
        "Merged 17 files of `main.orders` into 1",
        "Nothing to do for `main.orders`: it has no cluster keys, and no column as its first sort key.",
        "Expired 31 snapshots and retired 20 files",
        "Deleted 37 files",
        "Nothing to do: no orphaned file is older than 7 days (the default).",
    ]
    assert merged["ducklake/lake_files"] == 1
    assert merged["ducklake/lake_rows"] == before
    assert [record.data["where"] for record in merged["ducklake/report"].records] == ["main.orders"]
    assert cleaned["ducklake/bytes_freed"] > 0
    assert cleaned["ducklake/lake_pending_bytes"] == 0
    checks = checks_of(result)
    assert {name for name, check in checks.items() if not check.passed} == set()
    assert {"no_step_failed", "small_file_ratio", "delete_share", "snapshot_count", "consistent"} <= set(checks)


def test_run_config_sets_dry_run_and_overrides_the_policy(busy: DuckLakeResource) -> None:
    definitions = build_maintenance_definitions(operations=["merge"])
    given: dict[str, Any] = {"dry_run": True}
    snapshots = len(busy.lake().snapshots())
    result = run("lake_maintenance", definitions, busy, run_config=configured("merge", given))
    metadata = metadata_of(result, "lake/maintenance/merge")
    assert (metadata["ducklake/dry_run"], len(busy.lake().snapshots())) == (True, snapshots)
    given = {"policy": {"merge": {"min_files": 1000}}}
    result = run("lake_maintenance", definitions, busy, run_config=configured("merge", given))
    assert metadata_of(result, "lake/maintenance/merge")["ducklake/files_in"] == 0
    assert len(busy.lake().table("orders").files()) > 20
    # With another `min_files`, other files count as small.
    assert checks_of(result)["small_file_ratio"].passed


def configured(operation: str, config: dict[str, Any]) -> dict[str, Any]:
    return {"ops": {f"lake__maintenance__{operation}": {"config": config}}}


def test_a_plan_is_observed_on_each_asset_and_changes_nothing(busy: DuckLakeResource) -> None:
    snapshots = len(busy.lake().snapshots())
    result = run("lake_maintenance_plan", build_maintenance_definitions(policy=NOW), busy)
    observed = [event.asset_observation_data.asset_observation for event in result.get_asset_observation_events()]
    planned = {observation.asset_key.path[-1]: observation.metadata for observation in observed}
    assert list(planned) == ["flush", "rewrite", "merge", "layout", "expire", "cleanup", "orphans"]
    metadata = planned["merge"]
    assert next(iter(metadata)) == "ducklake/summary"
    assert metadata["ducklake/summary"].value == "Would merge 15 files of `main.orders` into 1 (5.2 KiB)."
    assert metadata["ducklake/planned"].value is True
    assert metadata["ducklake/files_in"].value == 15  # the other ten are rewritten
    assert not result.get_asset_materialization_events()
    assert len(busy.lake().snapshots()) == snapshots


def test_a_broken_table_fails_its_check_and_other_tables_are_merged(busy: DuckLakeResource, tmp_path: Path) -> None:
    lake = busy.lake()
    for _ in range(6):
        lake.write(pa.table({"id": [1]}), "broken", mode="append")
    Path(lake.table("broken").files()[0].path).unlink()
    result = run("lake_maintenance", build_maintenance_definitions(operations=["merge", "expire"]), busy)
    assert result.success
    evaluations = [
        evaluation for evaluation in result.get_asset_check_evaluations() if evaluation.check_name == "no_step_failed"
    ]
    failed = {evaluation.asset_key.path[-1]: evaluation for evaluation in evaluations if not evaluation.passed}
    assert list(failed) == ["merge"]
    assert failed["merge"].severity is dg.AssetCheckSeverity.ERROR
    report: Any = failed["merge"].metadata["ducklake/report"].value
    assert report.records[0].data["where"] == "main.broken"
    assert len(lake.table("orders").files()) < 20


def test_a_concurrent_maintenance_run_is_retried(busy: DuckLakeResource) -> None:
    retry_once = dg.RetryPolicy(max_retries=1, delay=0.1)
    definitions = build_maintenance_definitions(operations=["merge"], retry_policy=retry_once)
    with only_runner(busy.lake().config):
        result = run("lake_maintenance", definitions, busy, raise_on_error=False)
    assert not result.success
    assert len([event for event in result.all_events if event.is_step_up_for_retry]) == 1


def test_the_definitions_set_schedules_pools_groups_and_freshness() -> None:
    lakes = {f"lake{n}": build_maintenance_definitions(f"lake{n}") for n in range(5)}
    definitions = dg.Definitions.merge(
        *lakes.values(),
        build_maintenance_definitions("lake0", name="hot", operations=["merge", "flush"], tables=["sales.*"]),
        dg.Definitions(
            resources={name: DuckLakeResource(name=name, catalog="sqlite:///x", storage="f") for name in lakes}
        ),
    )
    dg.Definitions.validate_loadable(definitions)
    schedules = [definitions.resolve_schedule_def(f"{name}_maintenance") for name in lakes]
    assert {schedule.default_status for schedule in schedules} == {dg.DefaultScheduleStatus.STOPPED}
    assert len({schedule.cron_schedule for schedule in schedules}) > 1
    flush = definitions.resolve_assets_def(dg.AssetKey(["lake0", "maintenance", "flush"]))
    assert flush.op.pool == "lake0_maintenance"
    spec = next(iter(flush.specs))
    assert (spec.kinds, spec.group_name) == ({"ducklake", "maintenance"}, "lake0_maintenance")
    assert spec.freshness_policy == dg.FreshnessPolicy.time_window(fail_window=timedelta(hours=36))
    hot = definitions.resolve_assets_def(dg.AssetKey(["hot", "maintenance", "merge"]))
    assert next(iter(next(iter(hot.specs)).deps)).asset_key.path[-1] == "flush"


def test_invalid_arguments_are_refused_when_definitions_load() -> None:
    refused(ConfigError, lambda: build_maintenance_definitions(operations=["merg"]), "merg", "merge")
    refused(ConfigError, lambda: build_maintenance_definitions(operations=[]), "empty", "merge")
    short = {"expire": {"older_than": "1 minute"}}
    refused(MaintenanceFloorError, lambda: build_maintenance_definitions(policy=short), "expire", "force")
    refused(ConfigError, lambda: build_maintenance_definitions(policy={"exprie": {}}), "exprie", "expire")


def test_health_is_checked_for_each_table(busy: DuckLakeResource) -> None:
    assets = [dg.AssetSpec("orders"), dg.AssetSpec("x", metadata={"table": "other"})]
    lake = busy.lake()
    lake.write(pa.table({"id": [1]}), "other", mode="append")
    for n in range(25):
        lake.write(pa.table({"id": [n], "day": [n]}), "orders", mode="append")
    grades = {"small_file_ratio": (0.1, 0.5), "delete_share": (0.01, 0.9), "snapshot_count": (10, 1000)}
    policy = MaintenancePolicy(health=grades)
    resource = DuckLakeResource(
        name="lake", catalog=busy.lake().config.catalog, storage=busy.lake().config.storage, maintenance=policy
    )
    definitions = dg.Definitions(
        assets=assets,
        asset_checks=build_health_checks(assets),
        jobs=[
            dg.define_asset_job("health", dg.AssetSelection.all_asset_checks()),
            dg.define_asset_job("checks_of_x", dg.AssetSelection.checks_for_assets(dg.AssetKey("x"))),
        ],
        resources={"lake": resource},
    )
    of_x = definitions.resolve_job_def("checks_of_x").execute_in_process().get_asset_check_evaluations()
    assert {evaluation.asset_key.path[0] for evaluation in of_x} == {"x"}
    assert len(of_x) == 6
    result = definitions.resolve_job_def("health").execute_in_process()
    found = {
        (evaluation.asset_key.to_user_string(), evaluation.check_name): evaluation
        for evaluation in result.get_asset_check_evaluations()
    }
    of_lake = {name for key, name in found if key == "lake/health"}
    assert of_lake == {"snapshot_count", "snapshot_age", "pending_bytes"}
    assert len(found) == 12 + len(of_lake)
    wrong = {key: check.severity.name for key, check in found.items() if not check.passed}
    assert wrong == {
        ("orders", "small_file_ratio"): "ERROR",
        ("orders", "delete_share"): "WARN",
        ("lake/health", "snapshot_count"): "WARN",
    }
    values: dict[str, Any] = {name: found["lake/health", name].metadata["ducklake/value"].value for name in of_lake}
    assert (values["snapshot_count"], values["pending_bytes"]) == (len(lake.snapshots()), 0)
    assert values["snapshot_age"] > 0
    assert "--operation merge" in str(found["orders", "small_file_ratio"].metadata["ducklake/remedy"].value)


def test_an_inconsistent_catalog_fails_the_consistency_check(busy: DuckLakeResource) -> None:
    with busy.lake().connect_metadata(read_only=False) as con:
        con.execute("UPDATE ducklake_data_file SET record_count = record_count + 7")
    result = run("lake_maintenance", build_maintenance_definitions(operations=["cleanup"]), busy)
    broken = checks_of(result)["consistent"]
    assert not broken.passed
    assert broken.metadata["ducklake/findings"].value


def test_the_job_checks_tables_and_lake_after_the_last_operation(busy: DuckLakeResource) -> None:
    @dg.asset(metadata={"table": "Orders"})
    def sold() -> pa.Table: ...

    assets: list[dg.AssetsDefinition | dg.AssetSpec] = [sold, dg.AssetSpec("not_made_yet")]
    definitions = dg.Definitions.merge(
        dg.Definitions(assets=assets, resources={"io_manager": dg.mem_io_manager}),
        build_maintenance_definitions(policy=NOW | {"health": {"snapshot_count": (0, 1)}}, checked_assets=assets),
    )
    result = run("lake_maintenance", definitions, busy)
    steps = [event.step_key for event in result.all_events if event.is_step_success]
    assert set(steps[-3:]) == {"lake_health", "lake_fsck", "lake__maintenance__orphans_consistent"}
    found = {
        (evaluation.asset_key.to_user_string(), evaluation.check_name): evaluation
        for evaluation in result.get_asset_check_evaluations()
    }
    assert {name for key, name in found if key == "lake/health"} == {"snapshot_count", "snapshot_age", "pending_bytes"}
    metrics = {"small_file_ratio", "files_per_partition", "delete_share", "depth", "inlined_rows", "consistent"}
    for key in ("sold", "not_made_yet"):
        assert {name for of, name in found if of == key} == metrics
        assert {found[key, name].passed for name in metrics} == {key == "sold"}
    # Measured after the merge, of the table as the catalog spells it.
    assert found["sold", "files_per_partition"].metadata["ducklake/value"].value == 1
    missing = found["not_made_yet", "consistent"]
    assert (missing.severity, missing.description) == (
        dg.AssetCheckSeverity.WARN,
        "Lake `lake` has no table of this asset yet: materialize it.",
    )


def test_definitions_describe_themselves_and_name_their_owners() -> None:
    maintenance = build_maintenance_definitions(
        checked_assets=[dg.AssetSpec("orders")], tables=["sales.*"], owners=["team:data"]
    )
    resource = DuckLakeResource(name="lake", catalog="sqlite:///x", storage="f")
    definitions = dg.Definitions.merge(maintenance, dg.Definitions(resources={"lake": resource}))
    specs = {spec.key.to_user_string(): spec for spec in definitions.resolve_all_asset_specs()}
    for key in (*(f"lake/maintenance/{operation}" for operation in OPERATIONS), "lake/health"):
        assert "`ducklake-orch " in (specs[key].description or "")
        assert (list(specs[key].owners), specs[key].group_name) == (["team:data"], "lake_maintenance")
    flush = str(specs["lake/maintenance/flush"].description)
    assert flush.startswith("Writes rows and deletions that are inlined in the catalog to Parquet files")
    assert "sales.*" in flush
    for job in ("lake_maintenance", "lake_maintenance_plan"):
        assert "`ducklake-orch " in str(definitions.resolve_job_def(job).description)
    assert "`lake_maintenance`" in str(definitions.resolve_schedule_def("lake_maintenance").description)
    graph = definitions.resolve_asset_graph()
    for check in graph.asset_check_keys:
        described = str(graph.get_check_spec(check).description)
        assert "Fails with" in described
        assert "`ducklake-orch " in described


def test_summaries_name_failures_and_what_is_only_reported(busy: DuckLakeResource) -> None:
    lake = busy.lake()
    lake.write(pa.table({"id": [1]}), "other", mode="append")
    (busy_root := Path(str(lake.config.data_path)) / "main" / "orders" / "stray.parquet").write_bytes(b"not known")
    os.utime(busy_root, (0, 0))
    found = lake.maintain(NOW, operations=["orphans"])
    assert done("orphans", found) == "Found 1 file (9 B) that the catalog does not know; the policy keeps them."
    planned = lake.maintain(NOW, operations=["rewrite"], dry_run=True)
    assert done("rewrite", planned) == "Would rewrite 10 files of `main.orders` into 1 (3.5 KiB)."
    for file in lake.table("orders").files():
        Path(file.path).unlink()
    failed = lake.maintain(NOW, operations=["merge"])
    assert done("merge", failed) == "**1 step failed**, the first for main.orders."
    stopped = lake.maintain(NOW | {"budget_s": 0.000001}, operations=["merge"])
    assert done("merge", stopped) == "1 step stopped early; the next run goes on."
    idle = lake.maintain({"merge": {"enabled": False}}, operations=["merge"])
    assert done("merge", idle) == "Nothing to do for 2 tables."


def test_zero_figures_are_left_out_except_those_of_the_operation(busy: DuckLakeResource) -> None:
    definitions = build_maintenance_definitions(operations=["merge"], policy={"merge": {"enabled": False}})
    metadata = metadata_of(run("lake_maintenance", definitions, busy), "lake/maintenance/merge")
    zero = {name for name, value in metadata.items() if value == 0 and not isinstance(value, bool | float)}
    assert zero == {f"ducklake/{name}" for name in ("files_in", "files_out", "bytes", "rows", "lake_pending_bytes")}
    assert metadata["ducklake/summary"] == "Nothing to do for `main.orders`: the policy disables it."


def test_many_findings_in_a_table_hide_none_of_another(resource: DuckLakeResource) -> None:
    lake = resource.lake()
    lake.set_option("data_inlining_row_limit", 0)
    for table, files in (("a", 25), ("b", 1), ("c", 1)):
        inserts = [f"INSERT INTO {table} VALUES ({n})" for n in range(files)]
        lake.execute([f"CREATE TABLE {table} (id BIGINT)", *inserts]).raise_for_error()
    of_c = "(SELECT table_id FROM ducklake_table WHERE table_name = 'c')"
    with lake.connect_metadata(read_only=False) as con:
        con.execute(f"UPDATE ducklake_data_file SET end_snapshot = begin_snapshot - 1 WHERE table_id <> {of_c}")
    assets = [dg.AssetSpec(table) for table in "abc"]
    checks = build_health_checks(assets)
    job = dg.define_asset_job("fsck", dg.AssetSelection.checks(checks[1]))
    definitions = dg.Definitions(assets=assets, asset_checks=checks, jobs=[job])
    result = run("fsck", definitions, resource)
    failed = {
        evaluation.asset_key.path[-1] for evaluation in result.get_asset_check_evaluations() if not evaluation.passed
    }
    assert failed == {"a", "b"}
