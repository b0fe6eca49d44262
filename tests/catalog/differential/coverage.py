"""The coverage of a run: pairs of type, transform, definition change, write mode, and reader."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from tests.catalog.differential.shapes import SPECS, family

AXES = ("type", "transform", "family", "ddl", "mode", "writer", "reader")
# Two pairs of an axis and one of its values.
Cell = tuple[str, str, str, str]


@dataclass(frozen=True)
class Event:
    """A step on a table, read back by some readers.

    Attributes:
        types: The types of the table's columns.
        spec: The partition spec of the table.
        ddl: The changes of its definition until then.
        mode: The operation that changed or moved rows; None if no rows were changed.
        readers: The readers that read the table afterwards.
        writers: The engines that wrote files for ducklake-orch.
    """

    types: Collection[str]
    spec: str
    ddl: Collection[str]
    mode: str | None
    readers: Collection[str]
    writers: Collection[str] = ()

    def cells(self) -> Iterator[Cell]:
        """Yield all pairs of values that the event combines."""
        parts: dict[str, Collection[str]] = {
            "type": self.types,
            "transform": [self.spec],
            "family": [family(self.spec)],
            "ddl": self.ddl,
            "mode": [self.mode] if self.mode else [],
            "writer": self.writers,
            "reader": self.readers,
        }
        for left, right in combinations(AXES, 2):
            yield from ((left, a, right, b) for a in parts[left] for b in parts[right])


@dataclass
class Coverage:
    """The covered cells, and the cells that must be covered.

    Attributes:
        wanted: The cells that must not stay empty.
        steps: How often each step was run.
        faults: How often each known fault of the engine occurred.
    """

    wanted: frozenset[Cell]
    _seen: Counter[Cell] = field(default_factory=Counter)
    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, event: Event) -> None:
        """Record an event."""
        self._seen.update(event.cells())

    def gain(self, event: Event) -> int:
        """Return how many empty cells an event would fill."""
        return sum(cell in self.wanted and cell not in self._seen for cell in event.cells())

    def missing(self) -> list[Cell]:
        """Return the cells that are empty."""
        return sorted(self.wanted - self._seen.keys())

    def report(self) -> str:
        """Return a report of the steps and of the coverage of each pair of axes."""
        lines = ["steps: " + ", ".join(f"{name} {n}" for name, n in sorted(self.steps.items()))]
        for left, right in combinations(AXES, 2):
            wanted = {cell for cell in self.wanted if cell[0] == left and cell[2] == right}
            seen = [cell for cell in self._seen if cell[0] == left and cell[2] == right]
            if wanted or seen:
                rarest = min((self._seen[cell] for cell in wanted), default=0)
                filled = len(wanted & self._seen.keys())
                lines.append(
                    f"{left} by {right}: {filled} of {len(wanted)} wanted cells,"
                    f" {len(seen)} in all, the rarest {rarest} times"
                )
        lines += [f"{fault}: {n} times" for fault, n in sorted(self.faults.items())]
        return "\n".join(lines)


def product(**values: Iterable[str]) -> set[Cell]:
    """Return all pairs of the values of different axes."""
    chosen: dict[str, Sequence[str]] = {axis: list(chosen_values) for axis, chosen_values in values.items()}
    pairs = [(left, right) for left, right in combinations(AXES, 2) if left in chosen and right in chosen]
    return {(left, a, right, b) for left, right in pairs for a in chosen[left] for b in chosen[right]}


def specs_of(wanted: str) -> list[str]:
    """Return the partition specs of a family."""
    return [spec for spec in SPECS if family(spec) == wanted]
