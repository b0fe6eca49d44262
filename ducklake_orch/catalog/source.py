"""What is to be written, however the caller holds it: as a stream of Arrow batches."""

from collections.abc import Iterator, Mapping
from typing import Any

import duckdb

from ducklake_orch.catalog.model import TableDef
from ducklake_orch.catalog.types import duckdb_type
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.errors import ConfigError, DataError

_SMALL = 16 * 1024 * 1024


class Source:
    """Rows to write.

    Args:
        data: A pyarrow.Table or RecordBatchReader, or anything that offers an Arrow stream: Polars, pandas, a relation.
        values: SQL that makes the value of a column that Arrow cannot carry as it is meant, by the column's name.

    Attributes:
        schema: Their columns, as a pyarrow.Schema.
        repeatable: Whether the rows can be read again, for a second attempt.
        is_small: Whether they are at hand, and written in no time.
        failure: Why the rows could not be read to their end.
    """

    def __init__(self, data: Any, values: Mapping[str, str] | None = None) -> None:
        import pyarrow as pa

        self._values = dict(values or {})
        data = _streamable(data)
        whose = type(data).__module__.partition(".")[0]
        # A relation may stand on a stream that is read once, and so may anything that is not known.
        self.repeatable = isinstance(data, pa.Table | pa.RecordBatch) or whose in ("pandas", "polars")
        self._data = data
        self.is_small = isinstance(data, pa.Table | pa.RecordBatch) and data.nbytes < _SMALL
        try:
            self._first = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        except (OSError, pa.ArrowException) as error:  # such as a VARIANT in a relation, for which Arrow has no type
            raise DataError(
                f"A {type(data).__name__} cannot be read as Arrow: {error}", remedy="Cast or drop such columns."
            ) from error
        self._opened = False
        self.failure: Exception | None = None
        self.schema = self._first.schema
        if not all(self.schema.names):  # DuckDB would give it one
            raise DataError("The data have a column without a name.", remedy="Give it one, or drop it.")
        names = [folded(name) for name in self.schema.names]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(f"The data have several columns {', '.join(twice)}.", remedy="Rename or drop all but one.")

    def reader(self) -> Any:
        """Return the rows as a pyarrow.RecordBatchReader; what it fails with is kept as `failure`."""
        import pyarrow as pa

        again = self._opened and self.repeatable
        reader = pa.RecordBatchReader.from_stream(self._data) if again else self._first
        self._opened = True
        # DuckDB would cut such moments to microseconds without a word.
        finer = {
            n: pa.timestamp("us", field.type.tz)
            for n, field in enumerate(self.schema)
            if pa.types.is_timestamp(field.type) and field.type.unit == "ns" and field.type.tz
        }
        schema = self.schema
        for n, kind in finer.items():
            schema = schema.set(n, schema.field(n).with_type(kind))
        return pa.RecordBatchReader.from_batches(schema, self._batches(reader, schema, finer))

    def _batches(self, reader: Any, schema: Any, finer: Mapping[int, Any]) -> Iterator[Any]:
        import pyarrow as pa

        try:
            for batch in reader:
                columns = batch.columns
                for n, kind in finer.items():
                    columns[n] = _to_microseconds(columns[n], kind)
                yield pa.RecordBatch.from_arrays(columns, schema=schema) if finer else batch
        except Exception as error:
            self.failure = error
            raise

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their types in DuckDB."""
        import pyarrow as pa

        # Without batches, and not an empty table: Arrow makes none of extension types inside others.
        relation = con.from_arrow(pa.RecordBatchReader.from_batches(self.schema, []))
        return list(zip(relation.columns, relation.types, strict=True))

    def relation(self, name: str, table: TableDef) -> str:
        """Return what stands behind FROM to read the rows, which are registered as `name`.

        A column without a type, as Arrow has it where there are only NULLs, gets that of the table's column.
        """
        import pyarrow as pa

        untyped = {folded(field.name) for field in self.schema if pa.types.is_null(field.type)}
        typed = [
            f"CAST(NULL AS {duckdb_type(column)}) AS {identifier(column.name)}"
            for column in table.columns
            if folded(column.name) in untyped
        ]
        typed += [f"{sql} AS {identifier(column)}" for column, sql in self._values.items()]
        return f"(SELECT * REPLACE ({', '.join(typed)}) FROM {name})" if typed else name


def _streamable(data: Any) -> Any:
    """Return data that offer an Arrow stream."""
    whose = type(data).__module__.partition(".")[0]
    if whose == "polars" and hasattr(data, "collect"):
        return data.collect()  # a LazyFrame
    if whose == "pandas" and hasattr(data, "reset_index"):
        return data.reset_index(drop=True)  # what is left of an index after filtering would be a column
    if whose == "pyarrow" and hasattr(data, "scanner"):
        return data.scanner().to_reader()  # a dataset
    if not hasattr(data, "__arrow_c_stream__"):
        raise ConfigError(
            f"A {type(data).__name__} cannot be written.",
            remedy="Give a Spark, pandas or Polars frame, a pyarrow.Table, reader or dataset, or a DuckDB relation.",
        )
    return data


def _to_microseconds(moments: Any, kind: Any) -> Any:
    import pyarrow as pa

    try:
        return moments.cast(kind)
    except pa.ArrowInvalid as error:
        raise DataError(f"Moments with a zone have microseconds in a lake: {error}") from error
