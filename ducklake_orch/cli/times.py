"""Options and parsers for times and durations."""

from datetime import datetime
from typing import Annotated

import typer

SnapshotId = Annotated[int | None, typer.Option(min=0, help="See the lake as of this snapshot.", show_default=False)]
AsOf = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="See the lake as of this ISO 8601 time with its zone.", show_default=False),
]
TagName = Annotated[
    str | None, typer.Option("--tag", help="See the lake as of the snapshot with this name.", show_default=False)
]
TimeLimit = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Limit for all commands together: `90`, `5m`.", show_default=False),
]


def zoned_time(text: str | None) -> datetime | None:
    """Parse `--as-of`. The lake checks that the time has a zone."""
    if text is None:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"`{text}` is not an ISO 8601 time such as 2025-01-31T08:00:00+00:00.") from None


def seconds(text: str | None) -> float | None:
    """Parse `--timeout`."""
    from ducklake_orch.config.units import parse_duration

    if text is None:
        return None
    try:
        return parse_duration(text).total_seconds()
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None
