"""Finds the asset or op that owns a table, and refuses a second one that would replace its rows."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import dagster as dg

from ducklake_orch.catalog.commit import last_commit
from ducklake_orch.dagster.metadata_settings import settings_in
from ducklake_orch.dagster.output_run import ASSET_KEY, asset_of, has_step
from ducklake_orch.dagster.table_names import TableNames, check_assets, replaces, shared, stores_nothing
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError
from ducklake_orch.lake import DuckLake


def check_definitions(definitions: dg.Definitions) -> dg.Definitions:
    """Return the definitions, or refuse what a run of an asset of a `DuckLakeIOManager` would refuse after computing.

    Dagster shows an IO manager nothing of its assets before they have run.

    Args:
        definitions: All definitions of a code location.

    Raises:
        ConfigError: If a setting in the metadata of an asset is misspelt, or if several assets are the same table.

    Examples:
        >>> defs = check_definitions(dg.Definitions(assets=[orders], resources={"io_manager": io_manager}))
    """
    from ducklake_orch.dagster.io_manager import DuckLakeIOManager

    graph = definitions.get_repository_def().asset_graph
    for name, manager in (definitions.resources or {}).items():
        if isinstance(manager, DuckLakeIOManager):
            check_assets(stored_by(graph, name), manager.table_names)
    return definitions


def refuse_other_owners(
    context: dg.OutputContext, lake: DuckLake, table: TableName, metadata: Mapping[str, Any], names: TableNames
) -> int | None:
    """Refuse an output whose table belongs to another asset or op, before anything is written.

    Other assets are those of the code location, as far as the run knows it, and the last asset that wrote the table.

    Args:
        context: The output.
        lake: The lake.
        table: The table of the output.
        metadata: The metadata of its definition and of its run.
        names: Names the tables.

    Returns:
        If no asset has written the table yet, the snapshot at which that was checked. Another asset can write between
        the check and the write, so the write must expect this snapshot.
    """
    if not has_step(context):
        return None
    if not context.has_asset_key:
        if metadata.get("table") and replaces(metadata):
            _refuse_other_steps(context, table)
        return None
    for graph in graphs(context):
        if graph.has(context.asset_key):
            io_manager_key = graph.get(context.asset_key).io_manager_key
            check_assets(_of_table(stored_by(graph, io_manager_key), table, names), names)
    if not replaces(metadata):
        return None
    own, earlier = context.asset_key.to_user_string(), metadata.get("renamed_from") or []
    known = [name[:100] for name in (own, *([earlier] if isinstance(earlier, str) else earlier))]
    last, snapshot = last_commit(lake.reading(entering=False), table, ASSET_KEY)
    if last is None:
        return snapshot
    if (other := asset_of(last.key)) not in known:
        raise shared(table, [own, other])
    return None


def stored_with(context: dg.OutputContext | dg.InputContext) -> str:
    """Return the key of the IO manager that stores an asset of the code location."""
    for graph in graphs(context):
        if graph.has(context.asset_key) and graph.get(context.asset_key).is_materializable:
            return str(graph.get(context.asset_key).io_manager_key)
    return "io_manager"


def graphs(context: dg.OutputContext | dg.InputContext) -> Iterator[Any]:
    """Return the asset graphs that a run knows: that of its job and, in a code location, that of all definitions."""
    step = context.step_context
    yield step.job_def.asset_layer.asset_graph
    repository = step.job.get_repository_definition()
    if repository is not None:
        yield repository.asset_graph


def stored_by(graph: Any, io_manager_key: str) -> Iterator[tuple[dg.AssetKey, Mapping[str, Any]]]:
    """Return the assets that an IO manager stores."""
    for key in graph.materializable_asset_keys:
        node = graph.get(key)
        if node.io_manager_key == io_manager_key and not stores_nothing(node.assets_def, key):
            yield key, node.metadata


def _of_table(
    assets: Iterable[tuple[dg.AssetKey, Mapping[str, Any]]], table: TableName, names: TableNames
) -> Iterator[tuple[dg.AssetKey, Mapping[str, Any]]]:
    return ((key, metadata) for key, metadata in assets if table.names(*names.of_asset(key, metadata)))


def _refuse_other_steps(context: dg.OutputContext, table: TableName) -> None:
    """Refuse a table that several steps of a run replace: ops with the same metadata, or copies of a mapped op."""
    step = context.step_context
    same = [
        f"{key}.{output.name}"
        for key, other in step.execution_plan.step_dict_by_key.items()
        for output in other.step_outputs
        if output.properties.asset_key is None
        and str(_output_metadata(step.job_def, other, output.name).get("table") or "").lower() == table.table.lower()
    ]
    mapped = context.mapping_key is not None or "[" in (context.step_key or "")
    if mapped or len(same) > 1:
        raise ConfigError(
            f"Output `{context.name}` of step `{context.step_key}` replaces the table `{table}`, which other"
            " steps of the run replace, too.",
            remedy="Remove `table` from its metadata, so that each output gets its own table, or set"
            ' {"write_mode": "append"}.',
        )


def _output_metadata(job: Any, step: Any, output: str) -> Mapping[str, Any]:
    return settings_in(job.get_node(step.node_handle).definition.output_def_named(output).metadata or {})
