"""A differential world whose rows Spark writes if it supports their types."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as spark_functions
from pyspark.sql.pandas.types import from_arrow_schema

from ducklake_orch.results import WriteResult
from tests.catalog.differential.model import Column, Row, Table
from tests.catalog.differential.values import Scalar, Type
from tests.catalog.differential.world import World
from tests.spark.differential.types import as_written


@dataclass
class SparkWorld(World):
    """A lake that Spark writes to.

    Attributes:
        sessions: The Spark sessions that write, each with another time zone.
        folder: Where the input files of the writes are stored.
    """

    sessions: Sequence[SparkSession] = field(kw_only=True)
    folder: Path = field(kw_only=True)

    def rows(self, table: Table, many: int) -> dict[int, Row]:
        """Return new rows. Half the time, columns that Spark cannot write hold NULL."""
        found = super().rows(table, many)
        if self.chance(0.5):
            return found
        kept = [as_written(column.type) is not None for column in table.columns]
        return {
            number: tuple(v if keep else None for v, keep in zip(row, kept, strict=True))
            for number, row in found.items()
        }

    def write(self, rows: list[Row], columns: list[Column], name: str, **arguments: Any) -> WriteResult:
        """Write rows from Spark if it supports their types, else from Arrow."""
        types = self._types(rows, columns, name)
        if types is None:
            return super().write(rows, columns, name, **arguments)
        engine = self.rng.choice(("duckdb", "native", "auto"))
        distribution = self.rng.choice(("none", "hash", "range", "auto"))
        number, session = self.number(), self.rng.choice(self.sessions)
        self.log.append(
            f"Spark writes {name} {arguments} {engine=} {distribution=}: {[row[0] for row in rows]}"
            f" {[(column.name, kind) for column, kind in zip(columns, types, strict=True)]}"
        )
        frame = self._frame(session, number, rows, columns, types)
        if self.chance(0.3):
            frame = frame.repartition(2)
        result = self.lake.write(frame, name, engine=engine, distribution=distribution, **arguments)
        if result.rows_written:
            self.wrote.add(f"spark {result.engine}")
        return result

    def _types(self, rows: list[Row], columns: list[Column], name: str) -> list[Type | None] | None:
        """Return the type as which Spark writes each column (None if all NULL), or None if it cannot write the rows."""
        table = self.model.tables.get(name)
        existing = {column.name.lower(): column.type for column in table.columns} if table else {}
        found: list[Type | None] = []
        for n, column in enumerate(columns):
            kind = as_written(column.type)
            known = existing.get(column.name.lower()) == column.type
            if not (known or kind == column.type) or (not known and kind == Scalar("VARIANT")):
                return None
            if kind is None and any(row[n] is not None for row in rows):
                return None
            found.append(kind)
        return found

    def _frame(
        self, session: SparkSession, number: int, rows: list[Row], columns: list[Column], types: list[Type | None]
    ) -> DataFrame:
        """Return the rows, read from a Parquet file: no other way passes all values to Spark unchanged."""
        given = [(c.name, kind) for c, kind in zip(columns, types, strict=True) if kind is not None]
        typed = [n for n, kind in enumerate(types) if kind is not None]
        arrow = self.oracle.arrow(given, [[row[n] for n in typed] for row in rows], lossless=False)
        path = self.folder / f"{number}.parquet"
        pq.write_table(arrow, path)
        schema = from_arrow_schema(pa.schema(list(arrow.schema)), prefer_timestamp_ntz=True)
        frame = session.read.schema(schema).parquet(str(path))
        return frame.select(*(_value(c.name, kind) for c, kind in zip(columns, types, strict=True)))


def _value(name: str, kind: Type | None) -> Any:
    if kind is None:
        return spark_functions.lit(None).alias(name)
    quoted = f"`{name.replace('`', '``')}`"
    if kind == Scalar("GEOMETRY"):
        return spark_functions.expr(f"st_geomfromwkb({quoted})").alias(name)
    return spark_functions.col(quoted)
