"""Compares the rows of every reader with the model, at present and past snapshots, with and without conditions."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from random import Random
from typing import Any

import duckdb

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata
from tests.catalog.differential.faults import (
    FLUSHED_LATE,
    INLINED_DROPPED,
    INLINED_DROPPED_ERRORS,
    NARROWED,
    REMEMBERED,
    UNKNOWN_PLACE,
    UNRECORDED,
    fault_of,
)
from tests.catalog.differential.filters import condition, matching
from tests.catalog.differential.model import Model, Table
from tests.catalog.differential.oracle import Oracle
from tests.catalog.differential.readers import EngineReader, PlanReader, Rows, difference, expected
from tests.support.backends import CatalogKind
from tests.support.retained_files import check_retained_files

_READERS = (
    *("engine", "engine open since the start", "engine in the past", "engine with WHERE", "engine count"),
    *("plan", "plan in the past", "plan with WHERE", "plan count"),
)
_NUMBERS = count(1)
# The kinds of checks in addition to the current rows and the past rows.
LOOKS = ("filter", "filter in the past", "open since the start", "counts")


def readers(catalog: CatalogKind) -> list[str]:
    """Return the readers of a catalog. A DuckDB file allows only one connection of one process at a time."""
    return [name for name in _READERS if catalog.shared or name != "engine open since the start"]


class Mismatch(AssertionError):
    """A reader saw other rows than the model."""


class Checker:
    """Reads the lake with every reader, and compares the rows with the model.

    Args:
        lake: The lake.
        model: The expected content of the lake.
        oracle: Evaluates conditions.
        rng: Chooses conditions and snapshots.
        catalog: The kind of the lake's catalog.

    Attributes:
        faults: How often the engine was not asked, or not believed, because of a known fault.
        files: The number of data files of each table at its last check.
    """

    def __init__(self, lake: DuckLake, model: Model, oracle: Oracle, rng: Random, catalog: CatalogKind) -> None:
        self._lake, self._model, self._oracle, self._rng = lake, model, oracle, rng
        self.faults: Counter[str] = Counter()
        self.files: dict[str, int] = {}
        self._open = _LongLived(lake, self.faults) if catalog.shared else None

    def __enter__(self) -> "Checker":
        if self._open:
            self._open.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._open:
            self._open.__exit__()

    def check(self, name: str, looks: Sequence[str], *, past: int = 1) -> set[str]:
        """Compare a table.

        Args:
            name: The table, which may have been dropped.
            looks: The kinds of checks in addition to the current and past rows.
            past: The number of past snapshots to check.

        Returns:
            The readers that read the table.

        Raises:
            Mismatch: If a reader sees other rows than the model.
        """
        check_retained_files(self._lake)
        with self._lake.reading() as session, session.instance.root.cursor() as cursor:
            check = _Check(EngineReader(session.con), PlanReader(Metadata(cursor, self._lake.config)))
            if table := self._model.tables.get(name):
                self._now(check, table)
                if "filter" in looks:
                    self._filter(check, table, self._model.snapshot)
                if "open since the start" in looks:
                    self._long_lived(check, table)
                if "counts" in looks:
                    self._counts(check, table, self._model.snapshot)
            there = [at for at in self._model.retained if name in self._model.at(at)]
            for _ in range(past if there else 0):
                self._past(check, name, self._rng.choice(there))
            if there and "filter in the past" in looks:
                at = self._rng.choice(there)
                self._filter(check, self._model.at(at)[name], at)
        return check.readers

    def _now(self, check: "_Check", table: Table) -> None:
        at, wanted = self._model.snapshot, expected(self._oracle, table)
        check.readers |= {"engine", "plan"}
        _same("plan", table, at, wanted, check.plan.rows(table, at=at))
        self.files[table.name] = check.plan.files
        if fault := self._fault_at(check, table, at):
            self.faults[fault] += 1
        else:
            _same("engine", table, at, wanted, check.engine.rows(table))

    def _past(self, check: "_Check", name: str, at: int) -> None:
        table = self._model.at(at)[name]
        wanted = expected(self._oracle, table)
        check.readers |= {"engine in the past", "plan in the past"}
        _same("plan in the past", table, at, wanted, check.plan.rows(table, at=at))
        if fault := self._fault_at(check, table, at):
            self.faults[fault] += 1
            return
        self._believe(check, "engine in the past", table, at, wanted)
        self._counts(check, table, at)

    def _fault_at(self, check: "_Check", table: Table, at: int) -> str | None:
        """Return the known fault because of which the engine is not asked for a table at a snapshot, if any."""
        if check.plan.unknown_place(table, at):
            return UNKNOWN_PLACE
        return UNRECORDED if at < self._model.snapshot and check.plan.unrecorded(at) else None

    def _counts(self, check: "_Check", table: Table, at: int) -> None:
        check.readers |= {"engine count", "plan count"}
        _same_count("plan count", table, at, check.plan.count(table, at=at))
        if fault := self._fault_at(check, table, at):
            self.faults[fault] += 1
            return
        found = check.engine.count(table, at=at)
        wanted = len(table.rows)
        if found != wanted and check.plan.scanned_twice(table, at):
            self.faults[FLUSHED_LATE] += 1
        elif found != wanted and self._right_when_new(lambda engine: engine.count(table, at=at) == wanted, at):
            self.faults[REMEMBERED] += 1
        else:
            _same_count("engine count", table, at, found)
        self._types(check.engine, table, at)

    def _long_lived(self, check: "_Check", table: Table) -> None:
        if self._open is None:
            return
        at, where = self._model.snapshot, condition(self._rng, table)
        if self._fault_at(check, table, at):
            return
        check.readers.add("engine open since the start")
        _same("engine open since the start", table, at, expected(self._oracle, table), self._open.rows(table))
        if fault_of(self._model, table, at, where) is None:
            wanted = expected(self._oracle, table, matching(self._oracle, table, where))
            found = self._open.rows(table, where=where.sql)
            _same(f"engine open since the start with WHERE {where.sql}", table, at, wanted, found)

    def _filter(self, check: "_Check", table: Table, at: int) -> None:
        where = condition(self._rng, table)
        wanted = expected(self._oracle, table, matching(self._oracle, table, where))
        check.readers |= {"engine with WHERE", "plan with WHERE"}
        _same(f"plan with WHERE {where.sql}", table, at, wanted, check.plan.rows(table, at=at, where=where.sql))
        if fault := fault_of(self._model, table, at, where) or self._fault_at(check, table, at):
            self.faults[fault] += 1
            return
        self._believe(check, "engine with WHERE", table, at, wanted, where.sql)

    def _believe(
        self, check: "_Check", reader: str, table: Table, at: int, wanted: Rows, where: str | None = None
    ) -> None:
        """Compare the engine's rows at a past snapshot, unless a known fault makes them wrong."""
        found = _bound(lambda: check.engine.rows(table, at=at, where=where))
        if wanted == found:
            return
        if at < self._model.rewritten.get(table.name, 0):
            self.faults[NARROWED] += 1
        elif check.plan.scanned_twice(table, at):
            self.faults[FLUSHED_LATE] += 1
        elif self._right_when_new(lambda engine: engine.rows(table, at=at, where=where) == wanted, at):
            self.faults[REMEMBERED] += 1
        else:
            _same(f"{reader} {where or ''}", table, at, wanted, found or Counter())

    def _types(self, engine: EngineReader, table: Table, at: int) -> None:
        wanted = [(name, self._oracle.type_name(kind)) for name, kind in table.types]
        if (found := engine.types(table, at=at)) == wanted:
            return
        if not self._right_when_new(lambda other: other.types(table, at=at) == wanted, at):
            raise Mismatch(f"engine, `{table.name}` at {at}: columns {found}, not {wanted}")
        self.faults[REMEMBERED] += 1

    def _right_when_new(self, is_right: Callable[[EngineReader], bool], at: int) -> bool:
        """Return whether a new connection of the engine reads the past snapshot correctly."""
        if self._open is None or at == self._model.snapshot:
            return False
        with _LongLived(self._lake, self.faults) as engine:
            return is_right(engine)


