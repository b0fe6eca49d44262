"""Convert rows of Python, such as lists of dicts and generators, to Arrow; the columns are those that any row has."""

import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_orch.engine.quoting import is_storable
from ducklake_orch.errors import ConfigError, DataError

if TYPE_CHECKING:
    import pyarrow as pa

# The rows that are converted together.
_ROWS = 20_000


def is_rows(data: Any) -> bool:
    """Whether data may be rows of Python: a list, tuple, generator or another iterator."""
    return isinstance(data, list | tuple | Iterator) and not hasattr(data, "__arrow_c_stream__")


def arrow_rows(data: Iterable[Mapping[str, Any]]) -> "pa.Table | pa.RecordBatchReader":
    """Return rows as Arrow; a key that a row lacks is NULL in it.

    Only some thousand rows are in memory at a time. If there are more, they wait in temporary files until the types of
    all columns are known.

    Raises:
        ConfigError: When a row is no mapping.
        DataError: When values of a column have different types.
    """
    chunks = _chunks(data)
    first = next(chunks, None)
    second = next(chunks, None)
    if first is None or second is None:
        return _table(first or [], 0)
    return _spooled(chain([first, second], chunks))


def _chunks(data: Iterable[Any]) -> Iterator[list[Mapping[str, Any]]]:
    rows = iter(data)
    while chunk := list(islice(rows, _ROWS)):
        for row in chunk:
            if not isinstance(row, Mapping):
                raise ConfigError(
                    f"Data of type {type(data).__name__} cannot be written: a row is of type {type(row).__name__}.",
                    remedy="Give rows as mappings from column to value, or a frame.",
                )
        yield chunk


def _table(rows: list[Mapping[str, Any]], before: int) -> "pa.Table":
    """Return rows as a table.

    Args:
        rows: The rows.
        before: How many rows came before them, for messages.
    """
    import pyarrow as pa

    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        if not isinstance(name, str) or not is_storable(name):
            raise DataError(f"The name {name!r} of a column is not a Unicode text.")
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowException, OverflowError, TypeError, UnicodeEncodeError) as error:
            where = f"rows {before + 1:,} to {before + len(rows):,}"
            raise DataError(
                f"Column `{name}` of {where} has values that Arrow cannot hold in one type: {error}",
                remedy="Convert them to one type before the write.",
            ) from error
    return pa.table(columns)


def _spooled(chunks: Iterable[list[Mapping[str, Any]]]) -> "pa.RecordBatchReader":
    import pyarrow as pa

    files, before = _Files(), 0
    for rows in chunks:
        files.add(_table(rows, before))
        before += len(rows)
    return pa.RecordBatchReader.from_batches(files.schema, files.batches())


class _Files:
    """Temporary files of tables, which are deleted once they are read, or no longer wanted.

    Attributes:
        schema: The columns of all tables.
    """

    def __init__(self) -> None:
        import pyarrow as pa

        self._folder = Path(tempfile.mkdtemp(prefix="ducklake-rows-"))
        self._remove = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._number = 0
        self.schema = pa.schema([])

    def add(self, table: "pa.Table") -> None:
        """Add a table."""
        import pyarrow as pa

        try:
            self.schema = pa.unify_schemas([self.schema, table.schema], promote_options="permissive")
        except pa.ArrowException as error:
            raise DataError(
                f"Later rows have other types than earlier ones: {error}",
                remedy="Convert the values of each column to one type before the write.",
            ) from error
        with pa.ipc.new_file(str(self._folder / str(self._number)), table.schema) as writer:
            writer.write_table(table)
        self._number += 1

    def batches(self) -> Iterator["pa.RecordBatch"]:
        """Yield the rows of all tables, with the columns of all."""
        import pyarrow as pa

        for number in range(self._number):
            with pa.OSFile(str(self._folder / str(number))) as file:
                table = pa.ipc.open_file(file).read_all()
            yield from pa.concat_tables([self.schema.empty_table(), table], promote_options="permissive").to_batches()
        self._remove()
