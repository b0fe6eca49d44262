"""Compare Spark reads with the model: both engines, current and earlier snapshots, several time zones."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions

from ducklake_orch.engine.quoting import identifier
from tests.catalog.differential.check import LOOKS, Checker, Mismatch
from tests.catalog.differential.filters import condition, matching
from tests.catalog.differential.model import Table
from tests.catalog.differential.readers import Rows, difference, expected
from tests.catalog.differential.values import Scalar, Type, Typed, sql_text, sql_type
from tests.spark.differential.types import is_read

_VARIANT, _JSON = Scalar("VARIANT"), Scalar("JSON")
_READ = "__read"
_Engine = Literal["native", "duckdb"]
_ENGINES: tuple[_Engine, ...] = ("native", "duckdb")


@dataclass(frozen=True)
class _Read:
    """A DataFrame and its expected rows.

    Attributes:
        what: The reader and its arguments, for messages.
    """

    what: str
    at: int
    table: Table
    frame: DataFrame
    wanted: Rows


class SparkChecker(Checker):
    """A checker that also reads the lake with Spark.

    Args:
        others: Arguments of the base class.
        sessions: Spark sessions by time zone.
        every: Spark reads after every so many checks, and whenever a check covers everything.
    """

    def __init__(self, *others: Any, sessions: Mapping[str, SparkSession], every: int) -> None:
        super().__init__(*others)
        self._sessions, self._every = sessions, every
        self._checks = 0

    def check(self, name: str, looks: Sequence[str], *, past: int = 1) -> set[str]:
        seen = super().check(name, looks, past=past)
        self._checks += 1
        everything = len(looks) == len(LOOKS)
        if everything or self._checks % self._every == 0:
            engines = _ENGINES if everything else (self._rng.choice(_ENGINES),)
            for engine in engines:
                seen |= self._with_spark(name, engine)
        return seen

    def _with_spark(self, name: str, engine: _Engine) -> set[str]:
        """Compare reads of a table in one Spark job per schema."""
        zone = self._rng.choice(sorted(self._sessions))
        session, reads = self._sessions[zone], []
        if table := self._model.tables.get(name):
            now = self._model.snapshot
            reads.append(self._read(session, engine, table, now, variant=""))
            reads.append(self._read(session, engine, table, now, variant=" with WHERE"))
        if snapshots := [at for at in self._model.retained if name in self._model.at(at)]:
            at = self._rng.choice(snapshots)
            reads.append(self._read(session, engine, self._model.at(at)[name], at, variant=" in the past"))
        by_schema: dict[Any, list[_Read]] = defaultdict(list)
        for read in reads:
            by_schema[str(read.frame.schema)].append(read)
        seen = set()
        for alike in by_schema.values():
            self._compare(alike, f"engine={engine}, {zone}")
        for read in reads:
            seen.add(read.what.partition(" (")[0])
        if f"spark {engine}" in seen:
            seen.add(f"spark {engine}, {zone}")
        return seen

    def _read(self, session: SparkSession, engine: _Engine, table: Table, at: int, *, variant: str) -> _Read:
        columns = [column.name for column in table.columns if is_read(column.type, engine)]
        asked = columns
        if self._rng.random() < 0.2:  # includes columns that DuckDB must read for Spark
            asked = [
                column.name for column in table.columns if engine == "duckdb" or column.type != Scalar("TIMESTAMP_MS")
            ]
        filtered = "WHERE" in variant or self._rng.random() < 0.2
        where = condition(self._rng, table.only(asked)) if filtered else None
        row_ids = matching(self._oracle, table, where) if where else set(table.rows)
        arguments: dict[str, Any] = {"where": where.sql if where else None, "engine": engine}
        if at != self._model.snapshot or self._rng.random() < 0.5:
            arguments["snapshot"] = at
        frame = self._lake.read(table.name, session, columns=columns, **arguments)
        found = table.only(columns)
        wanted = expected(self._oracle, self._with_json(found), row_ids)
        by = "native" if engine == "native" and not _has_python(frame) else "duckdb" if engine == "duckdb" else "both"
        return _Read(f"spark {by}{variant} (WHERE {arguments['where']})", at, found, _tagged(frame, found), wanted)

    def _with_json(self, table: Table) -> Table:
        """Return a table with its VARIANT columns as JSON."""
        for column in table.columns:
            if column.type == _VARIANT:
                json = type(column)(column.name, _JSON)
                table = table.with_changed(
                    column.name, json, lambda value: self._oracle.json(value) if isinstance(value, Typed) else value
                )
        return table

    def _compare(self, reads: Sequence[_Read], how: str) -> None:
        frames = [read.frame.withColumn(_READ, spark_functions.lit(n)) for n, read in enumerate(reads)]
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionAll(other)
        arrow = frame.toArrow()
        kinds = self._with_json(reads[0].table).types
        values = [_READ, *(_text(identifier(f"c{n}"), kind) for n, (_, kind) in enumerate(kinds))]
        rows: dict[Any, Rows] = defaultdict(Counter)
        for row in self._oracle.texts_of(arrow, values):
            rows[row[0]][row[1:]] += 1
        for n, read in enumerate(reads):
            if rows[n] != read.wanted:
                diff = difference(self._with_json(read.table), read.wanted, rows[n])
                raise Mismatch(f"{read.what}, {how}, `{read.table.name}` at {read.at}: {diff}")


def _tagged(frame: DataFrame, table: Table) -> DataFrame:
    """Return a frame whose columns have plain names, with VARIANTs as JSON."""
    columns = []
    for n, (name, kind) in enumerate(table.types):
        column = spark_functions.col(f"`{name.replace('`', '``')}`")
        columns.append((spark_functions.to_json(column) if kind == _VARIANT else column).alias(f"c{n}"))
    return frame.select(*columns)


def _has_python(frame: DataFrame) -> bool:
    return "InArrow" in str(frame._jdf.queryExecution().analyzed().toString())


def _text(sql: str, kind: Type) -> str:
    """Return SQL for the text of a value that Spark returned as Arrow."""
    value = f"ST_GeomFromWKB({sql})" if kind == Scalar("GEOMETRY") else f"CAST({sql} AS {sql_type(kind)})"
    return sql_text(value, kind)
