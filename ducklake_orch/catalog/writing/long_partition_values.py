"""Write partitions whose values are too long for the names of folders.

COPY names a folder after the value of a partition, in full. So rows of such a partition have a short stand-in for the
value while COPY writes them. Their files are then written again with the value, into a folder whose name is cut.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from urllib.parse import quote
from uuid import uuid4

import duckdb

from ducklake_orch.catalog.metadata import NewFile, TableDef, duckdb_type
from ducklake_orch.catalog.parquet import PartitionKey, parquet_sql
from ducklake_orch.engine.quoting import identifier, literal

# Types whose values are short as text.
_SHORT = re.compile(r"u?int\d+|float\d+|decimal\(.*\)|boolean|date|time.*|uuid|interval")
_STAND_IN_LENGTH = 64
# A character is encoded as up to three times as many bytes.
_GROWTH = 3


def has_stand_ins(keys: Sequence[PartitionKey]) -> bool:
    """Return whether stand-ins are possible for all long values: only texts can have them."""
    return all(
        _room(key) >= _STAND_IN_LENGTH if _is_text(key) else _SHORT.fullmatch(key.column.type) is not None
        for key in keys
    )


@dataclass
class StandIns:
    """The stand-ins of one COPY. They contain a random text, so that no value of the data is one of them.

    Attributes:
        table: The table.
        keys: Its partition keys, which are columns.
        nonce: The random text.
        values: The value of each stand-in.
    """

    table: TableDef
    keys: Sequence[PartitionKey]
    nonce: str = field(default_factory=lambda: uuid4().hex)
    values: dict[str, str] = field(default_factory=dict)

    @property
    def function(self) -> str:
        """The name of the SQL function that returns the stand-in for a value."""
        return f"stand_in_{self.nonce}"

    def query(self, rows: str) -> str:
        """Return the query for the rows with stand-ins for long values."""
        texts = [
            f"CASE WHEN strlen({name}) * {_GROWTH} > {room} AND strlen(url_encode({name})) > {room}"
            f" THEN {self.function}({name}) ELSE {name} END AS {name}"
            for name, room in ((identifier(key.column.name), _room(key)) for key in self.keys if _is_text(key))
        ]
        return f"SELECT * REPLACE ({', '.join(texts)}) FROM ({rows})" if texts else rows

    def of(self, value: str) -> str:
        """Return the stand-in for a value. DuckDB calls this in several threads."""
        stand_in = f"{self.nonce}{sha256(value.encode()).hexdigest()}"[:_STAND_IN_LENGTH]
        self.values[stand_in] = value
        return stand_in

    def restored(self, file: NewFile, copy: Callable[[str, str, tuple[str | None, ...]], list[NewFile]]) -> NewFile:
        """Return a file with the values of its partition; write it again if these have stand-ins.

        Args:
            file: The file that COPY wrote.
            copy: Writes the rows of a query to one file of a partition in a folder, and describes the file.
        """
        values = tuple(None if value is None else self.values.get(value, value) for value in file.partition_values)
        if values == file.partition_values:
            return file
        encoded = [None if value is None else quote(value, safe="") for value in values]
        restored = {
            key.column.column_id: f"url_decode({literal(text)})"
            for key, text, value, stand_in in zip(self.keys, encoded, values, file.partition_values, strict=True)
            if value != stand_in
        }
        columns = ", ".join(
            f"CAST({restored.get(column.column_id, name)} AS {duckdb_type(column)}) AS {name}"
            for column, name in ((column, identifier(column.name)) for column in self.table.columns)
        )
        folders = "".join(key.folder_of(text) for key, text in zip(self.keys, encoded, strict=True))
        rows = f"SELECT {columns} FROM {parquet_sql(file.path, file.encryption_key)}"
        (written,) = copy(rows, f"{self.table.folder}{folders}", values)
        if "://" not in file.path:
            self._remove(file.path)
        return written

    def _remove(self, path: str) -> None:
        """Delete a local file with a stand-in, and its folders up to the last one that is named after a stand-in.

        Other writers use the folders above. In a bucket, a connection cannot delete, so the file is left to the removal
        of orphaned files.
        """
        os.remove(path)
        with suppress(OSError):  # a folder in which there is another file
            while self.nonce in (path := os.path.dirname(path)):
                os.rmdir(path)


def _is_text(key: PartitionKey) -> bool:
    return key.column.type == "varchar"


def _room(key: PartitionKey) -> int:
    """Return how many bytes of a folder's name are left for the encoded value."""
    return key.longest_folder - len(quote(key.folder, safe="")) - len("=")


@contextmanager
def stand_ins(con: duckdb.DuckDBPyConnection, table: TableDef, keys: Sequence[PartitionKey]) -> Iterator[StandIns]:
    """Provide the function for stand-ins in this block."""
    found = StandIns(table, keys)
    con.create_function(found.function, found.of, ["VARCHAR"], "VARCHAR")
    try:
        yield found
    finally:
        con.remove_function(found.function)
