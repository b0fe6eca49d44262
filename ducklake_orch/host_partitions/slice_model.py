"""The model of a host's partitions: keys, their time windows, and slices of several dimensions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

from ducklake_orch.errors import ConfigError

SEPARATOR = "|"
# The name of the only dimension of a definition with unnamed dimensions.
ONLY = ""


class Window(NamedTuple):
    """A time window with an exclusive end; both times are in the zone of the partitions' definition."""

    start: datetime
    end: datetime


class Key(NamedTuple):
    """A partition key of one dimension, with its time window if the key is a time.

    Attributes:
        guessed: Whether the window's length is assumed: one day, which is safe for a date column but not for a time.
    """

    text: str
    window: Window | None = None
    guessed: bool = False


@dataclass(frozen=True)
class Slice:
    """Some partitions of a table. Each cell has one key for each dimension.

    Attributes:
        dimensions: Names of the dimensions, in the order of the keys in a cell.
        cells: The partitions.
    """

    dimensions: tuple[str, ...]
    cells: frozenset[tuple[Key, ...]]

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Self:
        """Return a slice of one dimension."""
        return cls((ONLY,), frozenset((key,) for key in keys))

    @classmethod
    def of_many(cls, dimensions: Iterable[str], cells: Iterable[Mapping[str, Key]]) -> Self:
        """Return a slice of several dimensions, which can be in any order."""
        names = tuple(sorted(dimensions))
        return cls(names, frozenset(tuple(cell[name] for name in names) for cell in cells))

    @property
    def texts(self) -> list[str]:
        """The keys as texts, sorted."""
        return sorted(SEPARATOR.join(key.text for key in cell) for cell in self.cells)

    def each(self) -> Iterator[tuple[str, "Slice"]]:
        """Yield each partition's key with the slice of that partition alone."""
        for cell in sorted(self.cells, key=lambda cell: [key.text for key in cell]):
            yield SEPARATOR.join(key.text for key in cell), Slice(self.dimensions, frozenset([cell]))


def multi_key(parts: Mapping[str, str]) -> str:
    """Join the keys of several dimensions, sorted by the names of the dimensions."""
    for name, text in parts.items():
        if SEPARATOR in text:
            raise ConfigError(f"The partition key {text!r} of `{name}` contains `{SEPARATOR}`, which separates keys.")
    return SEPARATOR.join(parts[name] for name in sorted(parts))


def split_multi_key(key: str, dimensions: Iterable[str]) -> dict[str, str]:
    """Split the key of several dimensions into the key of each dimension."""
    names, parts = sorted(dimensions), key.split(SEPARATOR)
    if len(names) != len(parts):
        raise ConfigError(
            f"The partition key {key!r} has {len(parts)} parts, not {len(names)}.",
            remedy=f"Write it as `{SEPARATOR.join(names)}`.",
        )
    return dict(zip(names, parts, strict=True))
