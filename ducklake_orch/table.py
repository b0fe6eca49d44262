"""A handle on one table of a lake."""

from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from ducklake_orch.results import Column, Partition, Snapshot, TableFile, TableStats

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ducklake_orch.catalog.metadata import Metadata, TableDef
    from ducklake_orch.facade.lake_base import LakeBase


class LakeTable:
    """One table; nothing is read until a method is called.

    Args:
        lake: The lake.
        name: `table` or `schema.table`.
    """

    def __init__(self, lake: "LakeBase", name: str) -> None:
        from ducklake_orch.engine.quoting import table_name

        self.lake = lake
        self.name = table_name(name)

    def schema(
        self, *, snapshot: int | None = None, as_of: datetime | str | None = None, tag: str | None = None
    ) -> list[Column]:
        """Return the columns, in order, with types, defaults, comments and partition transforms.

        Args:
            snapshot: As of this snapshot.
            as_of: As of this time.
            tag: As of the snapshot with this name.

        Examples:
            >>> [(column.name, column.type) for column in lake.table("orders").schema()]
            [('id', 'BIGINT'), ('region', 'VARCHAR'), ('price', 'DOUBLE')]
        """
        from ducklake_orch.catalog.scan import table_columns

        with self._looking(snapshot, as_of, tag) as (metadata, table, _):
            return table_columns(metadata, table)

    def set_cluster_by(self, columns: "Sequence[str]") -> None:
        """Set the columns by which maintenance clusters the rows, so that conditions on any of them need few files.

        Existing files stay as they are until maintenance, whose operation `layout` clusters them step by step.

        Args:
            columns: Up to four columns; an empty list removes them.

        Examples:
            >>> lake.table("orders").set_cluster_by(["region", "price"])
            >>> [str(option) for option in lake.options() if option.name == "cluster_by"]
            ['cluster_by = ["region", "price"] of table main.orders']
        """
        from ducklake_orch.catalog.lifecycle import set_cluster_keys

        set_cluster_keys(self.lake.config, self.name, columns)

    def history(self, limit: int | None = None, *, rows: bool = False) -> list[Snapshot]:
        """List the snapshots that changed this table, newest first.

        Args:
            limit: How many at most.
            rows: Only snapshots that changed rows: no ALTERs, and no flushes or compactions, which move rows.

        Examples:
            >>> [snapshot.snapshot_id for snapshot in lake.table("orders").history(rows=True)]
            [1]
        """
        from ducklake_orch.catalog.metadata import changes_rows
        from ducklake_orch.catalog.scan import reading_table
        from ducklake_orch.engine import introspection
        from ducklake_orch.engine.quoting import TableName

        with self.lake.reading() as session:
            with reading_table(session, self.name) as (_, table, _):
                name = TableName(table.schema, table.name)
            snapshots = introspection.snapshots(session)
        return [
            snapshot
            for snapshot in snapshots
            if introspection.concerns(snapshot, table.table_id, name)
            and (not rows or changes_rows(snapshot.changes, table.table_id))
        ][:limit]

    def files(
        self,
        *,
        snapshot: int | None = None,
        as_of: datetime | str | None = None,
        tag: str | None = None,
        where: str | None = None,
    ) -> list[TableFile]:
        """List the data files.

        Args:
            snapshot: As of this snapshot.
            as_of: As of this time.
            tag: As of the snapshot with this name.
            where: Only files that may hold rows that meet this condition, in DuckDB's SQL.

        Examples:
            >>> [file.rows for file in lake.table("orders").files(where="price > 25")]
            [3]
        """
        from ducklake_orch.catalog.scan import table_files

        with self._looking(snapshot, as_of, tag) as state:
            return table_files(*state, where)

    def partitions(
        self, *, snapshot: int | None = None, as_of: datetime | str | None = None, tag: str | None = None
    ) -> list[Partition]:
        """List the partitions that hold files, by the keys with which the files were written.

        Args:
            snapshot: As of this snapshot.
            as_of: As of this time.
            tag: As of the snapshot with this name.

        Examples:
            >>> _ = lake.write(orders, "by_region", mode="append", partition_by=["region"])
            >>> [(partition.values, partition.rows) for partition in lake.table("by_region").partitions()]
            [({'region': 'eu'}, 2), ({'region': 'us'}, 1)]
        """
        from ducklake_orch.catalog.scan import table_partitions

        with self._looking(snapshot, as_of, tag) as state:
            return table_partitions(*state)

    def stats(
        self, *, snapshot: int | None = None, as_of: datetime | str | None = None, tag: str | None = None
    ) -> TableStats:
        """Return what the catalog says about the files and their columns. No file is read.

        Args:
            snapshot: As of this snapshot.
            as_of: As of this time.
            tag: As of the snapshot with this name.

        Examples:
            >>> stats = lake.table("orders").stats()
            >>> [(column.name, column.min, column.max) for column in stats.columns]
            [('id', '1', '3'), ('region', 'eu', 'us'), ('price', '10.0', '30.0')]
        """
        from ducklake_orch.catalog.scan import table_stats

        with self._looking(snapshot, as_of, tag) as state:
            return table_stats(*state)

    def count(self, snapshot: int | None = None, as_of: datetime | str | None = None, tag: str | None = None) -> int:
        """Return the number of rows, as the catalog counts them.

        For an earlier snapshot, it reads those files that hold rows of several commits around that snapshot.

        Args:
            snapshot: As of this snapshot.
            as_of: As of this time.
            tag: As of the snapshot with this name.

        Examples:
            >>> lake.table("orders").count()
            3
        """
        from ducklake_orch.catalog.scan import count

        with self._looking(snapshot, as_of, tag) as state:
            return count(*state)

    @contextmanager
    def _looking(
        self, snapshot: int | None, as_of: datetime | str | None, tag: str | None
    ) -> "Iterator[tuple[Metadata, TableDef, int]]":
        from ducklake_orch.catalog.scan import reading_table

        snapshot = self.lake._snapshot_of(tag, snapshot, as_of)
        with self.lake.reading(snapshot, as_of, entering=False) as session, reading_table(session, self.name) as state:
            yield state

    def __repr__(self) -> str:
        return f"<table {self.name} of {self.lake!r}>"
