"""Deletions as bits, one row for each chunk of a file's rows, so that Spark skips deleted rows by a broadcast join.

A chunk is identified by the size of its file, which costs Spark nothing per row, and by the position of its rows.
Files of the same size are therefore read by different scans.
"""

import os.path
from collections import Counter
from collections.abc import Iterable, Sequence

import duckdb
import pyarrow as pa

from ducklake_orch.catalog.metadata import SNAPSHOT_ID, DataFile
from ducklake_orch.catalog.parquet import deleted_sql
from ducklake_orch.catalog.scan import ScanPlan
from ducklake_orch.engine.quoting import file_literals

# A chunk has up to this many rows, as a power of two. Spark looks up larger chunks faster.
_LARGEST_CHUNK = 16
# One word, in which Spark tests a bit.
_SMALLEST_CHUNK = 6
# The bits of a chunk's number in its file. They leave 39 bits for the size of the file.
_CHUNK_NUMBER = 24
# This many chunks, of 8 KiB, are broadcast to every executor. Files of the same size are read by this many scans.
_MOST_CHUNKS, _MOST_SCANS = 4096, 16
CHUNK, BITS, POSITION = (f"__ducklake_orch_{name}" for name in ("chunk", "bits", "position"))
_FILES = "__ducklake_orch_files"
_INLINED = "__ducklake_orch_inlined"


def has_deletions(file: DataFile) -> bool:
    """Whether rows of a file are deleted."""
    return bool(file.deletes or file.inlined_deletes)


def reasons_against(files: Iterable[DataFile]) -> dict[int, str]:
    """Return why Spark cannot find the deletions of files, by data file id."""
    reasons: dict[int, str] = {}
    same: Counter[int] = Counter()
    chunks = 0
    for file in filter(has_deletions, files):
        same[file.file_size] += 1
        chunks += 1 + (file.record_count >> _LARGEST_CHUNK)
        if "://" in file.path:
            reasons[file.data_file_id] = "it has deletions"
        elif _size(file.path) != file.file_size:
            reasons[file.data_file_id] = "it has deletions, and its size is not the one in the catalog"
        elif same[file.file_size] > _MOST_SCANS:
            reasons[file.data_file_id] = "many files with deletions have the same size"
        elif chunks > _MOST_CHUNKS:
            reasons[file.data_file_id] = "the files with deletions have too many rows"
    return reasons


def _size(path: str) -> int | None:
    """Return the size of a file; None if this process does not see it."""
    try:
        return os.path.getsize(path)
    except OSError:
        return None


class DeletionBits:
    """How Spark finds the deletions of some files.

    Args:
        plan: The scan.
        files: The files, no two of which have the same size.
    """

    def __init__(self, plan: ScanPlan, files: Sequence[DataFile]) -> None:
        self._plan = plan
        self._files = [(file, file.file_size << _CHUNK_NUMBER) for file in files]
        highest = max(file.record_count for file in files)
        self._chunk = min(max(highest.bit_length(), _SMALLEST_CHUNK), _LARGEST_CHUNK)
        self._mask = (1 << self._chunk) - 1

    @property
    def columns(self) -> tuple[str, str]:
        """The columns of a scan that identify a row, in Spark's SQL."""
        chunk = f"(_metadata.file_size << {_CHUNK_NUMBER}) | (_metadata.row_index >> {self._chunk})"
        return f"{chunk} AS {CHUNK}", f"_metadata.row_index AS {POSITION}"

    @property
    def condition(self) -> str:
        """The condition for rows that are not deleted, in Spark's SQL, after a left join with the chunks."""
        word, bit = f"({POSITION} & {self._mask}) >> 6", f"{POSITION} & 63"
        # DuckDB's first bit is the highest of the first byte, which is the lowest of Spark's word.
        return f"{BITS} IS NULL OR getbit({BITS}[CAST({word} AS INT)], CAST({bit} ^ 7 AS INT)) = 0"

    def chunks(self, con: duckdb.DuckDBPyConnection) -> pa.Table:
        """Read the deletions of the files: a number for each chunk with deleted rows, and its bits in words of 64."""
        chunk, bits = f"base | (pos >> {self._chunk})", f"bitstring_agg(pos & {self._mask}, 0, {self._mask})::BLOB"
        positions = " UNION ALL ".join([*self._in_files(con), *self._in_vectors(), *self._inlined(con)])
        found = con.execute(f"SELECT {chunk} AS chunk, {bits} AS bits FROM ({positions}) GROUP BY ALL").to_arrow_table()
        words = (1 << self._chunk) // 64
        blobs = found["bits"].combine_chunks()
        values = pa.Int64Array.from_buffers(pa.int64(), len(blobs) * words, [None, blobs.buffers()[2]])
        starts = pa.array(range(0, len(values) + 1, words), pa.int32())
        return pa.table({CHUNK: found["chunk"], BITS: pa.ListArray.from_arrays(starts, values)})

    def _in_files(self, con: duckdb.DuckDBPyConnection) -> list[str]:
        """Return the query, if there are Parquet delete files, for their positions."""
        pairs = [(base, delete) for file, base in self._files for delete in file.deletes if delete.format == "parquet"]
        if not pairs:
            return []
        later = any(delete.later for _, delete in pairs)
        files = {
            "filename": [delete.path for _, delete in pairs],
            "base": pa.array([base for base, _ in pairs], pa.int64()),
            # Compared row by row only if some rows may have been deleted later.
            "began": pa.array([delete.begin_snapshot if delete.later else None for _, delete in pairs], pa.int64()),
        }
        con.register(_FILES, pa.table(files))
        paths = file_literals(delete.path for _, delete in pairs)
        options = f"filename = true, hive_partitioning = false, union_by_name = {str(later).lower()}"
        source = f"read_parquet([{paths}], {options})"
        if later:
            source = f"(SELECT NULL::BIGINT AS {SNAPSHOT_ID} WHERE false UNION ALL BY NAME FROM {source})"
        kept = f" WHERE began IS NULL OR coalesce({SNAPSHOT_ID}, began) <= {self._plan.snapshot}" if later else ""
        return [f"SELECT base, pos FROM {source} JOIN {_FILES} USING (filename){kept}"]

    def _in_vectors(self) -> list[str]:
        """Return queries for the positions in deletion vectors."""
        pairs = [(base, delete) for file, base in self._files for delete in file.deletes if delete.format != "parquet"]
        at = self._plan.snapshot
        return [f"SELECT {base}::BIGINT AS base, pos FROM ({deleted_sql(delete, at)})" for base, delete in pairs]

    def _inlined(self, con: duckdb.DuckDBPyConnection) -> list[str]:
        """Return the query, if the catalog holds deletions, for their positions."""
        inlined = self._plan.inlined_deletes
        rows = [(base, position) for file, base in self._files for position in inlined.get(file.data_file_id, ())]
        if not rows:
            return []
        bases, positions = zip(*rows, strict=True)
        con.register(_INLINED, pa.table({"base": pa.array(bases, pa.int64()), "pos": pa.array(positions, pa.int64())}))
        return [f"SELECT base, pos FROM {_INLINED}"]
