"""Work out, inside the commit, which rows a change retires: from the files and inlined rows that are live just then."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Retired:
    """What goes.

    Attributes:
        all_files: Whether all live files of the table go; then they need no list.
        file_ids: The data files that go.
        file_count: How many they are.
        rows: Live rows that go, in files and inlined.
        inlined: Tables of inlined rows that lose some, with the rows' ids; None for all of them.
    """

    all_files: bool = False
    file_ids: Sequence[int] = ()
    file_count: int = 0
    rows: int = 0
    inlined: dict[str, Sequence[int] | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.file_count or self.inlined)
