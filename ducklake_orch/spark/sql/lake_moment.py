"""A lake at one snapshot, as a statement sees it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from ducklake_orch.catalog.metadata import TableDef, reading
from ducklake_orch.catalog.scan import snapshot_of
from ducklake_orch.engine.quoting import TableName

if TYPE_CHECKING:
    from ducklake_orch.facade.lake_base import LakeBase


@dataclass(frozen=True)
class LakeMoment:
    """What a lake has at a snapshot.

    Attributes:
        lake: The lake.
        snapshot: The snapshot.
        is_past: Whether the statement asks for that snapshot.
        names: All its tables.
        views: All its views.
        tables: Those tables that the statement may name, by their folded names.
    """

    lake: "LakeBase"
    snapshot: int
    is_past: bool
    names: frozenset[TableName]
    views: frozenset[TableName]
    tables: Mapping[TableName, TableDef]

    def has(self, name: TableName) -> bool:
        """Return whether a table or a view has a name."""
        return name.key in self.tables or name.key in {view.key for view in self.views}


def lake_moment(
    lake: "LakeBase", wanted: Iterable[TableName], snapshot: int | None = None, as_of: datetime | None = None
) -> LakeMoment:
    """Read what a lake has at a snapshot, by default the latest.

    Args:
        lake: The lake.
        wanted: The tables that the statement may name.
        snapshot: The snapshot.
        as_of: Instead of a snapshot: the time.
    """
    with lake.reading(snapshot, as_of, entering=False) as session, reading(session, "Reading the tables") as metadata:
        at = snapshot_of(session, metadata)
        names = frozenset(TableName(*name) for name in metadata.table_names(at))
        views = frozenset(view.name for view in metadata.views(at))
        known = {name.key for name in names}
        found = {name.key: metadata.table(name, at) for name in wanted if name.key in known}
    return LakeMoment(lake, at, snapshot is not None or as_of is not None, names, views, found)


def latest_snapshot(lake: "LakeBase") -> int:
    """Return the snapshot that a read of a lake would see now."""
    with lake.reading(entering=False) as session, reading(session, "Reading the latest snapshot") as metadata:
        return snapshot_of(session, metadata)
