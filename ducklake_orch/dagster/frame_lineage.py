"""Builds the column lineage of an asset from the plan of the Spark DataFrame that it returns."""

from collections.abc import Iterator, Mapping
from typing import Any

import dagster as dg

from ducklake_orch.catalog.metadata import reading
from ducklake_orch.dagster.op_outputs import SCHEMA
from ducklake_orch.dagster.output_run import has_step
from ducklake_orch.dagster.table_keys import TableKeys
from ducklake_orch.dagster.table_names import TableNames, stores_nothing
from ducklake_orch.dagster.table_owners import graphs
from ducklake_orch.engine.quoting import folded
from ducklake_orch.frames import is_spark
from ducklake_orch.lake import DuckLake


def frame_lineage(
    context: dg.OutputContext, lake: DuckLake, data: Any, names: TableNames, settings: Mapping[str, Any]
) -> dg.TableColumnLineage | None:
    """Return the columns of tables in the lake that each column of an output is computed from.

    Columns that are also computed from something else that no asset stands for, such as the output of an op or a table
    of another lake, have no entry.

    Args:
        context: The output.
        lake: The lake.
        data: The written frame.
        names: Names the tables of assets.
        settings: The settings of the output.

    Returns:
        None if nothing is known.
    """
    if not (is_spark(data) and context.has_asset_key and has_step(context)):
        return None
    from ducklake_orch.spark.column_lineage import column_sources

    computed_in_merge = settings.get("when_matched")
    unknown = {folded(name) for name in computed_in_merge} if isinstance(computed_in_merge, Mapping) else set()
    found = {name: sources for name, sources in column_sources(data).items() if folded(name) not in unknown}
    if not found:
        return None
    own, op_outputs = _mark(lake), names.prefix + SCHEMA
    keys, parents = TableKeys(_known_assets(context), names), _parents(context)
    deps = {
        name: [
            dg.TableColumnDep(key, source.column)
            for source in sorted(sources)
            for key in keys.keys(source.schema, source.table, parents)
        ]
        for name, sources in found.items()
        if all(source.lake == own and source.schema != op_outputs for source in sources)
    }
    return dg.TableColumnLineage(deps) if deps else None


def _mark(lake: DuckLake) -> str:
    """Return the mark of a lake, by which its tables are told from those of other lakes."""
    with lake.reading(entering=False) as session, reading(session, "Reading the mark of the lake") as metadata:
        return metadata.lake_mark()


def _known_assets(context: dg.OutputContext) -> Iterator[tuple[dg.AssetKey, Mapping[str, Any]]]:
    """Yield the assets whose tables can be in the lake: all but those that other IO managers store."""
    seen: set[dg.AssetKey] = set()
    for graph in graphs(context):
        own = graph.get(context.asset_key).io_manager_key if graph.has(context.asset_key) else None
        for node in graph.asset_nodes:
            elsewhere = node.is_materializable and node.io_manager_key != own
            if node.key not in seen and not (elsewhere and not stores_nothing(node.assets_def, node.key)):
                seen.add(node.key)
                yield node.key, node.metadata


def _parents(context: dg.OutputContext) -> set[dg.AssetKey]:
    return {
        key
        for graph in graphs(context)
        if graph.has(context.asset_key)
        for key in graph.get(context.asset_key).parent_keys
    }
