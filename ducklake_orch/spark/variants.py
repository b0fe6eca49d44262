"""Pass variants between DuckDB and Spark without loss, in the binary encoding of Parquet that Spark uses as well.

Arrow has no type for a variant. Spark passes one as a struct of its two binary parts. DuckDB makes these parts by a
function of its own, and reads them from Parquet files only. So a task that writes variants first spools its rows into
such a file.
"""

import os
import tempfile
from collections.abc import Sequence

import pyarrow as pa

from ducklake_orch.engine.quoting import file_literal, identifier
from ducklake_orch.errors import DuckLakeOrchError

_PARTS = 'STRUCT("value" BLOB, metadata BLOB)'
# Parquet's Thrift encoding of a group's schema after its name: it has two fields, and its logical type is VARIANT.
_PLAIN_GROUP, _VARIANT_GROUP = b"\x15\x04\x00", b"\x15\x04\x5c\x0c\x20\x00\x00\x00"
_MARK = b"PAR1"


def variant_parts(sql: str) -> str:
    """Return the SQL of a variant's two parts.

    The keys of objects are sorted first, as Parquet demands: Spark does not find some keys of unsorted objects.
    """
    parts = f"CAST(variant_to_parquet_variant(variant_normalize({sql})) AS {_PARTS})"
    return f"CASE WHEN {sql} IS NOT NULL THEN {parts} END"


def arrow_batch(rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    """Return a batch whose columns of variants, as `variant_parts` has them, are in the form of Spark.

    Args:
        rows: The batch.
        names: The columns that are variants.
    """
    if not names:
        return rows
    fields = [pa.field("value", pa.binary(), nullable=False)]
    fields.append(pa.field("metadata", pa.binary(), nullable=False, metadata={b"variant": b"true"}))
    columns = []
    for name, column in zip(rows.schema.names, rows.columns, strict=True):
        if name in names:
            parts = [part.fill_null(b"") for part in column.flatten()]
            column = pa.StructArray.from_arrays(parts, fields=fields, mask=column.is_null())
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def arrow_table(rows: pa.Table, names: Sequence[str]) -> pa.Table | None:
    """Return a table in the form of `arrow_batch`; None if it has no rows."""
    batches = [arrow_batch(batch, names) for batch in rows.to_batches()]
    return pa.Table.from_batches(batches) if rows.num_rows else None


def spooled(rows: pa.RecordBatchReader, names: Sequence[str], folder: str) -> str:
    """Write rows with variants into a temporary Parquet file, and return the FROM item that reads it.

    Args:
        rows: The rows, in Spark's form.
        names: The columns that are variants.
        folder: The folder of the file, which the caller deletes.
    """
    import pyarrow.parquet as pq

    handle, path = tempfile.mkstemp(dir=folder, suffix=".parquet")
    os.close(handle)
    # No other text in the footer can be such a name.
    marks = [f"__ducklake_orch_variant_{n}__" if name in names else None for n, name in enumerate(rows.schema.names)]
    stored = [mark or f"c{n}" for n, mark in enumerate(marks)]
    schema = pa.schema([field.with_name(name) for field, name in zip(rows.schema, stored, strict=True)])
    with pq.ParquetWriter(path, schema, compression="lz4", store_schema=False) as writer:
        for batch in rows:
            writer.write_batch(pa.RecordBatch.from_arrays(arrow_batch(batch, names).columns, schema=schema))
    _mark_variants(path, [mark for mark in marks if mark is not None])
    columns = (
        # Parquet stores a duration as a number.
        f"{f'to_microseconds({name})' if pa.types.is_duration(field.type) else name} AS {identifier(field.name)}"
        for name, field in zip(stored, rows.schema, strict=True)
    )
    return f"(SELECT {', '.join(columns)} FROM read_parquet({file_literal(path)}))"


def _mark_variants(path: str, names: Sequence[str]) -> None:
    """Add to a Parquet file's footer that some columns are variants, which pyarrow cannot write."""
    with open(path, "r+b") as file:
        file.seek(-8, os.SEEK_END)
        size = int.from_bytes(file.read(4), "little")
        file.seek(-8 - size, os.SEEK_END)
        start = file.tell()
        footer = file.read(size)
        for name in names:
            text = name.encode()
            plain = b"\x18" + bytes([len(text)]) + text + _PLAIN_GROUP
            if footer.count(plain) != 1:
                raise DuckLakeOrchError(f"pyarrow {pa.__version__} writes Parquet footers in an unknown form.")
            footer = footer.replace(plain, plain.removesuffix(_PLAIN_GROUP) + _VARIANT_GROUP)
        file.seek(start)
        file.write(footer + len(footer).to_bytes(4, "little") + _MARK)
