"""Generate HTML and SVG from untrusted text: every name of a table is escaped."""

from collections.abc import Sequence
from html import escape
from typing import Any


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def text(value: Any) -> Markup:
    """Return a value as HTML: markup unchanged, everything else escaped."""
    return value if isinstance(value, Markup) else Markup(escape(str(value)))


def tag(name: str, *inside: Any, **attributes: Any) -> Markup:
    """Return an element; `class_` sets its class, `data_sort` becomes `data-sort`, and None values are left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{''.join(map(text, inside))}</{name}>")


def sparkline(values: Sequence[int], label: str) -> Markup:
    """Return a small line chart of a figure."""
    top, last = max([*values, 1]), max(len(values) - 1, 1)
    points = " ".join(f"{100 * index / last:.1f},{22 - 20 * value / top:.1f}" for index, value in enumerate(values))
    line = Markup(f'<polyline points="{points}"/>')
    area = Markup(f'<polygon points="0,23 {points} 100,23"/>')
    return tag("svg", area, line, class_="spark", viewBox="0 0 100 24", role="img", aria_label=label)


def stacked_bars(bars: Sequence[Sequence[tuple[str, int]]], labels: Sequence[str], about: str) -> Markup:
    """Return a chart of stacked bars of counts by kind.

    Args:
        bars: The counts of each bar, by the CSS class that colours them.
        labels: The title of each bar.
        about: The title of the chart.
    """
    top = max([sum(count for _, count in bar) for bar in bars] or [0]) or 1
    width = 960 / max(len(bars), 1)
    groups = []
    for index, (bar, label) in enumerate(zip(bars, labels, strict=True)):
        high, parts = 0.0, []
        for kind, count in bar:
            if count:
                size = max(110 * count / top, 1.5)
                high += size
                shape = f'x="{index * width + 1:.1f}" y="{118 - high:.1f}" width="{width - 2:.1f}" height="{size:.1f}"'
                parts.append(Markup(f'<rect class="{escape(kind)}" {shape}/>'))
        counts = ", ".join(f"{count} {kind}" for kind, count in bar if count) or "nothing"
        groups.append(tag("g", tag("title", f"{label}: {counts}"), *parts))
    base = Markup('<line x1="0" x2="960" y1="119" y2="119"/>')
    return tag("svg", *groups, base, class_="bars", viewBox="0 0 960 120", role="img", aria_label=about)


def area_chart(values: Sequence[int], about: str, labels: Sequence[str]) -> Markup:
    """Return a chart of a figure over time.

    Args:
        values: The figure at equal intervals.
        about: The title of the chart.
        labels: The highest value, and the first and the last moment, in words.
    """
    top, last = max([*values, 1]), max(len(values) - 1, 1)
    points = " ".join(f"{960 * index / last:.1f},{118 - 112 * value / top:.1f}" for index, value in enumerate(values))
    line, area = Markup(f'<polyline points="{points}"/>'), Markup(f'<polygon points="0,119 {points} 960,119"/>')
    # The chart is stretched to the width of the page; text inside it would be stretched, too.
    chart = tag("svg", area, line, viewBox="0 0 960 120", preserveAspectRatio="none", role="img", aria_label=about)
    high, first, end = labels
    return tag("figure", tag("span", high, class_="high"), chart, tag("span", first), tag("span", end), class_="area")


def shares(parts: Sequence[tuple[str, int]]) -> Markup:
    """Return a bar that is divided by sizes; the CSS class of each part colours it."""
    pieces = (tag("i", class_=name, style=f"flex-grow: {size}") for name, size in parts)
    return tag("div", *pieces, class_="shares")
