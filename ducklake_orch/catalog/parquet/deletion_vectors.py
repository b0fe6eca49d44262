"""Read deletion vectors: files that hold the deleted positions of a data file as a Roaring bitmap.

The extension writes them if the option `write_deletion_vectors` is on. A plan gets their positions, so that its readers
need not know the format. ducklake-orch itself writes Parquet delete files, which also have the snapshot of each
deletion.
"""

import struct
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from zlib import crc32

import duckdb

from ducklake_orch.catalog.metadata import DataFile, DeleteFile
from ducklake_orch.engine.quoting import file_literals
from ducklake_orch.errors import FileNotUsableError

_MAGIC = bytes.fromhex("d1d33964")
# How a bitmap begins whose containers are not runs, and one in which a container may be.
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
# A container of up to this many values is a list of them; others have a bit for each of 65,536 values.
_LONGEST_LIST = 4096
# Bitmaps with runs and fewer containers do not list where the containers begin.
_FEWEST_WITH_OFFSETS = 4
_REMEDY = "`lake.fsck(storage=True)` checks all files. Restore the file from a backup of the storage."


def read_vectors(con: duckdb.DuckDBPyConnection, files: Sequence[DataFile]) -> tuple[DataFile, ...]:
    """Return the files with the positions of their deletion vectors.

    Args:
        con: A DuckDB connection that can reach the storage.
        files: The files; those without deletion vectors are returned as they are.

    Raises:
        FileNotUsableError: When a deletion vector is missing, or is not what the catalog says.
    """
    vectors = {delete.path: delete for file in files for delete in file.deletes if delete.format != "parquet"}
    if not vectors:
        return tuple(files)
    paths = file_literals(vectors)
    # DuckDB leaves out files that do not exist, and keeps the order of the others.
    contents = con.execute(f"SELECT content FROM read_blob([{paths}])").fetchall()
    if len(contents) != len(vectors):
        text = f"{len(vectors) - len(contents)} of {len(vectors)} deletion vectors are missing"
        raise FileNotUsableError(f"{text}, in the folder of {next(iter(vectors))}.", remedy=_REMEDY)
    read = {
        path: replace(delete, positions=positions_of(delete, content))
        for (path, delete), (content,) in zip(vectors.items(), contents, strict=True)
    }
    return tuple(
        replace(file, deletes=tuple(read.get(delete.path, delete) for delete in file.deletes)) for file in files
    )


def positions_of(delete: DeleteFile, content: bytes) -> tuple[int, ...]:
    """Return the positions in a deletion vector.

    Raises:
        FileNotUsableError: When the content is not what the catalog says.
    """
    try:
        positions = decoded(content, delete.delete_count)
    except (ValueError, IndexError, struct.error) as error:
        failure = FileNotUsableError(f"{delete.path} is not a deletion vector: {error}.", remedy=_REMEDY)
    else:
        return positions
    raise failure


def decoded(content: bytes, count: int) -> tuple[int, ...]:
    """Return the positions of a vector: its length, a magic number, 64-bit Roaring bitmaps, and a checksum.

    Args:
        content: The content of the file.
        count: The number of positions that it should have. It is checked before they are decoded, because few bytes
            can stand for very many positions.
    """
    vector = content[4:-4]
    if int.from_bytes(content[:4], "big") != len(vector) or vector[:4] != _MAGIC:
        raise ValueError("its length or its magic number is wrong")
    if crc32(vector) != int.from_bytes(content[-4:], "big"):
        raise ValueError("its checksum is wrong")
    (bitmaps,) = struct.unpack_from("<Q", vector, 4)
    containers, at = [], 12
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<I", vector, at)
        found, at = _containers(vector, at + 4)
        containers += [(high << 32 | key << 16, size, kind, start) for key, size, kind, start in found]
    bases = [base for base, _, _, _ in containers]
    if bases != sorted(set(bases)) or any(base >> 63 for base in bases):
        raise ValueError("its containers are not in order")
    if sum(size for _, size, _, _ in containers) != count:
        raise ValueError(f"the catalog says that it has {count} positions")
    return tuple(
        base | value for base, size, kind, start in containers for value in _READERS[kind](vector, start, size)
    )


def _containers(vector: bytes, at: int) -> tuple[list[tuple[int, int, str, int]], int]:
    """Return the containers of a 32-bit bitmap: key, number of values, kind, and where it starts; and where it ends."""
    (cookie,) = struct.unpack_from("<I", vector, at)
    at += 4
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        number = (cookie >> 16) + 1
        runs = vector[at : at + (number + 7) // 8]
        at += len(runs)
    elif cookie == _WITHOUT_RUNS:
        (number,) = struct.unpack_from("<I", vector, at)
        at += 4
    else:
        raise ValueError("it has no Roaring bitmap")
    heads = struct.unpack_from(f"<{2 * number}H", vector, at)
    at += 4 * number
    if not runs or number >= _FEWEST_WITH_OFFSETS:
        at += 4 * number
    found = []
    for n in range(number):
        key, size = heads[2 * n], heads[2 * n + 1] + 1
        if runs and runs[n // 8] >> n % 8 & 1:
            kind, length = "runs", 2 + 4 * struct.unpack_from("<H", vector, at)[0]
        elif size <= _LONGEST_LIST:
            kind, length = "list", 2 * size
        else:
            kind, length = "bits", 8192
        found.append((key, size, kind, at))
        at += length
    return found, at


def _in_list(vector: bytes, at: int, size: int) -> Sequence[int]:
    values = struct.unpack_from(f"<{size}H", vector, at)
    if list(values) != sorted(set(values)):
        raise ValueError("its positions are not in order")
    return values


def _in_bits(vector: bytes, at: int, size: int) -> list[int]:
    values = []
    for n, word in enumerate(struct.unpack_from("<1024Q", vector, at)):
        while word:
            lowest = word & -word
            values.append(64 * n + lowest.bit_length() - 1)
            word ^= lowest
    if len(values) != size:
        raise ValueError(f"it has {len(values)} positions where it says {size}")
    return values


def _in_runs(vector: bytes, at: int, size: int) -> list[int]:
    (number,) = struct.unpack_from("<H", vector, at)
    bounds = struct.unpack_from(f"<{2 * number}H", vector, at + 2)
    runs = [range(start, start + more + 1) for start, more in zip(bounds[::2], bounds[1::2], strict=True)]
    if sum(map(len, runs)) != size or any(run.stop > 65536 for run in runs):
        raise ValueError("its runs are not as long as it says")
    if any(run.stop > following.start for run, following in pairwise(runs)):
        raise ValueError("its runs are not in order")
    return [value for run in runs for value in run]


_READERS = {"list": _in_list, "bits": _in_bits, "runs": _in_runs}
