"""Parses the time window that a partition key stands for, for hosts that have only the key's text."""

import re
from datetime import UTC, datetime, timedelta, tzinfo

from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.units import parse_duration
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.slice_model import Key, Window

UNITS = ("year", "month", "week", "day", "hour")
_SHAPES = {
    "year": (re.compile(r"\d{4}"), "%Y"),
    "month": (re.compile(r"\d{4}-\d\d"), "%Y-%m"),
    "week": (re.compile(r"\d{4}-W\d\d"), "%G-W%V-%u"),
    "day": (re.compile(r"\d{4}-\d\d-\d\d"), "%Y-%m-%d"),
    "hour": (re.compile(r"\d{4}-\d\d-\d\dT\d\d"), "%Y-%m-%dT%H"),
}


def key_of_text(text: str, zone: tzinfo, *, unit: str | None = None, fmt: str | None = None) -> Key:
    """Return a key with its time window, if its text is a time.

    Args:
        text: The key: `2024`, `2024-05`, `2024-W21`, `2024-05-20`, `2024-05-20T06` or any other text.
        zone: The zone of the time if the text has none.
        unit: The length of the window: `year`, `month`, `week`, `day`, `hour` or a duration (`15 minutes`). The default
            is the precision of the text. A text with minutes has no default, so its key has no window.
        fmt: The format of the text for `strptime`; `unit` is then `day` by default.
    """
    _check_unit(unit)
    if fmt is not None:
        return Key(text, _window_from(_parsed(text, fmt, zone), unit or "day"))
    for shape, (pattern, shape_fmt) in _SHAPES.items():
        if pattern.fullmatch(text):
            start = _parsed(f"{text}-1" if shape == "week" else text, shape_fmt, zone)
            return Key(text, _window_from(start, unit or shape))
    if unit is None:
        return Key(text)
    try:
        return Key(text, _window_from(_in_zone(datetime.fromisoformat(text), zone), unit))
    except ValueError:
        return Key(text)  # a key of another dimension


def key_of_time(time: datetime, zone: tzinfo, *, unit: str, fmt: str | None = None) -> Key:
    """Return the key of the time window that contains a time.

    Args:
        time: The time.
        zone: The zone in which the window begins.
        unit: The length of the window: `year`, `month`, `week`, `day` or `hour`.
        fmt: The format of the key for `strftime`; by default it has the precision of the unit.
    """
    if unit not in UNITS:
        raise ConfigError(f"`{unit}` is not a unit of time.", remedy=nearest(unit, UNITS))
    start = time.astimezone(zone).replace(minute=0, second=0, microsecond=0)
    if unit != "hour":
        start = start.replace(hour=0, fold=0)
    if unit == "week":
        start -= timedelta(days=start.weekday())
    if unit in ("month", "year"):
        start = start.replace(day=1)
    if unit == "year":
        start = start.replace(month=1)
    shape_fmt = fmt or ("%G-W%V" if unit == "week" else _SHAPES[unit][1])
    return Key(start.strftime(shape_fmt), _window_from(start, unit))


def is_moment(text: str) -> bool:
    """Return whether a text is a time with minutes, which does not determine the length of its window."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return ":" in text


def _parsed(text: str, fmt: str, zone: tzinfo) -> datetime:
    try:
        return _in_zone(datetime.strptime(text, fmt), zone)
    except ValueError:
        failure = ConfigError(f"The partition key {text!r} does not match the format {fmt!r}.")
    raise failure


def _in_zone(time: datetime, zone: tzinfo) -> datetime:
    return time.replace(tzinfo=zone) if time.tzinfo is None else time.astimezone(zone)


def _window_from(start: datetime, unit: str) -> Window:
    """Return the window from a time on. Days and longer units follow the wall clock, shorter ones elapsed time."""
    if unit in ("year", "month"):
        months = 12 if unit == "year" else 1
        years, month = divmod(start.month - 1 + months, 12)
        # A day that the target month does not have becomes a day of the month after it.
        first = start.replace(year=start.year + years, month=month + 1, day=1)
        return Window(start, first + timedelta(days=start.day - 1))
    if unit in ("week", "day"):
        return Window(start, start + timedelta(days=7 if unit == "week" else 1))
    elapsed = timedelta(hours=1) if unit == "hour" else parse_duration(unit)
    end = (start.astimezone(UTC) + elapsed).astimezone(start.tzinfo)
    return Window(start, end)


def _check_unit(unit: str | None) -> None:
    if unit is None or unit in UNITS:
        return
    try:
        parse_duration(unit)
        return
    except (ValueError, ConfigError):
        failure = ConfigError(
            f"`{unit}` is not a duration.", remedy=f"{nearest(unit, UNITS)} Or use a duration such as `15 minutes`."
        )
    raise failure
