"""Durations and sizes are parsed from text."""

from datetime import timedelta
from typing import Any

import pytest

from ducklake_orch.config.units import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "duration"),
    [
        ("7 days", timedelta(days=7)),
        ("1 day", timedelta(days=1)),
        ("36h", timedelta(hours=36)),
        ("PT36H", timedelta(hours=36)),
        ("pt1h30m", timedelta(minutes=90)),
        ("P1DT12H", timedelta(hours=36)),
        ("1h 30m", timedelta(minutes=90)),
        ("90s", timedelta(seconds=90)),
        ("250 ms", timedelta(milliseconds=250)),
        ("2 weeks", timedelta(weeks=2)),
        ("10 MINUTES", timedelta(minutes=10)),
        ("0s", timedelta(0)),
        ("1.5 hours", timedelta(minutes=90)),
        ("90", timedelta(seconds=90)),
        (90, timedelta(seconds=90)),
        (0.5, timedelta(milliseconds=500)),
        (timedelta(days=2), timedelta(days=2)),
    ],
)
def test_durations_are_parsed(text: Any, duration: timedelta) -> None:
    assert parse_duration(text) == duration


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "soon",
        "7 dayz",
        "days",
        "-1h",
        -1,
        True,
        None,
        "P",
        "Pxyz",
        "1h,",
        [],
        "nan",
        float("nan"),
        float("inf"),
        "999999999 weeks",
    ],
)
def test_an_invalid_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a|is negative"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512 MiB", 512 * 1024**2),
        ("2GB", 2 * 1000**3),
        ("1.5GB", 1_500_000_000),
        ("1 TiB", 1024**4),
        ("100 bytes", 100),
        ("64k", 64_000),
        ("64KiB", 65_536),
        ("1024", 1024),
        ("0", 0),
        (1024, 1024),
    ],
)
def test_sizes_are_parsed(text: Any, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "big", "1 QB", "1GB 2MB", "-1", -1, True, None, 1.5, "50%"])
def test_an_invalid_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"is not a size|is negative"):
        parse_size(text)


def test_a_size_beyond_all_numbers_is_refused() -> None:
    with pytest.raises(ValueError, match="is too large"):
        parse_size("9" * 400 + " GB")
