"""Format figures, times and tables for the report page."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ducklake_orch.config.units import in_bytes
from ducklake_orch.report.markup import Markup, tag, text

_GRADES = {"ok": "healthy", "warn": "warning", "bad": "problem"}


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Markup:
    """Return a table; a narrow screen shows each row as a list of its filled cells."""
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in columns)))
    body = tag("tbody", *(tag("tr", *(_cell(*pair) for pair in zip(columns, row, strict=True))) for row in rows))
    return tag("div", tag("table", head, body, class_="cards"), class_="wide")


def _cell(column: str, value: Any) -> Markup:
    return tag("td", value, data_label=column, class_=None if text(value) else "zero")


def badge(grade: str) -> Markup:
    """Return a grade as a coloured label."""
    return tag("span", _GRADES[grade], class_=f"badge {grade}")


def command(remedy: str) -> Markup:
    """Return text with the parts between backticks as code."""
    parts = remedy.split("`")
    return Markup("".join(tag("code", part) if index % 2 else text(part) for index, part in enumerate(parts)))


def words(name: str) -> str:
    """Return the name of a figure as words."""
    return name.replace("_", " ").replace("mib", "MiB")


def time(moment: datetime) -> str:
    """Return a time to the minute."""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def number(count: int) -> str:
    """Return a count with its thousands apart."""
    return f"{count:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def counted(count: int, thing: str) -> str:
    """Return a count with the name of what is counted."""
    plural = "es" if thing.endswith("s") else "s"
    return f"{number(count)} {thing}{'' if count == 1 else plural}"


def age(seconds: float) -> str:
    """Return a length of time in its largest unit of which there are at least two."""
    for unit, size in (("days", 86400), ("hours", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under a second"


def figure(metric: str, value: float) -> str:
    """Return a figure of the health in the unit that its name implies."""
    if metric.endswith("age"):
        return age(value)
    if metric.endswith("bytes"):
        return in_bytes(int(value))
    return share(value) if metric.endswith(("share", "ratio")) else number(int(value))


def share(value: float) -> str:
    """Return a share in percent."""
    return "under 1%" if 0 < value < 0.005 else f"{value:.0%}"
