"""Lists the metadata of assets, outputs and inputs that are settings, and refuses misspelt ones."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError

OF_OUTPUTS = (
    "comment",
    "merge_keys",
    "partition_by",
    "partition_expr",
    "preview",
    "renamed_from",
    "schema",
    "schema_evolution",
    "sort_by",
    "table",
    "where",
    "write_mode",
)
OF_INPUTS = ("columns", "snapshot")
# An input without an upstream output names its table itself.
_NAMES = ("schema", "table")
_PREFIX = "ducklake/"
_ALIKE = 0.8


def refuse_misspelt(what: str, given: Iterable[str], *, of_input: bool = False) -> None:
    """Refuse metadata that are meant as settings but are not.

    Refused are names that begin with `ducklake/` (the prefix of metadata in events), misspelt names of settings with
    several words, and settings of outputs on an input. All other metadata belong to the user.

    Args:
        what: The asset, output or input that has the metadata, for the message.
        given: The names of the metadata.
        of_input: Whether the metadata are those of an input.

    Raises:
        ConfigError: Names the first refused one and the nearest setting.
    """
    known: Sequence[str] = (*OF_INPUTS, *_NAMES) if of_input else OF_OUTPUTS
    for name in given:
        if name in known:
            continue
        word = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) or _is_nearly(word, known) or (of_input and word in OF_OUTPUTS):
            remedy = nearest(word, known)
            raise ConfigError(f"{what}: the metadata have `{name}`, which is no setting.", remedy=remedy)


def _is_nearly(name: str, known: Iterable[str]) -> bool:
    """Return whether a name is a misspelt setting. Names of one word are often the user's own, so they pass."""
    long = [one for one in known if "_" in one or one in OF_INPUTS]
    return bool(difflib.get_close_matches(name.lower().replace("-", "_"), long, n=1, cutoff=_ALIKE))


def snapshot_of(said: Mapping[str, Any]) -> int | None:
    """Return the snapshot that an input reads; None for the latest.

    Raises:
        ConfigError: If it is not a number.
    """
    snapshot = said.get("snapshot")
    if snapshot is None or (isinstance(snapshot, int) and not isinstance(snapshot, bool)):
        return snapshot
    raise ConfigError(f"`snapshot` = {snapshot!r} is not a snapshot id.", remedy="Give a number.")
