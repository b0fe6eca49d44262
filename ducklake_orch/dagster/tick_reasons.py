"""Says what a tick of the snapshot sensor found, in the words that Dagster shows with the tick."""

from collections.abc import Mapping, Sequence

import dagster as dg

# A reason names at most this many assets or keys.
_NAMED = 3
Pending = Mapping[str, Mapping[str, int]]


def observed(events: Sequence[dg.AssetObservation], waited: Pending) -> str:
    """Say what was observed.

    Args:
        events: The observations.
        waited: By asset, keys of earlier changes that had no partition until now.
    """
    partitions: dict[str, list[str]] = {}
    for event in events:
        keys = partitions.setdefault(event.asset_key.to_user_string(), [])
        keys.extend([event.partition] if event.partition is not None else [])
    late = sum(key in waited.get(asset, {}) for asset, keys in partitions.items() for key in keys)
    sentence = f"Observed {_listed([_of_asset(asset, keys) for asset, keys in partitions.items()])}."
    return f"{sentence} {late} of the partitions did not exist when their rows changed." if late else sentence


def seen(before: int, newest: int, changed: Sequence[str], *, events: bool) -> str:
    """Say which snapshots are new since the last tick.

    Args:
        before: The last snapshot of the last tick.
        newest: The newest snapshot.
        changed: The assets whose rows the new snapshots changed outside Dagster.
        events: Whether there is something to report.
    """
    if newest == before:
        return f"There is no snapshot after {newest}."
    is_one = newest == before + 1
    snapshots = f"Snapshot {newest}" if is_one else f"Snapshots {before + 1} to {newest}"
    change = "changes" if is_one else "change"
    if changed:
        but = "" if events else ", but of no partition that exists"
        return f"{snapshots} {change} rows of {_listed([f'`{asset}`' for asset in changed])}{but}."
    runs = "is from a Dagster run" if is_one else "are from Dagster runs"
    return f"{snapshots} {change} no rows, {runs} or {change} other tables."


def waiting(pending: Pending) -> list[str]:
    """Say which keys wait for their partition, one sentence for each asset."""
    sentences = []
    for asset, keys in pending.items():
        if keys:
            what = "1 changed key of {} has" if len(keys) == 1 else f"{len(keys)} changed keys of {{}} have"
            sentences.append(f"{what.format(f'`{asset}`')} no partition yet: {_listed(sorted(keys))}.")
    return sentences


def _of_asset(asset: str, partitions: Sequence[str]) -> str:
    if not partitions:
        return f"`{asset}`"
    if len(partitions) == 1:
        return f"partition {partitions[0]} of `{asset}`"
    return f"{len(partitions)} partitions of `{asset}`"


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join([*names[:_NAMED], *([f"and {more} more"] if more > 0 else [])])