@dataclass
class _Check:
    """One check of the lake, and the readers that took part in it."""

    engine: EngineReader
    plan: PlanReader
    readers: set[str] = field(default_factory=set)


class _LongLived(EngineReader):
    """A connection of the engine that stays open with all its cached state. It is reopened only after F3."""

    def __init__(self, lake: DuckLake, faults: Counter[str]) -> None:
        # A separate pool setting, so that no other user leases this connection and it is not kept when closed.
        pool = lake.config.pool.model_copy(update={"idle": timedelta(0)})
        settings = lake.config.settings | {"preserve_insertion_order": False}
        settings |= {"max_expression_depth": 1000 + next(_NUMBERS)}
        self._lake = DuckLake(lake.config.model_copy(update={"pool": pool, "settings": settings}))
        self._faults, self._stack = faults, ExitStack()

    def __enter__(self) -> "_LongLived":
        super().__init__(self._stack.enter_context(self._lake.connect()))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def ask(self, sql: str) -> list[tuple[Any, ...]]:
        try:
            return super().ask(sql)
        except duckdb.Error as error:
            if not any(text in str(error) for text in INLINED_DROPPED_ERRORS):
                raise
        self._faults[INLINED_DROPPED] += 1
        self._stack.close()
        self.__enter__()
        return super().ask(sql)


def _bound(ask: Callable[[], Rows]) -> Rows | None:
    """Return the engine's answer; None if it has outdated columns in its cache (F12)."""
    try:
        return ask()
    except duckdb.BinderException:
        return None


def _same(reader: str, table: Table, at: int, wanted: Rows, found: Rows) -> None:
    if wanted != found:
        raise Mismatch(f"{reader}, `{table.name}` at {at}: {difference(table, wanted, found)}")


def _same_count(reader: str, table: Table, at: int, found: int) -> None:
    if found != len(table.rows):
        raise Mismatch(f"{reader}, `{table.name}` at {at}: {found} rows, not {len(table.rows)}")
