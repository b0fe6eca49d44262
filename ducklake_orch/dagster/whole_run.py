"""Tells when a run has staged all of its outputs."""

from typing import Any

import dagster as dg

from ducklake_orch.dagster.output_run import asset_of, cut, first_run, run_of
from ducklake_orch.dagster.run_stage import RunStage
from ducklake_orch.dagster.table_names import TableNames
from ducklake_orch.dagster.table_owners import stored_by
from ducklake_orch.engine.quoting import TableName, table_name

# An output: its table, its asset, and the run in which its step began; no run if any will do.
_Output = tuple[TableName, str, str | None]


def has_staged_all(context: dg.OutputContext, staged: RunStage, names: TableNames) -> bool:
    """Return whether every asset that the runs of a stage store with the same IO manager is in the stage.

    Outputs that wait to be repeated by the run do not count.
    """
    step = context.step_context
    graph = step.job_def.asset_layer.asset_graph
    tables = dict(stored_by(graph, graph.get(context.asset_key).io_manager_key))
    run, first = staged.runs[0], staged.runs[-1]
    wanted: set[_Output] = set()
    for found in step.execution_plan.step_dict_by_key.values():
        if not _includes(first.step_keys_to_execute, found.key):
            continue
        is_repeated = _includes(run.step_keys_to_execute, found.key)
        begun = first_run(run, staged.instance, found.key) if is_repeated else None
        for asset in (output.properties.asset_key for output in found.step_outputs):
            if asset in tables and _includes(first.asset_selection, asset):
                wanted.add((names.of_asset(asset, tables[asset]).key, cut(asset), begun))
    present: set[_Output] = set()
    for table, keys in staged.stage.keys().items():
        for key in keys:
            present |= {(table_name(table).key, asset_of(key), begun) for begun in (run_of(key), None)}
    return wanted <= present


def _includes(selected: Any, item: Any) -> bool:
    """Return whether a selection includes an item; without a selection, everything is selected."""
    return not selected or item in selected
