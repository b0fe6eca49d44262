"""The time window of a partition key, computed from its text."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.key_text import is_moment, key_of_text, key_of_time

BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "unit", "start", "end"),
    [
        ("2024", None, "2024-01-01T00:00", "2025-01-01T00:00"),
        ("2024-12", None, "2024-12-01T00:00", "2025-01-01T00:00"),
        ("2024-W01", None, "2024-01-01T00:00", "2024-01-08T00:00"),
        ("2024-02-29", None, "2024-02-29T00:00", "2024-03-01T00:00"),
        ("2024-02-29T23", None, "2024-02-29T23:00", "2024-03-01T00:00"),
        ("2024-02-29", "month", "2024-02-29T00:00", "2024-03-29T00:00"),
        ("2024-02-29T06:00:00", "day", "2024-02-29T06:00", "2024-03-01T06:00"),
        ("2024-02-29T06:00:00", "90 minutes", "2024-02-29T06:00", "2024-02-29T07:30"),
        ("2024-02-29T06:00:00+02:00", "hour", "2024-02-29T04:00", "2024-02-29T05:00"),
    ],
)
def test_the_duration_of_a_key_follows_the_precision_of_its_text_or_the_argument(
    text: str, unit: str | None, start: str, end: str
) -> None:
    window = key_of_text(text, UTC, unit=unit).window
    assert window is not None
    assert [time.isoformat(timespec="minutes").removesuffix("+00:00") for time in window] == [start, end]


@pytest.mark.parametrize(("day", "hours"), [("2024-03-31", 23), ("2024-10-27", 25), ("2024-06-01", 24)])
def test_days_follow_the_time_zone(day: str, hours: int) -> None:
    window = key_of_text(day, BERLIN).window
    assert window is not None
    assert (window.end.astimezone(UTC) - window.start.astimezone(UTC)).total_seconds() == hours * 3600


def test_hours_are_distinct_when_clocks_go_back() -> None:
    window = key_of_text("2024-10-27T02", BERLIN).window
    assert window is not None
    assert (window.end.astimezone(UTC) - window.start.astimezone(UTC)).total_seconds() == 3600


@pytest.mark.parametrize("text", ["eu", "2024-1", "20240101", "2024-01-01T00:00:00", ""])
def test_other_texts_are_not_times(text: str) -> None:
    assert key_of_text(text, UTC).window is None


def test_a_text_with_minutes_has_no_implied_duration() -> None:
    assert is_moment("2024-01-01T00:00:00")
    assert not is_moment("2024-01-01")
    assert not is_moment("eu:west")


@pytest.mark.parametrize(
    ("unit", "text", "start"),
    [
        ("hour", "2024-05-22T15", "2024-05-22T15:00"),
        ("day", "2024-05-22", "2024-05-22T00:00"),
        ("week", "2024-W21", "2024-05-20T00:00"),
        ("month", "2024-05", "2024-05-01T00:00"),
        ("year", "2024", "2024-01-01T00:00"),
    ],
)
def test_a_time_belongs_to_one_interval_of_a_unit(unit: str, text: str, start: str) -> None:
    key = key_of_time(datetime(2024, 5, 22, 13, 45, tzinfo=UTC), BERLIN, unit=unit)
    assert key.text == text
    assert key.window is not None
    assert key.window.start.isoformat(timespec="minutes").startswith(start)
    assert key_of_text(text, BERLIN) == key


def test_an_unknown_unit_of_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean `day`"):
        key_of_text("2024", UTC, unit="dy")
    with pytest.raises(ConfigError, match="does not match the format"):
        key_of_text("2024", UTC, fmt="%Y-%m")
    with pytest.raises(ConfigError, match="is not a unit of time"):
        key_of_time(datetime.now(UTC), UTC, unit="15 minutes")
