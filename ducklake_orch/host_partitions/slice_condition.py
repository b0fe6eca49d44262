"""Builds the condition, in DuckDB's SQL, that exactly the rows of some partitions meet."""

from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta

from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.key_columns import Kind, PartitionColumn
from ducklake_orch.host_partitions.slice_model import Key, Slice, Window

_INSTANT = timedelta(microseconds=1)


def condition(part: Slice, columns: Mapping[str, PartitionColumn]) -> str:
    """Return the condition that the rows of some partitions meet; `false` for no partitions.

    Args:
        part: The partitions.
        columns: The column of each dimension.

    Raises:
        ConfigError: If a column cannot hold such keys.
    """
    return _cells_condition(list(part.dimensions), part.cells, columns) if part.cells else "false"


def conjunction(first: str | None, second: str | None) -> str | None:
    """Return the condition that both of two conditions hold; None stands for a condition that always holds."""
    if first is None or second is None:
        return second if first is None else first
    return f"({first}\n) AND ({second}\n)"  # a condition can end with a comment


def _cells_condition(
    dimensions: list[str], cells: Collection[tuple[Key, ...]], columns: Mapping[str, PartitionColumn]
) -> str:
    """Return a condition in which keys of the first dimension with equal keys of the others share a term."""
    column, rest = columns[dimensions[0]], dimensions[1:]
    if not rest:
        return _keys_condition(column, {cell[0] for cell in cells})
    tails: dict[Key, set[tuple[Key, ...]]] = {}
    for cell in cells:
        tails.setdefault(cell[0], set()).add(cell[1:])
    heads: dict[frozenset[tuple[Key, ...]], list[Key]] = {}
    for key in sorted(tails):
        heads.setdefault(frozenset(tails[key]), []).append(key)
    terms = [
        f"({_keys_condition(column, keys)} AND {_cells_condition(rest, tail, columns)})" for tail, keys in heads.items()
    ]
    return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"


def _keys_condition(column: PartitionColumn, keys: Collection[Key]) -> str:
    windows = [key.window for key in keys if key.window is not None]
    if windows and column.kind in (Kind.DATE, Kind.TIMESTAMP, Kind.INSTANT):
        if column.kind is Kind.DATE:
            _refuse_parts_of_days(column, windows)
        elif guessed := sorted(key.text for key in keys if key.guessed):
            raise ConfigError(
                f"The length of the partition {guessed[0]} is unknown, and `partition_expr` {column.sql} is a time:"
                " if it is less than a day, this run would also replace the rows of other partitions.",
                remedy='Set it, for example partition_window="day", or give the run or the task a partition key.',
            )
        terms = [_window_condition(column, window) for window in _merged(windows)]
        return terms[0] if len(terms) == 1 else f"({' OR '.join(terms)})"
    values = sorted({_value(column, key.text) for key in keys})
    return f"{column.sql} = {values[0]}" if len(values) == 1 else f"{column.sql} IN ({', '.join(values)})"


def _merged(windows: Iterable[Window]) -> list[Window]:
    """Join windows without a gap between them. Compare in UTC, because times of one zone compare by wall clock."""
    joined: list[Window] = []
    for window in sorted(windows, key=lambda window: window.start.astimezone(UTC)):
        last = joined[-1] if joined else None
        if last and last.end.astimezone(UTC) >= window.start.astimezone(UTC):
            joined[-1] = Window(last.start, max(last.end, window.end, key=lambda time: time.astimezone(UTC)))
        else:
            joined.append(window)
    return joined


def _window_condition(column: PartitionColumn, window: Window) -> str:
    start, end = (_bound(column, time) for time in window)
    return f"({column.sql} >= {start} AND {column.sql} < {end})"


def _refuse_parts_of_days(column: PartitionColumn, windows: Iterable[Window]) -> None:
    for window in windows:
        # A day on which clocks go forward at midnight is an hour short by the wall clock.
        if _wall_clock(window.end) - _wall_clock(window.start) < timedelta(hours=22):
            raise ConfigError(
                f"A date cannot distinguish {window.start} from {window.end}: `partition_expr` {column.sql} is a date.",
                remedy="Use a column with the time, or partitions of at least a day.",
            )


def _bound(column: PartitionColumn, time: datetime) -> str:
    if column.kind is Kind.INSTANT:
        return f"TIMESTAMPTZ {literal(time.astimezone(UTC))}"
    if column.kind is Kind.DATE:
        return f"DATE {literal(time.date())}"
    if _is_within_repeated_hour(time):
        raise ConfigError(
            f"{_wall_clock(time)} occurs twice in {time.tzinfo}, and {column.sql} has no time zone:"
            " no condition on it distinguishes such partitions.",
            remedy="Use a column of type TIMESTAMP WITH TIME ZONE, or write the whole day in one run.",
        )
    return f"TIMESTAMP {literal(_wall_clock(time))}"


def _is_within_repeated_hour(time: datetime) -> bool:
    """Return whether a time lies inside an hour that the wall clock shows twice, so that it cannot be a bound."""
    begins = time.fold == 0 and not _is_repeated(time - _INSTANT)
    return _is_repeated(time) and not begins


def _is_repeated(time: datetime) -> bool:
    """Return whether the wall clock shows this time twice, because clocks go back."""
    earlier, later = time.replace(fold=0).astimezone(UTC), time.replace(fold=1).astimezone(UTC)
    return earlier < later


def _wall_clock(time: datetime) -> datetime:
    return time.replace(tzinfo=None, fold=0)


def _value(column: PartitionColumn, text: str) -> str:
    """Write a key as a value of the column."""
    try:
        match column.kind:
            case Kind.TEXT:
                return literal(text)
            case Kind.INTEGER:
                return literal(int(text))
            case Kind.DATE:
                return f"DATE {literal(date.fromisoformat(text))}"
            case Kind.TIMESTAMP:
                return f"TIMESTAMP {literal(_without_zone(text))}"
            case Kind.INSTANT:
                return f"TIMESTAMPTZ {literal(_with_zone(text).astimezone(UTC))}"
    except ValueError:
        raise _unreadable(column, text) from None


def _unreadable(column: PartitionColumn, text: str) -> ConfigError:
    remedy = "Use a column that holds such keys, or an expression that computes them."
    if column.kind is Kind.INTEGER:
        remedy += ' For days, `fmt="%Y%m%d"` in the partitions definition makes integer keys.'
    return ConfigError(
        f"The partition key {text!r} cannot be a value of {column.sql}, whose type is {column.kind.value}.",
        remedy=remedy,
    )


def _without_zone(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is not None:
        raise ValueError(text)
    return time


def _with_zone(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
