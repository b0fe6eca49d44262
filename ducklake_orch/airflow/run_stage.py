"""The stages of tasks. A cleared run stages anew after its stage was published, so one name means several stages."""

import re
from datetime import timedelta

from ducklake_orch.facade.stage import Stage
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import StageInfo


def open_stage(lake: DuckLake, name: str, ttl: str | timedelta = "7 days", author: str | None = None) -> Stage:
    """Return the stage that tasks add to: the last one of a name, or a new one if that is published.

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


def last_stage(lake: DuckLake, name: str) -> StageInfo | None:
    """Return the last stage of a name, whatever its status; None if there is none."""
    found = [stage for stage in lake.stages() if _number(stage.name, name)]
    return max(found, key=lambda stage: _number(stage.name, name), default=None)


def _number(stage: str, name: str) -> int:
    """Return which stage of a name a stage is: 1, 2, and so on; 0 if it has another name."""
    match = re.fullmatch(re.escape(name) + r"(?: \((\d+)\))?", stage)
    return 0 if match is None else int(match[1] or 1)
