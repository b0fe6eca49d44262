"""Read the caller's data, of any supported type, as a stream of Arrow batches."""

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import duckdb

from ducklake_orch.catalog.metadata import TableDef, duckdb_type
from ducklake_orch.catalog.parquet import (
    arrow_storage_type,
    carried,
    cast_to_storage_type,
    exact_wide,
    refuse_truncated_intervals,
)
from ducklake_orch.catalog.writing.python_rows import arrow_rows, is_rows
from ducklake_orch.engine.quoting import folded, identifier
from ducklake_orch.engine.scratch import scratch
from ducklake_orch.errors import ConfigError, DataError

_CAST = "Cast or drop such columns."
_SMALL = 16 * 1024 * 1024


class Source:
    """Rows to write.

    Args:
        data: A pyarrow.Table or RecordBatchReader, or any object with an Arrow stream: Polars, pandas, a relation; or
            rows of Python.
        values: SQL expressions, by column name, for columns whose values Arrow cannot represent as intended.

    Attributes:
        schema: The columns, as a pyarrow.Schema.
        repeatable: Whether the rows can be read again, for a second attempt.
        is_small: Whether the rows are in memory and so few that writing them takes almost no time.
        in_memory: The rows, if they are a small pyarrow.Table.
        failure: The error that ended reading early, if any.
    """

    def __init__(self, data: Any, values: Mapping[str, str] | None = None) -> None:
        import pyarrow as pa

        self._values = dict(values or {})
        # The actual types of columns that are passed through Arrow as text.
        self._carried: Mapping[str, str] = {}
        data = _streamable(data)
        if isinstance(data, duckdb.DuckDBPyRelation):
            data, self._carried = carried(data)
        module = type(data).__module__.partition(".")[0]
        # A relation, or data of an unknown type, may be based on a stream that can be read only once.
        self.repeatable = isinstance(data, pa.Table | pa.RecordBatch) or module in ("pandas", "polars")
        self._data = data
        self.is_small = isinstance(data, pa.Table | pa.RecordBatch) and data.nbytes < _SMALL
        self.in_memory = None
        if self.is_small and not self._carried:
            self.in_memory = data if isinstance(data, pa.Table) else pa.Table.from_batches([data])
        try:
            self._first = data if isinstance(data, pa.RecordBatchReader) else pa.RecordBatchReader.from_stream(data)
        except (OSError, pa.ArrowException) as error:  # for example, Arrow has no type for a VARIANT in a relation
            raise DataError(
                f"Data of type {type(data).__name__} cannot be read as Arrow: {error}", remedy=_CAST
            ) from error
        self._opened = False
        self.failure: Exception | None = None
        self.schema = self._first.schema
        if not all(self.schema.names):  # DuckDB would invent a name
            raise DataError("The data have a column without a name.", remedy="Give it one, or drop it.")
        self._landing = pa.schema([field.with_type(arrow_storage_type(field.type)) for field in self.schema])
        names = [folded(name) for name in self.schema.names]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise DataError(
                f"The data have several columns named {', '.join(twice)}.", remedy="Rename or drop all but one."
            )

    def is_untyped(self) -> bool:
        """Return whether there are no rows and some column has no type, so that no table can be created from the data.

        An empty pandas frame has such columns: pandas stores texts as objects, and only values tell their type.
        """
        if self.schema.names and not any(_lacks_type(field.type) for field in self.schema):
            return False
        return self._is_empty()

    def _is_empty(self) -> bool:
        """Return whether there are no rows. What is read of a stream to find out is put back."""
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_stream(self._data) if self.repeatable else self._first
        read, empty = [], True
        for batch in reader:
            read.append(batch)
            if batch.num_rows:
                empty = False
                break
        if not self.repeatable:
            self._first = pa.RecordBatchReader.from_batches(self.schema, chain(read, reader))
        return empty

    def reader(self) -> Any:
        """Return the rows as a pyarrow.RecordBatchReader; if it fails, its error is kept as `failure`."""
        import pyarrow as pa

        again = self._opened and self.repeatable
        reader = pa.RecordBatchReader.from_stream(self._data) if again else self._first
        self._opened = True
        return pa.RecordBatchReader.from_batches(self._landing, self._batches(reader))

    def _batches(self, reader: Any) -> Iterator[Any]:
        import pyarrow as pa

        schema = self._landing
        converted = [
            (n, field.name, field.type) for n, field in enumerate(schema) if field.type != self.schema.field(n).type
        ]
        try:
            for batch in reader:
                columns = batch.columns
                for n, name, kind in converted:
                    columns[n] = cast_to_storage_type(name, columns[n], kind)
                for name, column in zip(schema.names, columns, strict=True):
                    refuse_truncated_intervals(name, column)
                yield pa.RecordBatch.from_arrays(columns, schema=schema) if converted else batch
        except Exception as error:
            self.failure = error
            raise

    def types(self, con: duckdb.DuckDBPyConnection) -> list[tuple[str, Any]]:
        """Return the names of the columns and their DuckDB types."""
        import pyarrow as pa

        if not self.schema.names:
            raise DataError("The data have no columns.", remedy="Give the frame columns, also if it has no rows.")
        # Use a reader without batches: Arrow cannot create an empty table with nested extension types.
        try:
            relation = con.from_arrow(pa.RecordBatchReader.from_batches(self._landing, []))
            kinds = dict(zip(relation.columns, relation.types, strict=True))
        except duckdb.NotImplementedException as error:
            names = ", ".join(f"`{field.name}` ({field.type})" for field in self.schema if not _is_read(field))
            raise DataError(f"The data have columns that DuckDB cannot read: {names}.", remedy=_CAST) from error
        kinds |= {name: duckdb.sqltype(exact_wide(kind)) for name, kind in self._carried.items()}
        return list(kinds.items())

    def arriving(self, name: str) -> str:
        """Return the FROM item that reads the rows, which are registered as `name`, in their actual types."""
        casts = [
            f"CAST({identifier(column)} AS {exact_wide(kind)}) AS {identifier(column)}"
            for column, kind in self._carried.items()
        ]
        return f"(SELECT * REPLACE ({', '.join(casts)}) FROM {name})" if casts else name

    def relation(self, name: str, table: TableDef) -> str:
        """Return the FROM item that reads the rows, which are registered as `name`, for a table.

        A column of Arrow's null type, which has only NULLs, gets the type of the table's column.
        """
        import pyarrow as pa

        untyped = {folded(field.name) for field in self.schema if pa.types.is_null(field.type)}
        typed = [
            f"CAST(NULL AS {duckdb_type(column)}) AS {identifier(column.name)}"
            for column in table.columns
            if folded(column.name) in untyped
        ]
        typed += [f"{sql} AS {identifier(column)}" for column, sql in self._values.items()]
        table_types = {folded(column.name): duckdb_type(column) for column in table.columns}
        for column, kind in self._carried.items():
            # An existing column of the table may have the wide integer type itself.
            kind = kind if table_types.get(folded(column)) == kind else exact_wide(kind)
            typed.append(f"CAST({identifier(column)} AS {kind}) AS {identifier(column)}")
        return f"(SELECT * REPLACE ({', '.join(typed)}) FROM {name})" if typed else name


