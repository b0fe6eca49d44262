"""Reads deletion vectors with a library for Roaring bitmaps, and so shares no code with what it checks."""

from pathlib import Path

from pyroaring import BitMap64


def positions_in(path: str | Path) -> list[int]:
    """Return the deleted positions of a file, whose bitmap stands between length and magic number, and a checksum."""
    return list(BitMap64.deserialize(Path(path).read_bytes()[8:-4]))
