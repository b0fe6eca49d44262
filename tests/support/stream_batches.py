"""Reads a stream batch by batch, as Spark does, but in this process and without a JVM."""

import json
from collections.abc import Iterator
from typing import Any

from ducklake_orch import DuckLake
from ducklake_orch.catalog.feed import FollowedTable, StreamRequest
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.spark.stream_source import TableStream, stream_schema
from ducklake_orch.spark.stream_task import read_part

Row = tuple[Any, ...]
Offset = dict[str, Any]


class StreamBatches:
    """A stream of the table `t` whose checkpoint is in memory.

    Args:
        lake: The lake.
        table: The table.
        arguments: Those of `StreamRequest`.
    """

    def __init__(self, lake: DuckLake, table: str = "t", **arguments: Any) -> None:
        self.lake = lake
        self.request = StreamRequest(table_name(table), **arguments)
        self.batches: list[tuple[Offset, Offset, list[Row]]] = []
        self.restart()
        self.offset = kept(self.stream.first())

    def restart(self) -> None:
        """Start the query again, with the same checkpoint."""
        schema = stream_schema(FollowedTable(self.lake.config, self.request))
        self.stream = TableStream(self.lake.config, self.request, schema)

    def read(self) -> list[Row] | None:
        """Read the next batch; return None if there is nothing to deliver."""
        end = kept(self.stream.next(self.offset, limited=True))
        if end == self.offset:
            return None
        rows = self.rows(self.offset, end)
        self.batches.append((self.offset, end, rows))
        self.offset = end
        return rows

    def rows(self, start: Offset, end: Offset) -> list[Row]:
        """Read the rows between two offsets."""
        parts = self.stream.parts(start, end)
        return [tuple(row.values()) for part in parts for batch in read_part(part) for row in batch.to_pylist()]

    def rest(self) -> Iterator[Row]:
        """Read all batches that there are now."""
        while (rows := self.read()) is not None:
            yield from rows


def kept(offset: Offset) -> Offset:
    """Return an offset as the checkpoint keeps it."""
    found: Offset = json.loads(json.dumps(offset))
    return found
