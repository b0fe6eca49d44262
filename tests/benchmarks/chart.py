"""Bars of seconds as an SVG that reads in light and in dark."""

from collections.abc import Mapping, Sequence
from html import escape

_COLOURS = ("#2f6fde", "#7aa7f0", "#4bb3a7", "#9a9a9a", "#c98a3a", "#b0566f")
_WIDTH, _LEFT, _BAR, _GAP, _LONGEST = 860, 250, 13, 12, 480
# Whoever takes longer than so many times the first gets a bar that is cut off.
_MOST = 5.0
_STYLE = """<style>text{font:12px system-ui,sans-serif;fill:#1d2330}
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}}</style>"""


def bars(names: Sequence[str], works: Mapping[str, Sequence[float | None]]) -> str:
    """Return a picture: for each work a bar for each name, as long as it takes in terms of the first.

    Args:
        names: Who does the work; the first is what the others are measured by.
        works: Seconds for each of them, None where it was not measured.
    """
    parts, y = [], 34
    for number, name in enumerate(names):
        x = 8 + number * (_WIDTH - 16) // len(names)
        parts.append(f'<rect x="{x}" y="8" width="11" height="11" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{x + 16}" y="18">{escape(name)}</text>')
    for work, seconds in works.items():
        known = [(number, one) for number, one in enumerate(seconds) if one is not None]
        if not known:
            continue
        unit = known[0][1] or 0.01
        middle = y + (len(known) * _BAR) // 2 + 4
        parts.append(f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(work)}</text>')
        for number, one in known:
            times = one / unit
            width = max(1.0, min(times, _MOST) / _MOST * _LONGEST)
            cut = " …" if times > _MOST else ""
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR - 3}" fill="{_colour(number)}"/>'
                f'<text x="{_LEFT + width + 6:.0f}" y="{y + 9}">{one:.2f} s{cut}</text>'
            )
            y += _BAR
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}" role="img">'
        f"{_STYLE}{''.join(parts)}</svg>\n"
    )


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
