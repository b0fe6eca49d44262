"""Bar charts of seconds as SVG, for light and dark backgrounds."""

from collections.abc import Mapping, Sequence
from html import escape

_COLOURS = ("#2f6fde", "#7aa7f0", "#4bb3a7", "#9a9a9a", "#c98a3a", "#b0566f")
_WIDTH, _LEFT, _BAR, _GAP, _LONGEST = 860, 250, 13, 12, 480
# A bar for more than this multiple of the first is cut off.
_MOST = 5.0
_STYLE = """<style>text{font:12px system-ui,sans-serif;fill:#1d2330}
@media(prefers-color-scheme:dark){text{fill:#e6e9ef}}</style>"""


def bars(names: Sequence[str], works: Mapping[str, Sequence[float | None]]) -> str:
    """Return a chart with one bar per operation and name, scaled to the first name.

    Args:
        names: The compared systems. The first one sets the scale.
        works: The seconds of each system by operation, None if not measured.
    """
    parts, y = [], 34
    for number, name in enumerate(names):
        x = 8 + number * (_WIDTH - 16) // len(names)
        parts.append(f'<rect x="{x}" y="8" width="11" height="11" fill="{_colour(number)}"/>')
        parts.append(f'<text x="{x + 16}" y="18">{escape(name)}</text>')
    for work, seconds in works.items():
        measured = [
            (number, seconds_taken) for number, seconds_taken in enumerate(seconds) if seconds_taken is not None
        ]
        if not measured:
            continue
        unit = measured[0][1] or 0.01
        middle = y + (len(measured) * _BAR) // 2 + 4
        parts.append(f'<text x="{_LEFT - 8}" y="{middle}" text-anchor="end">{escape(work)}</text>')
        for number, seconds_taken in measured:
            times = seconds_taken / unit
            width = max(1.0, min(times, _MOST) / _MOST * _LONGEST)
            cut = " …" if times > _MOST else ""
            parts.append(
                f'<rect x="{_LEFT}" y="{y}" width="{width:.0f}" height="{_BAR - 3}" fill="{_colour(number)}"/>'
                f'<text x="{_LEFT + width + 6:.0f}" y="{y + 9}">{seconds_taken:.2f} s{cut}</text>'
            )
            y += _BAR
        y += _GAP
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y}" width="{_WIDTH}" height="{y}" role="img">'
        f"{_STYLE}{''.join(parts)}</svg>\n"
    )


def _colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]
