"""A lake and its model, with the methods by which a step changes both."""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from ducklake_orch import DuckLake
from ducklake_orch.results import WriteResult
from tests.catalog.differential.faults import LEFT_BEHIND
from tests.catalog.differential.model import Column, Model, Row, Table
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.shapes import KEY_COLUMNS, Shape
from tests.catalog.differential.shapes import keys as partition_keys
from tests.catalog.differential.values import SAMPLES, Scalar, StructOf, Type, Typed, Value
from tests.support.backends import POSTGRES, CatalogKind

# The limit of texts in folder names, and the texts that Postgres returns unchanged when it stores them as bytes.
_LONG = 50
_PLAIN = re.compile(r"[ !#-&(-[\]-~]*")
# Statements with which the engine writes data files.
_WRITES = re.compile(r"INSERT|UPDATE|MERGE|CALL ducklake_(flush|rewrite)")


@dataclass
class World:
    """A lake under test.

    Attributes:
        catalog: The kind of its catalog, with the capabilities.
        shapes: The shapes of its tables.
        log: The statements and calls so far, for the analysis of a failure.
        ddl: The changes of each table's definition.
        changed: The last snapshot that changed a table's rows or definition.
        inlining: The tables whose small changes are inlined.
        wrote: The engines that have written files for ducklake-orch since the step began.
        hashed: The tables that have or had a bucket key whose values the engine hashes as texts (F18).
        other: The lake as another program opens it, which inlines small changes of tables whose shape allows it.
    """

    lake: DuckLake
    catalog: CatalogKind
    model: Model
    oracle: Oracle
    rng: Random
    shapes: Sequence[Shape]
    log: list[str] = field(default_factory=list)
    ddl: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    changed: dict[str, int] = field(default_factory=dict)
    inlining: set[str] = field(default_factory=set)
    wrote: set[str] = field(default_factory=set)
    hashed: set[str] = field(default_factory=set)
    other: DuckLake | None = None
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    @property
    def alias(self) -> str:
        """The lake's name in SQL."""
        return self.lake.config.alias

    def inlines(self, table: Table) -> bool:
        """Return whether small changes of a table may be inlined."""
        return table.name in self.inlining or self.other is not None

    def number(self) -> int:
        """Return a new number."""
        return next(self._numbers)

    def chance(self, probability: float) -> bool:
        """Return true with a probability."""
        return self.rng.random() < probability

    # --- changes ---------------------------------------------------------------------------------------------------

    def run(self, *statements: str, table: Table | None = None, atomic: bool = False) -> None:
        """Run SQL, and set the given table in the model for all resulting snapshots."""
        self.log.append("; ".join(statements))
        lake = self._program(table, alters=statements[0].startswith("ALTER"))
        result = lake.execute(list(statements), atomic=atomic, force=True).raise_for_error()
        latest = result.lake["latest_snapshot"]
        assert latest is not None
        self.settle(latest, table)
        if any(_WRITES.match(statement) for statement in statements):
            self.mend()

    def _program(self, table: Table | None, *, alters: bool) -> DuckLake:
        """Return the program that runs a statement: this one, or another one that opens the lake with other settings.

        The program that inlines runs each ALTER (F16).
        """
        shape = next((shape for shape in self.shapes if table is not None and shape.name == table.name), None)
        if self.other is None or shape is None or not shape.inlined:
            return self.lake
        if not alters and self.chance(0.5):
            return self.lake
        self.log.append("by another program:")
        return self.other

    def mend(self) -> None:
        """Restore by fsck the bounds that the engine has dropped (F9, F10, F13), before it sets narrower ones."""
        report = self.lake.fsck(repair=True)
        errors = [finding for finding in (*report.repaired, *report.findings) if finding.severity == "error"]
        assert {error.code for error in errors} <= LEFT_BEHIND, "\n".join(map(str, errors))
        if report.repair_snapshot is not None:
            self.changed |= dict.fromkeys(self.model.tables, report.repair_snapshot)
            self.settle(report.repair_snapshot, None)

    def write(self, rows: list[Row], columns: list[Column], name: str, **arguments: Any) -> WriteResult:
        """Write rows with ducklake-orch. The caller updates the model."""
        given = [(column.name, column.type) for column in columns]
        self.log.append(f"write {name} {arguments}: {[row[0] for row in rows]} {[one for one, _ in given]}")
        result = self.lake.write(self.oracle.arrow(given, rows), name, **arguments)
        self.wrote.add("arrow")
        return result

    def settle(self, snapshot: int, table: Table | None) -> None:
        """Set a table in the model as of a snapshot."""
        if table is not None:
            self.model.tables[table.name] = table
            self.changed[table.name] = snapshot
            if "bucket(UUID)" in table.spec:
                self.hashed.add(table.name)
        self.model.commit(snapshot)

    # --- random choices --------------------------------------------------------------------------------------------

    def values(self, kind: Type) -> tuple[Value, ...]:
        """Return values of a type to choose from."""
        if kind in SAMPLES:
            return SAMPLES[kind]
        # A struct whose fields were added or dropped has no samples: combine the samples of its fields.
        assert isinstance(kind, StructOf)
        parts = [self.values(inner) for _, inner in kind.fields]
        return tuple(tuple(self.rng.choice(part) for part in parts) for _ in range(3))

    def rows(self, table: Table, many: int) -> dict[int, Row]:
        """Return new rows. Columns have a small set of values, partition keys a smaller one, so that values repeat."""
        keys = {key.column for key in partition_keys(table)}
        plain = self.catalog is POSTGRES and table.name in self.inlining  # F11
        pools = [
            self._pool(column, 2 if column.name in keys else 3, n < KEY_COLUMNS, plain)
            for n, column in enumerate(table.columns[1:])
        ]
        found = {}
        for _ in range(many):
            number = self.number()
            found[number] = (str(number), *(self.rng.choice(pool) for pool in pools))
        return found

    def _pool(self, column: Column, many: int, is_key: bool, plain: bool) -> list[Value]:
        values = list(self.values(column.type))
        if is_key and column.type == Scalar("VARCHAR"):
            texts = [value for value in values if isinstance(value, str) and len(value) < _LONG]
            values = [text for text in texts if not plain or _PLAIN.fullmatch(text)]
        if column.type == Scalar("VARIANT"):  # of one type, because an Arrow column has one type
            chosen = self.rng.choice(values)
            values = [v for v in values if isinstance(v, Typed) and isinstance(chosen, Typed) and v.type == chosen.type]
        pool = self.rng.sample(values, min(many, len(values)))
        return [*pool, None] if self.chance(0.6) else pool
