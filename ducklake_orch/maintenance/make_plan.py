"""Plan maintenance from one state of the catalog without changing anything (`lake.plan_maintenance`)."""

import logging
import sys
from collections.abc import Mapping

from ducklake_orch.catalog.transactions import tables_in_use
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.maintenance.census import Census, TableState, census
from ducklake_orch.maintenance.cluster_depth import clusterings
from ducklake_orch.maintenance.lake_options import with_lake_options
from ducklake_orch.maintenance.lake_plan import plan_clean_up, plan_expiry, plan_orphan_search
from ducklake_orch.maintenance.ranking import RANKED_RUNS, Ranking, cost_per_second, waits
from ducklake_orch.maintenance.results import MaintenancePlan, PlannedStep
from ducklake_orch.maintenance.run_log import latest_runs
from ducklake_orch.maintenance.selection import Selection, warn
from ducklake_orch.maintenance.table_plan import TABLE_OPERATIONS, TablePlanner
from ducklake_orch.maintenance.workload import proposed_keys, reads_per_day
from ducklake_orch.maintenance.write_times import last_writes

log = logging.getLogger("ducklake_orch")


def plan_maintenance(
    config: LakeConfig, policy: MaintenancePolicy, selection: Selection, *, distributed: bool = False
) -> MaintenancePlan:
    """Plan maintenance; see `DuckLake.plan_maintenance`."""
    with census(config, f"Planning the maintenance of lake `{config.name}`") as state:
        known = [table.name for table in state.tables]
        selection.refuse_unknown(known, config.name)
        warnings = _clock_warnings(state, policy, selection)
        policy, sources = with_lake_options(state.metadata, policy, warnings)
        warnings += warn(policy, known, config.name)
        steps = catalog_steps(state, policy, sources, selection, warnings, distributed=distributed)
        latest = state.latest.snapshot_id
        lake_id = state.metadata.lake_id(), state.metadata.snapshot_time(latest)
    steps += plan_orphan_search(config, policy, sources["orphans"], state.at) if selection.wants("orphans") else []
    return MaintenancePlan(config.name, latest, state.at, policy, steps, warnings, lake_id)


def catalog_steps(
    state: Census,
    policy: MaintenancePolicy,
    sources: Mapping[str, str],
    selection: Selection,
    warnings: list[str],
    *,
    distributed: bool = False,
) -> list[PlannedStep]:
    """Plan all operations but the search for orphans, which lists the storage.

    Args:
        state: The lake.
        policy: The policy, completed with the lake's options.
        sources: The source of each retention.
        selection: The selected operations and tables.
        warnings: Receives warnings for the user.
        distributed: Whether Spark is available.
    """
    steps = _table_steps(state, policy, selection, distributed)
    steps += [plan_expiry(state, policy, sources["expire"])] if selection.wants("expire") else []
    steps += [plan_clean_up(state, policy, sources["cleanup"], warnings)] if selection.wants("cleanup") else []
    return steps


def _clock_warnings(state: Census, policy: MaintenancePolicy, selection: Selection) -> list[str]:
    """Return warnings about this host's clock, if any operation depends on ages."""
    enabled = {
        "expire": policy.expire.enabled,
        "cleanup": policy.cleanup.enabled,
        "orphans": policy.orphans.action != "off",
    }
    if not any(is_on and selection.wants(operation) for operation, is_on in enabled.items()):
        return []
    found = state.clock.refuse_wrong(force=policy.force)
    for warning in found:
        log.warning("lake `%s`: %s", state.metadata.config.name, warning)
    return found


def _table_steps(
    state: Census, policy: MaintenancePolicy, selection: Selection, distributed: bool
) -> list[PlannedStep]:
    """Plan the steps of tables in the order of the run: what pays off first comes first."""
    if not any(map(selection.wants, TABLE_OPERATIONS)):
        return []
    ranking, in_use, proposals = _ranking(state), tables_in_use(state.metadata), proposed_keys(state.metadata)
    clustered = clusterings(state, policy, proposals)
    tables = [table for table in state.tables if selection.wants_table(table.name)]

    def planned(table: TableState, room: int) -> tuple[list[PlannedStep], int]:
        of_table = policy.of_table(*table.name)
        stage, clustering = in_use.get(table.table_id), clustered.get(table.table_id)
        proposed = proposals.get(table.table_id, ())
        planner = TablePlanner(
            state, table, of_table, room, distributed=distributed, stage=stage, clustering=clustering, proposed=proposed
        )
        steps = [ranking.scored(step, of_table.rank) for step in _planned_steps(planner, selection)]
        return steps, planner.room

    steps = [step for table in tables for step in planned(table, sys.maxsize)[0]]
    room = policy.merge.max_files_per_run
    if sum(step.files_in for step in steps if step.operation == "merge") > room:
        first: dict[str | None, int] = {}
        for number, step in enumerate(ranking.ranked(step for step in steps if step.operation == "merge")):
            first.setdefault(step.table, number)
        steps = []
        for table in sorted(tables, key=lambda table: first.get(str(table.name), len(first))):
            found, room = planned(table, room)
            steps += found
    return ranking.ranked(steps)


def _ranking(state: Census) -> Ranking:
    runs, written = latest_runs(state.metadata, RANKED_RUNS), last_writes(state.metadata)
    last = {str(table.name): written[table.table_id] for table in state.tables if table.table_id in written}
    counted = reads_per_day(state.metadata)
    reads = {str(table.name): counted[table.table_id] for table in state.tables if table.table_id in counted}
    return Ranking(state.at, last, cost_per_second(runs), waits(runs), reads)


def _planned_steps(planner: TablePlanner, selection: Selection) -> list[PlannedStep]:
    found = {operation: planner.plan(operation) for operation in TABLE_OPERATIONS if selection.wants(operation)}
    return [step for steps in found.values() for step in steps]
