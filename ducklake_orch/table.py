"""A handle on one table of a lake."""

from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING

from ducklake_orch.results import Column, Partition, Snapshot, TableFile, TableStats

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ducklake_orch.catalog.metadata import Metadata
    from ducklake_orch.catalog.model import TableDef
    from ducklake_orch.lake import DuckLake


class LakeTable:
    """One table; nothing is looked up until asked.

    Args:
        lake: The lake.
        name: `table` or `schema.table`.
    """

    def __init__(self, lake: "DuckLake", name: str) -> None:
        from ducklake_orch.engine.quoting import table_name

        self.lake = lake
        self.name = table_name(name)

    def schema(self, *, snapshot: int | None = None, as_of: datetime | str | None = None) -> list[Column]:
        """Return the columns, in order, with types, defaults, comments and partition transforms."""
        from ducklake_orch.catalog import look

        with self._looking(snapshot, as_of) as (metadata, table, _):
            return look.columns(metadata, table)

    def history(self, limit: int | None = None, *, rows: bool = False) -> list[Snapshot]:
        """List the snapshots that changed this table, newest first.

        Args:
            limit: How many at most.
            rows: Only those after which it has other rows: neither ALTERs nor what flushes and compactions moved.
        """
        from ducklake_orch.catalog.changes import changes_rows
        from ducklake_orch.catalog.look import looking
        from ducklake_orch.engine import introspection
        from ducklake_orch.engine.quoting import TableName

        with self.lake.reading() as session:
            with looking(session, self.name) as (_, table, _):
                name = TableName(table.schema, table.name)
            found = introspection.snapshots(session)
        found = [one for one in found if introspection.concerns(one, table.table_id, name)]
        return [one for one in found if not rows or changes_rows(one.changes, table.table_id)][:limit]

    def files(
        self, *, snapshot: int | None = None, as_of: datetime | str | None = None, where: str | None = None
    ) -> list[TableFile]:
        """List the data files; with `where` (DuckDB's SQL) only those that may hold rows that meet it."""
        from ducklake_orch.catalog import look

        with self._looking(snapshot, as_of) as found:
            return look.files(*found, where)

    def partitions(self, *, snapshot: int | None = None, as_of: datetime | str | None = None) -> list[Partition]:
        """List the partitions that hold files, by the keys that these were written with."""
        from ducklake_orch.catalog import look

        with self._looking(snapshot, as_of) as found:
            return look.partitions(*found)

    def stats(self, *, snapshot: int | None = None, as_of: datetime | str | None = None) -> TableStats:
        """Return what the catalog says about the files and their columns; no file is read."""
        from ducklake_orch.catalog import look

        with self._looking(snapshot, as_of) as found:
            return look.stats(*found)

    def count(self, snapshot: int | None = None, as_of: datetime | str | None = None) -> int:
        """Return the number of rows, which the catalog knows.

        Only at an earlier snapshot, files that hold rows of several commits around it are asked when these came.
        """
        from ducklake_orch.catalog.scan import count

        with self._looking(snapshot, as_of) as found:
            return count(*found)

    @contextmanager
    def _looking(
        self, snapshot: int | None, as_of: datetime | str | None
    ) -> "Iterator[tuple[Metadata, TableDef, int]]":
        from ducklake_orch.catalog.look import looking

        with self.lake.reading(snapshot, as_of, entering=False) as session, looking(session, self.name) as found:
            yield found

    def __repr__(self) -> str:
        return f"<table {self.name} of {self.lake!r}>"
