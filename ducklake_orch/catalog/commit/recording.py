"""Record what verbs commit to the draft of a transaction, which commits it to its lake, all together."""

from dataclasses import dataclass, field
from pathlib import Path

from ducklake_orch.catalog.commit.table_change import TableChange
from ducklake_orch.config.lake import LakeConfig


@dataclass
class Recording:
    """What the verbs of a transaction do in its draft.

    Attributes:
        changes: The changes that they committed, or that found nothing to commit, in order.
        write_ids: The ids of their writes, which are part of the names of the files that they write.
    """

    changes: list[TableChange] = field(default_factory=list)
    write_ids: list[str] = field(default_factory=list)


# By the file of the draft: no other lake and no other transaction has the same.
_RECORDINGS: dict[Path, Recording] = {}


def begin_recording(draft: LakeConfig) -> Recording:
    """Begin to record what is committed to a draft."""
    return _RECORDINGS.setdefault(_file(draft), Recording())


def end_recording(draft: LakeConfig) -> None:
    """Forget the recording of a draft."""
    _RECORDINGS.pop(_file(draft), None)


def recording_of(config: LakeConfig) -> Recording | None:
    """Return the recording of a draft; None for a lake that is no draft."""
    file = config.catalog_file
    return None if file is None else _RECORDINGS.get(file)


def record_change(config: LakeConfig, change: TableChange) -> None:
    """Record a change that is committed, or that found nothing to commit, if it is one of a draft."""
    if (recording := recording_of(config)) is not None:
        recording.changes.append(change)


def _file(draft: LakeConfig) -> Path:
    assert draft.catalog_file is not None  # noqa: S101 - the catalog of a draft is a file
    return draft.catalog_file
