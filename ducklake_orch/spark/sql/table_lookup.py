"""Decide what each name in a statement means: a table of a lake, a frame, or a table of Spark's own."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.quoting import TableName, folded
from ducklake_orch.errors import ObjectNotFoundError, StatementError
from ducklake_orch.spark.spark_quoting import name_sql
from ducklake_orch.spark.sql.lake_moment import LakeMoment, lake_moment
from ducklake_orch.spark.sql.metadata_frames import METADATA_TABLES
from ducklake_orch.spark.sql.statement import Reference

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_orch.facade.lake_base import LakeBase

_MAIN = "main"


@dataclass(frozen=True)
class LakeTableName:
    """A table of a lake.

    Attributes:
        lake: The name of the lake in the statement.
        table: The table.
        kind: The metadata table that is meant, or None for the rows.
    """

    lake: str
    table: TableName
    kind: str | None = None


# A snapshot, a time or a tag at which a lake is read; by default the latest snapshot.
When = int | datetime | str | None


@dataclass
class TableLookup:
    """The lakes that a statement can name.

    Attributes:
        spark: The session.
        default: The lake of names without a lake.
        lakes: All lakes, by the names that the statement uses.
        frames: The DataFrames that the statement can name.
        prepare: Called with each table that the statement may read, before it is looked up.
    """

    spark: "SparkSession"
    default: "LakeBase"
    lakes: Mapping[str, "LakeBase"]
    frames: Mapping[str, Any]
    prepare: Callable[[TableName], None] | None = None
    _moments: dict[tuple[int, When], LakeMoment] = field(default_factory=dict)

    def load(self, references: "Mapping[int, tuple[Reference, When]]") -> None:
        """Read what the lakes have at the snapshots of all references."""
        wanted: dict[tuple[int, When], tuple[LakeBase, set[TableName]]] = {}
        for reference, when in references.values():
            for found in self._candidates(reference):
                lake = self._lake(found.lake)
                wanted.setdefault((id(lake), when), (lake, set()))[1].add(found.table)
        for (lake_id, when), (lake, tables) in wanted.items():
            for table in tables if self.prepare is not None else ():
                self.prepare(table)  # type: ignore[misc]
            at = _named(lake, when) if isinstance(when, str) else when
            snapshot, as_of = (None, at) if isinstance(at, datetime) else (at, None)
            self._moments[(lake_id, when)] = lake_moment(lake, tables, snapshot, as_of)

    def moment(self, name: str, when: When) -> LakeMoment:
        """Return a lake at the snapshot that the statement sees."""
        return self._moments[(id(self._lake(name)), when)]

    def latest(self) -> list[LakeMoment]:
        """Return the lakes that the statement reads as of their latest snapshots."""
        return [moment for moment in self._moments.values() if not moment.is_past]

    def find(self, reference: Reference, when: When) -> "LakeTableName | str | None":
        """Return what a name means: a table of a lake, the name of a frame, or None for a table of Spark's own.

        Raises:
            ObjectNotFoundError: When nothing has that name; the error names the nearest.
            StatementError: When the name could mean several things.
        """
        frame = self._frame(reference)
        found = [table for table in self._candidates(reference) if self._has(table, when)]
        if frame is not None:
            return frame
        if len({id(self._lake(table.lake)) for table in found}) > 1:
            raise _ambiguous(reference, [f"`{table.table}` of lake `{table.lake}`" for table in found])
        if not found:
            self._refuse_unknown(reference, when)
            return None
        table = found[0]
        if len(reference.parts) < 3 and _exists(self.spark, reference):
            raise _ambiguous(reference, [f"`{table.table}` of lake `{table.lake}`", "a table or view of the session"])
        return table

    def _frame(self, reference: Reference) -> str | None:
        if len(reference.parts) != 1 or reference.arguments is not None:
            return None
        return next((name for name in self.frames if folded(name) == folded(reference.parts[0])), None)

    def _lake(self, name: str) -> "LakeBase":
        return self.lakes[name]

    def _candidates(self, reference: Reference) -> Iterator[LakeTableName]:
        parts = reference.parts
        yield from self.tables(parts)
        if reference.arguments is None and len(parts) > 1 and parts[-1].lower() in METADATA_TABLES:
            yield from self.tables(parts[:-1], parts[-1].lower())

    @property
    def default_name(self) -> str:
        """The name of the lake of names without a lake."""
        return next(name for name, lake in self.lakes.items() if lake is self.default)

    def lake_name(self, name: str) -> str | None:
        """Return the name of a lake as the caller spells it; None if there is no such lake."""
        return next((known for known in self.lakes if folded(known) == folded(name)), None)

    def tables(self, parts: tuple[str, ...], kind: str | None = None) -> Iterator[LakeTableName]:
        """Yield what a name can mean in the lakes, whether it exists or not, the nearest meaning first."""
        if len(parts) <= 2:
            yield LakeTableName(self.default_name, TableName(*((_MAIN, *parts)[-2:])), kind)
        known = self.lake_name(parts[0])
        if known is not None and len(parts) in (2, 3):
            yield LakeTableName(known, TableName(*((_MAIN, *parts[1:])[-2:])), kind)

    def _has(self, name: LakeTableName, when: When) -> bool:
        moment = self.moment(name.lake, when)
        return name.table.key in moment.tables if name.kind else moment.has(name.table)

    def _refuse_unknown(self, reference: Reference, when: When) -> None:
        is_path = len(reference.parts) == 2 and "/" in reference.parts[1]
        if is_path or _exists(self.spark, reference):
            return
        known = [*self.frames]
        for name, lake in self.lakes.items():
            moment = self._moments.get((id(lake), when))
            for table in moment.names | moment.views if moment else ():
                known.append(_shown(name if lake is not self.default else None, table, len(reference.parts)))
        raise ObjectNotFoundError(
            f"Neither the lake nor the session has a table `{reference.name}`.",
            remedy=nearest(reference.name, known) if known else "The lake has no tables yet.",
        )


def _named(lake: "LakeBase", name: str) -> int | None:
    """Return the snapshot of a tag; a text of digits that is no tag is the id of a snapshot."""
    try:
        return lake._snapshot_of(name, None, None)
    except ObjectNotFoundError:
        if name.isascii() and name.isdigit():
            return int(name)
        raise


def _shown(lake: str | None, table: TableName, parts: int) -> str:
    names = [*([lake] if lake else []), *table]
    return table.table if parts == 1 and lake is None and folded(table.schema) == _MAIN else ".".join(names)


def _ambiguous(reference: Reference, meanings: list[str]) -> StatementError:
    return StatementError(
        f"`{reference.name}` is ambiguous: it means {' or '.join(meanings)}.",
        remedy="Write the lake's table with its lake and schema, `lake.schema.table`; rename the view of the session.",
    )


def _exists(spark: "SparkSession", reference: Reference) -> bool:
    """Return whether the session itself has a table or view of a name."""
    if reference.arguments is not None or reference.travel is not None:
        return False
    from pyspark.errors import PySparkException

    try:
        return spark.catalog.tableExists(".".join(name_sql(part) for part in reference.parts))
    except PySparkException:  # a catalog that the session does not have
        return False
