"""Conditions for partition keys, evaluated by DuckDB on rows with every kind of column."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import pytest

from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions import (
    Key,
    Slice,
    Window,
    condition,
    multi_key,
    partition_columns,
    partition_transforms,
    split_multi_key,
)
from tests.support.refusals import refused

NEW_YORK = ZoneInfo("America/New_York")
TYPES = {
    "text": "VARCHAR",
    "number": "BIGINT",
    "day": "DATE",
    "wall": "TIMESTAMP",
    "at": "TIMESTAMP WITH TIME ZONE",
    'it\'s "odd"': "VARCHAR",
    "price": "DOUBLE",
}


def condition_of(part: Slice, expression: object) -> str:
    return condition(part, partition_columns("Asset `a`", part.dimensions, expression, TYPES))


def matching(where: str, rows: Sequence[Mapping[str, Any]]) -> list[bool]:
    """Return for each row whether it meets a condition, evaluated by DuckDB."""
    columns = [(f'"{name.replace(chr(34), chr(34) * 2)}"', name, kind) for name, kind in TYPES.items()]
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        con.execute(f"CREATE TABLE t (n BIGINT, {', '.join(f'{quoted} {kind}' for quoted, _, kind in columns)})")
        places = ", ".join("?" for _ in range(len(columns) + 1))
        con.executemany(
            f"INSERT INTO t VALUES ({places})",
            [[n, *(row.get(name) for _, name, _ in columns)] for n, row in enumerate(rows)],
        )
        return [met for (met,) in con.execute(f"SELECT ({where}) IS TRUE FROM t ORDER BY n").fetchall()]


def kept(where: str, column: str, values: Iterable[Any]) -> list[Any]:
    rows = [{column: value} for value in values]
    return [row[column] for row, met in zip(rows, matching(where, rows), strict=True) if met]


def hours(zone: Any, day: datetime) -> list[Window]:
    """Return the hours of a day in a zone as time windows, one per elapsed hour."""
    start, end = (
        day.replace(tzinfo=zone).astimezone(UTC),
        (day + timedelta(days=1)).replace(tzinfo=zone).astimezone(UTC),
    )
    steps = range(int((end - start) / timedelta(hours=1)))
    return [
        Window((start + timedelta(hours=n)).astimezone(zone), (start + timedelta(hours=n + 1)).astimezone(zone))
        for n in steps
    ]


def days(zone: Any, first: datetime, count: int = 1) -> list[Key]:
    starts = [first + timedelta(days=n) for n in range(count + 1)]
    return [
        Key(f"{start:%Y-%m-%d}", Window(start.replace(tzinfo=zone), end.replace(tzinfo=zone)))
        for start, end in pairwise(starts)
    ]


def test_static_keys_select_their_rows_in_text_and_number_columns() -> None:
    assert kept(condition_of(Slice.of([Key("eu")]), "text"), "text", ["eu", "us", None]) == ["eu"]
    two = Slice.of([Key("2"), Key("10")])
    assert kept(condition_of(two, "number"), "number", [1, 2, 10]) == [2, 10]


@pytest.mark.parametrize("key", ["it's", "'; drop table x; --", "", "ü|ü"])
def test_keys_and_columns_with_special_characters_are_quoted(key: str) -> None:
    where = condition_of(Slice.of([Key(key)]), 'it\'s "odd"')
    assert kept(where, 'it\'s "odd"', [key, "other"]) == [key]


def test_static_keys_select_dates_and_times() -> None:
    part = Slice.of([Key("2024-01-02")])
    assert kept(condition_of(part, "day"), "day", ["2024-01-01", "2024-01-02"]) == ["2024-01-02"]
    assert kept(condition_of(part, "wall"), "wall", ["2024-01-02 00:00:00", "2024-01-02 01:00:00"]) == [
        "2024-01-02 00:00:00"
    ]
    assert kept(condition_of(part, "at"), "at", ["2024-01-02 00:00:00Z", "2024-01-02 01:00:00Z"]) == [
        "2024-01-02 00:00:00Z"
    ]


def test_a_day_starts_and_ends_at_midnight_of_its_time_zone() -> None:
    part = Slice.of(days(NEW_YORK, datetime(2024, 1, 2)))
    inside = ["2024-01-02 05:00:00Z", "2024-01-03 04:59:59.999999Z"]
    instants = ["2024-01-02 04:59:59.999999Z", *inside, "2024-01-03 05:00:00Z"]
    assert kept(condition_of(part, "at"), "at", instants) == inside
    walls = ["2024-01-01 23:59:59.999999", "2024-01-02", "2024-01-02 23:59:59.999999", "2024-01-03"]
    assert kept(condition_of(part, "wall"), "wall", walls) == walls[1:3]
    dates = ["2024-01-01", "2024-01-02", "2024-01-03"]
    for column in ("day", "text"):
        assert kept(condition_of(part, column), column, dates) == ["2024-01-02"]


@pytest.mark.parametrize(("day", "count"), [(datetime(2024, 3, 10), 23), (datetime(2024, 11, 3), 25)])
def test_each_hour_of_a_day_with_a_clock_change_selects_its_own_rows(day: datetime, count: int) -> None:
    windows = hours(NEW_YORK, day)
    assert len(windows) == count
    rows = [f"{window.start.astimezone(UTC) + timedelta(minutes=30):%Y-%m-%d %H:%M:%S}Z" for window in windows]
    for row, window in zip(rows, windows, strict=True):
        assert kept(condition_of(Slice.of([Key("k", window)]), "at"), "at", rows) == [row]


def test_a_repeated_hour_is_ambiguous_for_timestamps_without_zone() -> None:
    windows = hours(NEW_YORK, datetime(2024, 11, 3))
    unclear = [window for window in windows if window.start.hour == 1]
    assert len(unclear) == 2
    for window in unclear:
        refused(ConfigError, partial(condition_of, Slice.of([Key("k", window)]), "wall"), "occurs twice")
    for window in windows[:1] + windows[3:]:
        condition_of(Slice.of([Key("k", window)]), "wall")
    both = Slice.of([Key(str(n), window) for n, window in enumerate(unclear)])
    walls = ["2024-11-03 00:59:00", "2024-11-03 01:00:00", "2024-11-03 01:59:00", "2024-11-03 02:00:00"]
    assert kept(condition_of(both, "wall"), "wall", walls) == walls[1:3]


def test_adjacent_days_are_one_range_and_gaps_are_excluded() -> None:
    first, second, _, fourth = days(NEW_YORK, datetime(2024, 3, 9), 4)
    where = condition_of(Slice.of([fourth, first, second]), "day")
    assert where.count(">=") == 2
    dates = [f"2024-03-{day:02}" for day in range(8, 14)]
    assert kept(where, "day", dates) == ["2024-03-09", "2024-03-10", "2024-03-12"]


def test_a_month_selects_all_its_days() -> None:
    zone = ZoneInfo("Europe/Berlin")
    window = Window(datetime(2024, 2, 1, tzinfo=zone), datetime(2024, 3, 1, tzinfo=zone))
    where = condition_of(Slice.of([Key("2024-02-01", window)]), "day")
    assert kept(where, "day", ["2024-01-31", "2024-02-01", "2024-02-29", "2024-03-01"]) == ["2024-02-01", "2024-02-29"]


def test_a_date_column_cannot_select_hours() -> None:
    part = Slice.of([Key("k", hours(UTC, datetime(2024, 1, 1))[0])])
    refused(ConfigError, lambda: condition_of(part, "day"), "A date cannot distinguish", "column with the time")
    many = Slice.of([Key(str(n), window) for n, window in enumerate(hours(UTC, datetime(2024, 1, 1)))])
    refused(ConfigError, lambda: condition_of(many, "day"), "A date cannot distinguish")


def test_time_windows_on_an_integer_column_need_integer_keys() -> None:
    window = days(UTC, datetime(2024, 1, 2))[0].window
    where = condition_of(Slice.of([Key("20240102", window)]), "number")
    assert kept(where, "number", [20240101, 20240102]) == [20240102]
    refused(ConfigError, lambda: condition_of(Slice.of([Key("2024-01-02", window)]), "number"), "integer", "%Y%m%d")


def test_an_expression_computes_keys_from_columns() -> None:
    part = Slice.of(days(UTC, datetime(2024, 1, 2)))
    where = condition_of(part, "CAST(text AS DATE)")
    assert kept(where, "text", ["2024-01-02", "2024-01-03"]) == ["2024-01-02"]
    where = condition_of(Slice.of(days(NEW_YORK, datetime(2024, 1, 2))), "wall AT TIME ZONE 'UTC'")
    assert kept(where, "wall", ["2024-01-02 04:00:00", "2024-01-02 05:00:00"]) == ["2024-01-02 05:00:00"]


def test_several_dimensions_select_exactly_the_given_cells() -> None:
    first, second = days(UTC, datetime(2024, 1, 1), 2)
    cells = [
        {"region": Key("eu"), "day": first},
        {"region": Key("us"), "day": first},
        {"region": Key("us"), "day": second},
    ]
    where = condition_of(Slice.of_many(["region", "day"], cells), {"region": "text", "day": "day"})
    rows = [{"text": region, "day": day} for region in ("eu", "us", "asia") for day in ("2024-01-01", "2024-01-02")]
    assert [(row["text"], row["day"]) for row, met in zip(rows, matching(where, rows), strict=True) if met] == [
        ("eu", "2024-01-01"),
        ("us", "2024-01-01"),
        ("us", "2024-01-02"),
    ]


def test_a_whole_grid_is_one_short_condition() -> None:
    cells = [{"r": Key(str(n)), "d": day} for n in range(20) for day in days(UTC, datetime(2024, 1, 1), 60)]
    assert len(condition_of(Slice.of_many(["r", "d"], cells), {"r": "text", "d": "day"})) < 250


def test_an_empty_slice_selects_no_rows() -> None:
    assert condition_of(Slice.of([]), "text") == "false"


def test_keys_of_several_dimensions_have_one_order() -> None:
    assert multi_key({"region": "eu", "day": "2024-01-01"}) == "2024-01-01|eu"
    assert split_multi_key("2024-01-01|eu", ["region", "day"]) == {"region": "eu", "day": "2024-01-01"}
    refused(ConfigError, lambda: split_multi_key("eu", ["region", "day"]), "`day|region`")
    refused(ConfigError, lambda: multi_key({"region": "e|u"}), "separates keys")
    day = days(UTC, datetime(2024, 1, 1))[0]
    part = Slice.of_many(["region", "day"], [{"region": Key("us"), "day": day}, {"day": day, "region": Key("eu")}])
    assert part.texts == ["2024-01-01|eu", "2024-01-01|us"] == [key for key, _ in part.each()]


@pytest.mark.parametrize(
    ("dimensions", "given", "line"),
    [
        ([""], None, '"partition_expr": "<column>"'),
        ([""], {"day": "day"}, '"partition_expr": "<column>"'),
        (["day", "region"], None, '"partition_expr": {"day": "<column>", "region": "<column>"}'),
        (["day", "region"], {"day": "day"}, '"region": "<column>"'),
        (["day", "region"], "day", '"region": "<column>"'),
    ],
)
def test_the_error_for_a_missing_column_shows_the_line_to_add(dimensions: list[str], given: object, line: str) -> None:
    refused(ConfigError, lambda: partition_columns("Asset `a/b`", dimensions, given, TYPES), "Asset `a/b`", line)


def test_columns_that_cannot_hold_keys_are_refused() -> None:
    refused(ConfigError, lambda: partition_columns("Asset `a`", [""], "price", TYPES), "DOUBLE", "CAST")
    refused(ConfigError, lambda: partition_columns("Asset `a`", [""], "dya", TYPES), "dya", "text, number, day")


def span(first: tuple[int, int, int], after: tuple[int, int, int]) -> Key:
    window = Window(datetime(*first, tzinfo=UTC), datetime(*after, tzinfo=UTC))
    return Key(str(window.start.date()), window)


@pytest.mark.parametrize(
    ("part", "expression", "keys"),
    [
        (Slice.of([Key("eu")]), "TEXT", ['"text"']),
        (Slice.of(days(UTC, datetime(2024, 1, 1))), "day", ['"day"']),
        (Slice.of(days(UTC, datetime(2024, 1, 1))), "at", ['year("at")', 'month("at")', 'day("at")']),
        (
            Slice.of([Key("k", hours(UTC, datetime(2024, 1, 1))[0])]),
            "wall",
            ['year("wall")', 'month("wall")', 'day("wall")', 'hour("wall")'],
        ),
        (Slice.of(days(UTC, datetime(2024, 1, 1))), "CAST(text AS DATE)", None),
        (Slice.of([span((2024, 2, 1), (2024, 3, 1))]), "day", ['year("day")', 'month("day")']),
        (Slice.of([span((2024, 1, 1), (2024, 4, 1))]), "day", ['year("day")', 'month("day")']),
        (Slice.of([span((2024, 1, 1), (2025, 1, 1))]), "day", ['year("day")']),
        (Slice.of([span((2024, 4, 1), (2025, 4, 1))]), "day", ['year("day")', 'month("day")']),
        (Slice.of([span((2024, 4, 15), (2024, 5, 15))]), "day", ['"day"']),
        (Slice.of([span((2024, 4, 1), (2024, 4, 8))]), "day", ['"day"']),
        (Slice.of([span((2024, 4, 1), (2024, 5, 1)), span((2024, 5, 1), (2024, 5, 2))]), "day", ['"day"']),
        (Slice.of([Key("2024-01-01")]), "at", None),
    ],
)
def test_a_new_table_is_partitioned_along_its_slices(part: Slice, expression: str, keys: list[str] | None) -> None:
    columns = partition_columns("Asset `a`", part.dimensions, expression, TYPES)
    assert partition_transforms(part, columns) == keys
