"""What a host says about partitions: keys, the time each of them stands for, and which ones belong together."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, Self

from ducklake_orch.errors import ConfigError

SEPARATOR = "|"
# The only dimension of a definition that does not name its dimensions.
ONLY = ""


class Window(NamedTuple):
    """A stretch of time, from its start to just before its end; both in the zone of the partitions' definition."""

    start: datetime
    end: datetime


class Key(NamedTuple):
    """A partition key of one dimension, and the time it stands for, if it does.

    Attributes:
        guessed: Whether nothing has told how long it lasts: a day is what a date can hold, and not what a time has to.
    """

    text: str
    window: Window | None = None
    guessed: bool = False


@dataclass(frozen=True)
class Slice:
    """Some partitions of a table: each cell has a key for each dimension.

    Attributes:
        dimensions: Names of the dimensions, in order.
        cells: The partitions.
    """

    dimensions: tuple[str, ...]
    cells: frozenset[tuple[Key, ...]]

    @classmethod
    def of(cls, keys: Iterable[Key]) -> Self:
        """Return partitions that have one dimension."""
        return cls((ONLY,), frozenset((key,) for key in keys))

    @classmethod
    def of_many(cls, dimensions: Iterable[str], cells: Iterable[Mapping[str, Key]]) -> Self:
        """Return partitions that have several dimensions; their order does not matter."""
        names = tuple(sorted(dimensions))
        return cls(names, frozenset(tuple(cell[name] for name in names) for cell in cells))

    @property
    def texts(self) -> list[str]:
        """The keys as one writes them, sorted."""
        return sorted(SEPARATOR.join(key.text for key in cell) for cell in self.cells)

    def each(self) -> Iterator[tuple[str, "Slice"]]:
        """Return each partition on its own, with its key."""
        for cell in sorted(self.cells, key=lambda cell: [key.text for key in cell]):
            yield SEPARATOR.join(key.text for key in cell), Slice(self.dimensions, frozenset([cell]))


def multi_key(parts: Mapping[str, str]) -> str:
    """Write the key of several dimensions: theirs, sorted by the names of the dimensions."""
    for name, text in parts.items():
        if SEPARATOR in text:
            raise ConfigError(f"The partition key {text!r} of `{name}` has a `{SEPARATOR}`, which parts keys.")
    return SEPARATOR.join(parts[name] for name in sorted(parts))


def split_multi_key(key: str, dimensions: Iterable[str]) -> dict[str, str]:
    """Read the key of several dimensions."""
    names, parts = sorted(dimensions), key.split(SEPARATOR)
    if len(names) != len(parts):
        raise ConfigError(
            f"The partition key {key!r} has {len(parts)} parts, not {len(names)}.",
            remedy=f"Write it as `{SEPARATOR.join(names)}`.",
        )
    return dict(zip(names, parts, strict=True))
