"""The report compares maintenance with its policy: what is due now, and what the recorded runs did."""

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.report.upkeep import Upkeep
from tests.support.backends import on_sqlite
from tests.support.worn_lakes import ALL_OF_IT, worn


def operations(lake: DuckLake, policy: MaintenancePolicy | None = None) -> dict[str, Upkeep]:
    return {part.operation: part for part in lake.report(policy).upkeep}


@on_sqlite
def test_what_is_due_becomes_what_was_done(lake: DuckLake) -> None:
    worn(lake)
    merge = operations(lake)["merge"]
    assert (merge.due or {})["files_in"] == 5
    assert merge.done == {}
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    merge = operations(lake)["merge"]
    assert (merge.due or {})["files_in"] == 0
    assert (merge.done["files_in"], merge.done["files_out"]) == (5, 1)
    assert "5 files by merging" not in lake.report().to_html()
    assert "The recorded runs saved 4 files by merging." in lake.report().to_html()


@on_sqlite
def test_what_is_due_is_what_a_plan_would_run(lake: DuckLake) -> None:
    worn(lake)
    plan = lake.plan_maintenance(ALL_OF_IT)
    for operation, part in operations(lake, ALL_OF_IT).items():
        steps = [step for step in plan.operations if step.operation == operation and step.action == "run"]
        if part.due is not None:
            assert part.due["files_in"] == sum(step.files_in for step in steps), operation
            assert part.due["snapshots"] == sum(step.snapshots for step in steps), operation


@on_sqlite
def test_what_clean_up_deletes_is_what_runs_saved(lake: DuckLake) -> None:
    worn(lake)
    lake.maintain(ALL_OF_IT, operations=["merge"]).raise_for_error()
    lake.maintain(ALL_OF_IT, operations=["cleanup"]).raise_for_error()
    done = operations(lake)["cleanup"].done
    assert done["files_in"] == 5
    assert lake.report().runs[0].summary["totals"]["bytes_freed"] == done["bytes"] > 0


@on_sqlite
def test_rules_are_those_of_the_policy_and_of_the_lakes_options(lake: DuckLake) -> None:
    worn(lake)
    lake.execute(f"CALL {lake.config.alias}.set_option('expire_older_than', '12 days')").raise_for_error()
    policy = MaintenancePolicy(flush={"enabled": False}, orphans={"action": "off"})
    found = operations(lake, policy)
    assert (found["flush"].rule, found["orphans"].rule) == (None, None)
    assert found["expire"].rule == "snapshots older than 12 days, except the latest 10"
    assert "disabled" in lake.report(policy).to_html()
