"""Damaged deletion vectors are refused, or are what the catalog says; without much memory or time."""

from itertools import pairwise
from pathlib import Path
from random import Random
from zlib import crc32

import pytest
from pyroaring import BitMap64

from ducklake_orch.catalog.metadata import DeleteFile
from ducklake_orch.catalog.parquet.deletion_vectors import positions_of
from tests.hostile.cases import chosen, run_cases
from tests.hostile.damage import damaged

MEMORY_MB = 500


def vector(pick: Random) -> tuple[bytes, BitMap64]:
    """Return the bitmap of a vector with any kinds of containers, and the bitmap as bytes."""
    bitmap = BitMap64()
    for _ in range(pick.randint(0, 6)):
        start = pick.choice([0, 1 << 16, 1 << 32, 1 << 62]) + pick.randrange(1 << 18)
        bitmap |= BitMap64(range(start, start + pick.randrange(1, 20_000), pick.choice([1, 2, 3, 100])))
    if pick.random() < 0.7:
        bitmap.run_optimize()
    return bytes.fromhex("d1d33964") + bitmap.serialize(), bitmap


def case(seed: int, folder: Path) -> str:
    pick = Random(seed)
    body, bitmap = vector(pick)
    count = len(bitmap)
    if pick.random() < 0.2:
        content = damaged(len(body).to_bytes(4, "big") + body + crc32(body).to_bytes(4, "big"), pick)
    else:  # behind a checksum that is right
        body = damaged(body, pick, first=4, last=min(len(body), pick.choice([40, 200, 10**9])))
        content = len(body).to_bytes(4, "big") + body + crc32(body).to_bytes(4, "big")
    count = pick.choice([count, count, count, 0, 1 << 40])
    delete = DeleteFile(1, "x.puffin", count, 1, None, None, len(content), None, format="puffin")
    positions = positions_of(delete, content)
    assert len(positions) == count
    assert all(0 <= position < 1 << 63 for position in positions), positions[-3:]
    assert all(low < high for low, high in pairwise(positions)), "not in order, or twice"
    return "read"


@pytest.mark.parametrize("many", [300, pytest.param(5000, marks=pytest.mark.full)])
def test_a_damaged_vector_is_refused_or_has_distinct_positions_in_order(many: int, tmp_path: Path) -> None:
    run_cases(case, chosen(many), tmp_path, memory_mb=MEMORY_MB, batch=5000)
