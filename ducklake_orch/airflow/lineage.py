"""Builds the OpenLineage facets of a task: tables as datasets, with their columns and the written rows."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ducklake_orch.airflow.assets import SCHEME
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import DuckLakeOrchError

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage

    from ducklake_orch.airflow.hook import DuckLakeHook


def namespace(conn_id: str) -> str:
    """Return the namespace of a lake's tables, which is also that of its assets."""
    return f"{SCHEME}://{conn_id.lower()}"


def lineage(hook: "DuckLakeHook", inputs: Iterable[str], written: Mapping[str, Any]) -> "OperatorLineage[Any, Any]":
    """Return the lineage of a task: the tables that it read and wrote.

    Args:
        hook: The lake.
        inputs: The tables that were read.
        written: The reference that the task returned.
    """
    from airflow.providers.common.compat.openlineage.facet import OutputDataset
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    facet = statistics.OutputStatisticsOutputDatasetFacet(
        rowCount=written["rows_written"], size=written["bytes_written"], fileCount=written["files_added"]
    )
    output = OutputDataset(
        namespace=namespace(hook.get_conn_id()),
        name=str(written["table"]),
        facets=_schema(hook, str(written["table"])),
        outputFacets={"outputStatistics": facet},
    )
    return OperatorLineage(inputs=[_dataset(hook, table) for table in sorted(set(inputs))], outputs=[output])


def _dataset(hook: "DuckLakeHook", table: str) -> Any:
    from airflow.providers.common.compat.openlineage.facet import Dataset

    name = str(table_name(table))
    return Dataset(namespace=namespace(hook.get_conn_id()), name=name, facets=_schema(hook, name))


def _schema(hook: "DuckLakeHook", table: str) -> dict[str, Any]:
    from airflow.providers.common.compat.openlineage.facet import SchemaDatasetFacet, SchemaDatasetFacetFields

    try:
        columns = hook.lake().table(table).schema()
    except DuckLakeOrchError:
        return {}  # the table was dropped after the write; the rest of the lineage still holds
    fields = [
        SchemaDatasetFacetFields(name=column.name, type=column.type, description=column.comment) for column in columns
    ]
    return {"schema": SchemaDatasetFacet(fields=fields)}
