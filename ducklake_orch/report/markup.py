"""HTML and SVG from text that nobody trusts: whatever a table is named, it stays text."""

from collections.abc import Sequence
from html import escape
from typing import Any


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """Return a value as HTML: markup as it is, all else escaped."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def tag(name: str, *inside: Any, **attributes: Any) -> Markup:
    """Return an element; `class_` is its class, `data_sort` becomes `data-sort`, and what is None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(text, inside))}</{name}>")


def sparkline(values: Sequence[int], label: str) -> Markup:
    """Return a line of how a figure grew."""
    top, last = max([*values, 1]), max(len(values) - 1, 1)
    points = " ".join(f"{100 * place / last:.1f},{22 - 20 * value / top:.1f}" for place, value in enumerate(values))
    line = Markup(f'<polyline points="{points}"/>')
    area = Markup(f'<polygon points="0,23 {points} 100,23"/>')
    return tag("svg", area, line, class_="spark", viewBox="0 0 100 24", role="img", aria_label=label)


def stacked_bars(bars: Sequence[Sequence[tuple[str, int]]], labels: Sequence[str], about: str) -> Markup:
    """Return bars of counts by kind, one on top of the other.

    Args:
        bars: The counts of each, by the class that colours it.
        labels: What each bar is about.
        about: What the picture is about.
    """
    top = max([sum(count for _, count in bar) for bar in bars] or [0]) or 1
    width = 960 / max(len(bars), 1)
    drawn = []
    for place, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        high, parts = 0.0, []
        for kind, count in bar:
            if count:
                size = max(110 * count / top, 1.5)
                high += size
                shape = f'x="{place * width + 1:.1f}" y="{118 - high:.1f}" width="{width - 2:.1f}" height="{size:.1f}"'
                parts.append(Markup(f'<rect class="{escape(kind)}" {shape}/>'))
        told = ", ".join(f"{count} {kind}" for kind, count in bar if count) or "nothing"
        drawn.append(tag("g", tag("title", f"{label}: {told}"), *parts))
    base = Markup('<line x1="0" x2="960" y1="119" y2="119"/>')
    return tag("svg", *drawn, base, class_="bars", viewBox="0 0 960 120", role="img", aria_label=about)
