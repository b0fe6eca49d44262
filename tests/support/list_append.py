"""Check histories of transactions that append to lists and read lists, as Elle does: find cycles of dependencies.

Every appended element is unique, so that each list that is read tells which transactions came before.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

# The name of a list: its table and its key.
ListName = tuple[str, int]


@dataclass
class Work:
    """What one transaction did.

    Attributes:
        appends: The elements that it appended, by list, in order.
        reads: The lists that it read before it appended to them.
        committed: Whether it was committed.
    """

    name: str
    appends: dict[ListName, list[int]] = field(default_factory=dict)
    reads: dict[ListName, list[int]] = field(default_factory=dict)
    committed: bool = False


def anomalies(works: Sequence[Work], final: Mapping[ListName, Sequence[int]], isolation: str) -> list[str]:
    """Return what a history has that its isolation forbids.

    Args:
        works: The transactions.
        final: The lists after all of them.
        isolation: `snapshot`: no cycle without two anti-dependencies in a row; `serializable`: no cycle at all.
    """
    committed = [work for work in works if work.committed]
    found = [*_wrong_lists(committed, final), *_wrong_reads(committed, final)]
    if found:
        return found
    follows, overtakes = _dependencies(committed, final)
    after: dict[str, set[str]] = {work.name: set(follows[work.name]) for work in committed}
    for name in after:
        if isolation == "serializable":
            after[name] |= overtakes[name]
        else:
            after[name].update(later for middle in follows[name] for later in overtakes[middle])
    try:
        list(TopologicalSorter(after).static_order())
    except CycleError as error:
        return [f"a cycle of {' -> '.join(error.args[1])}"]
    return []


def _wrong_lists(committed: Sequence[Work], final: Mapping[ListName, Sequence[int]]) -> Iterator[str]:
    appended = {(name, element) for work in committed for name, added in work.appends.items() for element in added}
    kept = [(name, element) for name, elements in final.items() for element in elements]
    for name, element in sorted(appended.difference(kept)):
        yield f"{element} of {name} is lost"
    for name, element in kept:
        if (name, element) not in appended:
            yield f"{element} of {name} was not committed"
        if kept.count((name, element)) > 1:
            yield f"{element} of {name} was appended twice"


def _wrong_reads(committed: Sequence[Work], final: Mapping[ListName, Sequence[int]]) -> Iterator[str]:
    for work in committed:
        for name, elements in work.reads.items():
            if list(final[name][: len(elements)]) != elements:
                yield f"{work.name} read {elements} of {name}, which is no beginning of {final[name]}"
            for other in committed:
                seen = [element for element in other.appends.get(name, ()) if element in elements]
                if seen and seen != other.appends[name]:
                    yield f"{work.name} read a part of {other.name}: {seen} of {name}"


def _dependencies(
    committed: Sequence[Work], final: Mapping[ListName, Sequence[int]]
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return which transactions follow each other by what they saw or replaced, and which overtook a reader."""
    writer = {
        (name, element): work.name
        for work in committed
        for name, elements in work.appends.items()
        for element in elements
    }
    follows, overtakes = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    for name, elements in final.items():
        for before, after in pairwise(elements):
            follows[writer[name, before]].add(writer[name, after])
    for work in committed:
        for name, elements in work.reads.items():
            if elements:
                follows[writer[name, elements[-1]]].add(work.name)
            if len(elements) < len(final[name]):
                overtakes[work.name].add(writer[name, final[name][len(elements)]])
    for edges in (follows, overtakes):
        for work_name, later in edges.items():
            later.discard(work_name)
    return follows, overtakes
