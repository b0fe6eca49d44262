"""A handle on one table of a lake."""

from datetime import datetime
from typing import TYPE_CHECKING

from ducklake_orch.results import Column, Snapshot

if TYPE_CHECKING:
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
        from ducklake_orch.engine import introspection

        with self.lake.reading(snapshot, as_of) as session:
            return introspection.columns(session, self.name)

    def history(self, limit: int | None = None) -> list[Snapshot]:
        """List the snapshots that changed this table, newest first."""
        from ducklake_orch.engine import introspection

        with self.lake.reading() as session:
            table = introspection.find_table(session, self.name)
            return introspection.snapshots(session, limit, table=table)

    def __repr__(self) -> str:
        return f"<table {self.name} of {self.lake!r}>"
