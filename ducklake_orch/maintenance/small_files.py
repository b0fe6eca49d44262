"""Choose the small files of a partition that become one file together: `merge_bins`."""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ducklake_orch.catalog.parquet import DEFAULT_FILE_SIZE
from ducklake_orch.config.maintenance import MergePolicy
from ducklake_orch.config.units import parse_size
from ducklake_orch.maintenance.census import FileState, TableState

# A file this close to the target is not rewritten for the sake of each small file that follows it.
_NEARLY_FULL = 0.75
# Tables that would have more files get larger ones, so that the plans of reads stay quick.
_MOST_FILES = 8192
_LARGEST_FILE = 2 * 1024**3
# The sizes that divide small files into tiers by default.
_TIERS = (8 * 1024**2, 64 * 1024**2)


class FileSizes(NamedTuple):
    """The sizes of a table's files.

    Attributes:
        target: The size that new files should have.
        small: Smaller files than this are worth a merge.
    """

    target: int
    small: float


def file_sizes(table: TableState, policy: MergePolicy) -> FileSizes:
    """Return the sizes that files of a table should have: those of the policy, else of its option, else by its size."""
    target, option = policy.target_file_size, table.options.get("target_file_size")
    if target is None and option is not None:
        target = parse_size(option)
    if target is not None:
        return FileSizes(target, target * _NEARLY_FULL)
    # Files of the default size are not rewritten when a table outgrows them; only small ones become larger files.
    return FileSizes(
        min(max(DEFAULT_FILE_SIZE, table.bytes // _MOST_FILES), _LARGEST_FILE), DEFAULT_FILE_SIZE * _NEARLY_FULL
    )


def merge_bins(
    files: Sequence[FileState], sizes: FileSizes, policy: MergePolicy, room: int, least: int | None = None
) -> Iterator[Sequence[FileState]]:
    """Yield the lists of files of a partition that a merge turns into one file each.

    Args:
        files: The files, in the order of their rows.
        sizes: The sizes of the table's files.
        policy: The merge policy.
        room: The most files in all bins together.
        least: The fewest files in a bin; by default the policy's `min_files`.
    """
    least = policy.min_files if least is None else least
    for tier in tiers(small_files(files, sizes), policy, sizes.target):
        for part in packed(tier, sizes.target):
            taken = part[:room]
            if len(taken) >= least:
                yield taken
                room -= len(taken)


def small_files(files: Sequence[FileState], sizes: FileSizes) -> Iterator[FileState]:
    """Return the files that are worth a merge."""
    return (file for file in files if file.bytes < sizes.small)


def tiers(files: Iterator[FileState], policy: MergePolicy, target: int) -> list[list[FileState]]:
    """Divide small files by size, so that larger ones are not rewritten for the sake of a few smaller ones."""
    limits = policy.tiers or (*(size for size in _TIERS if size < target), target)
    found: list[list[FileState]] = [[] for _ in limits]
    for file in files:
        tier = bisect_right(limits, file.bytes)
        if tier < len(found):
            found[tier].append(file)
    return found


def packed(files: Sequence[FileState], target: int) -> Iterator[list[FileState]]:
    """Divide files into bins of one new file each, in the order of their rows, so that neighbours stay together."""
    part: list[FileState] = []
    size = 0
    for file in files:
        if part and size + file.bytes > target:
            yield part
            part, size = [], 0
        part.append(file)
        size += file.bytes
    if part:
        yield part