def source_of(data: Any, values: Mapping[str, str] | None = None) -> "Source":
    """Return the source for data; data that are already a `Source` are returned unchanged."""
    return data if isinstance(data, Source) else Source(data, values)


def _streamable(data: Any) -> Any:
    """Return data as an object with an Arrow stream."""
    module = type(data).__module__.partition(".")[0]
    if module == "polars" and hasattr(data, "collect"):
        return data.collect()  # a LazyFrame
    if module == "pandas" and hasattr(data, "reset_index"):
        return data.reset_index(drop=True)  # the index that filtering leaves would become a column
    if module == "pyarrow" and hasattr(data, "scanner"):
        return data.scanner().to_reader()  # a dataset
    if is_rows(data):
        return arrow_rows(data)
    if not hasattr(data, "__arrow_c_stream__"):
        raise ConfigError(
            f"Data of type {type(data).__name__} cannot be written.",
            remedy="Give a Spark, pandas or Polars frame, a pyarrow.Table, reader or dataset, a DuckDB relation, or a"
            " list or generator of dicts.",
        )
    return data


def _lacks_type(kind: Any) -> bool:
    """Return whether an Arrow type is null, or contains null."""
    import pyarrow as pa

    if pa.types.is_struct(kind):
        inner = [kind.field(position).type for position in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        inner = [kind.key_type, kind.item_type]
    else:
        inner = [kind.value_type] if hasattr(kind, "value_type") else []
    return bool(pa.types.is_null(kind)) or any(map(_lacks_type, inner))


def _is_read(field: Any) -> bool:
    import pyarrow as pa

    with scratch() as con:  # a connection of its own, because the error aborts an open transaction
        try:
            con.from_arrow(pa.RecordBatchReader.from_batches(pa.schema([field]), []))
        except duckdb.NotImplementedException:
            return False
    return True
