"""The stages of tasks. A cleared run stages anew after its stage was published, so one name means several stages."""

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from ducklake_orch.catalog.commit import snapshot_of_key
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import ConfigError, ObjectNotFoundError, TransactionClosedError
from ducklake_orch.facade.stage import Stage
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import StageInfo

# In a reference to staged rows: the stage, its id, and the key that the rows are recorded by.
STAGE, STAGE_ID, KEY = "stage", "stage_id", "idempotency_key"


def begun_stage(lake: DuckLake, name: str, ttl: str | timedelta, author: str | None = None) -> Stage:
    """Return the stage that tasks add to: the last one of a name, or a new one if that is published.

    A task chooses its stage when it begins, so that an attempt that outlives the publication cannot stage any more.

    Args:
        lake: The lake.
        name: The name; further stages of that name are called `<name> (2)` and so on.
        ttl: How long a new stage is kept.
        author: Who creates it.
    """
    last = last_stage(lake, name)
    if last is not None and last.status == "published":
        return lake.stage(f"{name} ({_number(last.name, name) + 1})", ttl=ttl, author=author)
    return lake.stage(last.name if last is not None else name, ttl=ttl, author=author)


def existing_stage(lake: DuckLake, name: str) -> StageInfo:
    """Return the last stage of a name, open or published.

    Raises:
        ObjectNotFoundError: When nothing is staged by that name.
        TransactionClosedError: When the time of the stage is over.
    """
    if (last := last_stage(lake, name)) is None:
        raise ObjectNotFoundError(
            f"Nothing is staged as `{name}`.",
            remedy="Clear the writing tasks with their downstream tasks, so that they stage again.",
        )
    if last.status == "expired":
        raise TransactionClosedError(
            f"The stage `{last.name}` ended at {last.expires:%Y-%m-%d %H:%M:%S} UTC.",
            remedy="Clear the writing tasks with their downstream tasks, so that they stage again.",
        )
    return last


def last_stage(lake: DuckLake, name: str) -> StageInfo | None:
    """Return the last stage of a name, whatever its status; None if there is none."""
    if "{{" in name:
        raise ConfigError(f"The name of the stage, {name!r}, was not rendered.", remedy="Give the name itself.")
    found = [stage for stage in lake.stages() if _number(stage.name, name)]
    return max(found, key=lambda stage: _number(stage.name, name), default=None)


def refuse_scattered(lake: DuckLake, stage: StageInfo, name: str, references: Iterable[Mapping[str, Any]]) -> None:
    """Refuse to publish a stage without rows that other tasks of the run staged in one that is gone.

    Rows of an earlier publication of the run are in the lake, where their key tells it.

    Args:
        lake: The lake.
        stage: The stage.
        name: The name that the tasks gave it.
        references: The references that the writing tasks returned.
    """
    for reference in references:
        if reference.get(STAGE_ID) in (None, stage.stage_id) or not _number(str(reference[STAGE]), name):
            continue
        table, key = str(reference["table"]), reference.get(KEY)
        if key is not None and snapshot_of_key(lake.reading(entering=False), table_name(table), key) is None:
            raise TransactionClosedError(
                f"Rows of `{table}` were staged in `{reference[STAGE]}`, which was discarded or has ended, and are not"
                f" in `{stage.name}`.",
                remedy="Clear all writing tasks with their downstream tasks, so that they stage again.",
            )


def _number(stage: str, name: str) -> int:
    """Return which stage of a name a stage is: 1, 2, and so on; 0 if it has another name."""
    match = re.fullmatch(re.escape(name) + r"(?: \((\d+)\))?", stage)
    return 0 if match is None else int(match[1] or 1)
