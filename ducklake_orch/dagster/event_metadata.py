"""Builds the metadata of events about writes, and failures that are not retried."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import dagster as dg

from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.host_partitions import PartitionColumn, Slice, condition
from ducklake_orch.host_partitions.metadata_keys import result_metadata
from ducklake_orch.results import Column, StageInfo, WriteResult

if TYPE_CHECKING:
    from ducklake_orch.lake import DuckLake

# One query counts the rows of this many partitions.
_BATCH = 200
_SHOWN_KEYS = 100
LINEAGE = "dagster/column_lineage"
STAGE, STAGE_ID = "ducklake/stage", "ducklake/stage_id"


def write_metadata(
    lake: "DuckLake", table: TableName, result: WriteResult, descriptions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the metadata that every write has.

    Args:
        lake: The lake.
        table: The table.
        result: The write.
        descriptions: Descriptions of columns by folded name, for columns whose comment is missing or older.
    """
    columns = lake.table(str(table)).schema(snapshot=result.snapshot_id)
    return {**result_metadata(lake, table, result), "dagster/column_schema": column_schema(columns, descriptions or {})}


def staged(metadata: Mapping[str, Any], table: TableName, stage: StageInfo) -> dict[str, Any]:
    """Return the metadata of a write to a stage: it has no snapshot yet, and tells how to look at it and until when."""
    kept = {key: value for key, value in metadata.items() if not key.endswith("snapshot_id")}
    return kept | {
        STAGE: stage.name,
        STAGE_ID: stage.stage_id,
        "ducklake/staged_until": dg.MetadataValue.timestamp(stage.expires),
        "ducklake/staged_rows": dg.MetadataValue.md(f"`ducklake-orch diff '{stage.name}' {table}`"),
    }


def partition_keys(part: Slice) -> dict[str, Any]:
    """Return the keys of the written partitions, a limited number of them, and their number."""
    return {
        "ducklake/partitions": dg.MetadataValue.json(part.texts[:_SHOWN_KEYS]),
        "ducklake/partition_count": len(part.cells),
    }


def column_schema(columns: list[Column], descriptions: Mapping[str, str]) -> dg.TableSchema:
    """Return the columns as a Dagster schema; partition columns have a tag."""
    return dg.TableSchema(
        [
            dg.TableColumn(
                column.name,
                column.type,
                description=descriptions.get(folded(column.name), column.comment),
                constraints=dg.TableColumnConstraints(nullable=column.nullable),
                tags={"partition": column.partition} if column.partition else {},
            )
            for column in columns
        ]
    )


def rows_per_partition(
    lake: "DuckLake", table: TableName, snapshot: int, part: Slice, columns: Mapping[str, PartitionColumn]
) -> dict[str, int]:
    """Count the rows of each partition at a snapshot."""
    partitions = list(part.each())
    counts: dict[str, int] = {}
    with lake.connect(read_only=True, snapshot=snapshot) as con:
        for first in range(0, len(partitions), _BATCH):
            batch = partitions[first : first + _BATCH]
            filters = ", ".join(f"count(*) FILTER (WHERE {condition(partition, columns)})" for _, partition in batch)
            together = Slice(part.dimensions, frozenset(cell for _, partition in batch for cell in partition.cells))
            query = f"SELECT {filters} FROM {table.sql(lake.config.alias)} WHERE {condition(together, columns)}"
            row = con.execute(query).fetchall()[0]
            counts |= dict(zip((key for key, _ in batch), row, strict=True))
    return counts


def preview(
    lake: "DuckLake", table: TableName, snapshot: int, where: str | None, rows: int
) -> dg.MarkdownMetadataValue:
    """Return up to `rows` rows as a table in Markdown."""
    with lake.connect(read_only=True, snapshot=snapshot) as con:
        result = con.execute(f"SELECT * FROM {table.sql(lake.config.alias)} WHERE {where or 'true'} LIMIT {int(rows)}")
        names = [column[0] for column in result.description or []]
        return as_table(names, result.fetchall())


def difference(data: Mapping[str, str], table: Mapping[str, str]) -> dg.MarkdownMetadataValue:
    """Return the columns that differ between data and a table, as a table in Markdown.

    Args:
        data: Types of the data's columns by name.
        table: Types of the table's columns by name.
    """
    given = {folded(name): kind for name, kind in data.items()}
    stored = {folded(name): kind for name, kind in table.items()}
    names = {folded(name): name for name in (*data, *table)}
    lines = [
        (name, given.get(key, "missing"), stored.get(key, "missing"))
        for key, name in names.items()
        if given.get(key) != stored.get(key)
    ]
    return as_table(["column", "in the data", "in the table"], lines)


def as_table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> dg.MarkdownMetadataValue:
    """Return a table in Markdown."""
    rows = [head, ["---"] * len(head), *lines]
    return dg.MetadataValue.md("\n".join("| " + " | ".join(_cell(value) for value in row) + " |" for row in rows))


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")[:200]


@contextmanager
def failures(what: str, details: Mapping[str, Any]) -> Iterator[None]:
    """Turn errors that are not retryable into a `dg.Failure` that no retry policy repeats.

    Args:
        what: The failed work, for the message.
        details: Further metadata of the event. They are read at the time of the error, so callers can add some later.
    """
    failure: dg.Failure | None = None
    try:
        yield
    except DuckLakeOrchError as error:
        if error.retryable:
            error.with_explain()
            raise
        shown: dict[str, Any] = {
            "ducklake/error": type(error).__name__,
            "ducklake/message": dg.MetadataValue.md(str(error)),
        }
        shown |= {f"ducklake/{name}": value for name, value in details.items()}
        failure = dg.Failure(f"{what}: {error}\n{error.explain}", metadata=shown, allow_retries=False)
        failure.__cause__ = error
    if failure is not None:
        raise failure
