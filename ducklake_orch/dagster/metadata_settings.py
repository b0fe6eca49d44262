"""The settings that users give in the metadata of outputs and inputs."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import dagster as dg

from ducklake_orch.catalog.verbs import MODES
from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError

# Settings that are arguments of `DuckLake.write`, mapped to their names there.
WRITE_OPTIONS = {
    "merge_keys": "keys",
    "merge_strategy": "strategy",
    "when_matched": "when_matched",
    "matched_condition": "matched_condition",
    "delete_condition": "delete_condition",
    "when_not_matched": "when_not_matched",
    "when_not_matched_by_source": "when_not_matched_by_source",
    "merge_key": "merge_key",
    "valid_from": "valid_from",
    "valid_to": "valid_to",
    "boundary": "boundary",
    "active": "active",
    "row_hash": "row_hash",
    "retire_absent": "retire_absent",
    "hard_delete": "hard_delete",
    "deduplicate_by": "deduplicate_by",
    "null_keys": "null_keys",
    "outside": "outside",
    "partition_by": "partition_by",
    "schema_evolution": "schema_evolution",
    "sort_by": "sort_by",
}
OUTPUT_SETTINGS = (
    *WRITE_OPTIONS,
    "comment",
    "commit_author",
    "commit_message",
    "partition_expr",
    "preview",
    "renamed_from",
    "schema",
    "table",
    "table_options",
    "where",
    "write_mode",
)
INPUT_SETTINGS = ("as_of", "columns", "snapshot", "tag", "where")
# An input without an upstream output names its table itself.
_TABLE_SETTINGS = ("schema", "table")
_PREFIX = "ducklake/"
_SIMILARITY = 0.8


def settings_in(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as plain values: without Dagster's `MetadataValue`, and settings without `ducklake/`.

    Raises:
        ConfigError: If a setting is given both with and without `ducklake/`.
    """
    settings: dict[str, Any] = {}
    for name, value in metadata.items():
        word = name.removeprefix(_PREFIX)
        is_setting = word in OUTPUT_SETTINGS or word in INPUT_SETTINGS
        if word != name and is_setting and word in metadata:
            raise ConfigError(f"The metadata have both `{word}` and `{name}`.", remedy="Remove one of them.")
        settings[word if is_setting else name] = _plain(value)
    return settings


def _plain(value: Any) -> Any:
    if isinstance(value, dg.TimestampMetadataValue):
        return datetime.fromtimestamp(value.value, UTC)
    return value.value if isinstance(value, dg.MetadataValue) else value


def refuse_misspelt(what: str, given: Mapping[str, Any], *, of_input: bool = False) -> None:
    """Refuse metadata that are meant as settings but are not.

    Refused are unknown names that begin with `ducklake/`, misspelt names of settings with several words, settings
    of outputs on an input, and unknown write modes. All other metadata belong to the user.

    Args:
        what: The asset, output or input that has the metadata, for the message.
        given: The metadata, as `settings_in` returns them.
        of_input: Whether the metadata are those of an input.

    Raises:
        ConfigError: Names the first refused one and the nearest setting.
    """
    known: Sequence[str] = (*INPUT_SETTINGS, *_TABLE_SETTINGS) if of_input else OUTPUT_SETTINGS
    for name in given:
        if name in known:
            continue
        word = name.removeprefix(_PREFIX)
        if name.startswith(_PREFIX) or _is_nearly(word, known) or (of_input and word in OUTPUT_SETTINGS):
            remedy = nearest(word, known)
            raise ConfigError(f"{what}: `{name}` in the metadata is not a setting.", remedy=remedy)
    if not of_input and (mode := given.get("write_mode", "overwrite")) not in MODES:
        raise ConfigError(f"{what}: `write_mode` = {mode!r} is unknown.", remedy=nearest(str(mode), MODES))


def _is_nearly(name: str, known: Iterable[str]) -> bool:
    """Return whether a name is a misspelt setting. Names of one word are often the user's own, so they pass."""
    candidates = [setting for setting in known if "_" in setting or setting in ("columns", "snapshot")]
    return bool(difflib.get_close_matches(name.lower().replace("-", "_"), candidates, n=1, cutoff=_SIMILARITY))
