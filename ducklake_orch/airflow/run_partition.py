"""Converts the partition of a run to a slice of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from ducklake_orch.airflow.assets import triggering_keys
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions import Key, PartitionColumn, Slice, Window, split_multi_key
from ducklake_orch.host_partitions.key_columns import Kind
from ducklake_orch.host_partitions.key_text import UNITS, is_moment, key_of_text, key_of_time

Keys = str | Sequence[str] | None


@dataclass(frozen=True)
class Partitioning:
    """How partition keys map to the partitions of a table.

    Attributes:
        expr: The column that holds the key, or an expression; for several dimensions a mapping from each to one.
        window: The length of a key that is a time: `day`, `hour`, `15 minutes`; by default the precision of its text,
            or the run's data interval. A logical date means its day. If the column holds times and the date is not
            midnight, `window` is required.
        format: The format of such a key for `strptime`.
        timezone: The zone of such keys.
    """

    expr: str | Mapping[str, str] | None = None
    window: str | None = None
    format: str | None = None
    timezone: str = "UTC"

    def slice(self, what: str, keys: Keys, context: Mapping[str, Any]) -> Slice | None:
        """Return the partitions that a task writes or reads; None for an unpartitioned table.

        The keys are those of the task, else that of its run, else those in the events of the writes that triggered the
        run, else the run's data interval or logical date.

        Args:
            what: The task, for messages.
            keys: The keys of the task; None if it has none.
            context: The context of the task.

        Raises:
            ConfigError: If there is no key, or no column for it.
        """
        given = _listed(keys)
        _refuse_empty(what, keys, given)
        if self.expr is None:
            if given:
                raise ConfigError(
                    f"{what} has the partition key {keys!r}, but does not name the column that holds it.",
                    remedy='Add partition_expr="<column>".',
                )
            return None
        if keys is None:
            key_of_run = context.get("partition_key")
            given = [str(key_of_run)] if key_of_run else []
            if not given and not isinstance(context.get("logical_date"), datetime):
                given = triggering_keys(what, context)
        if isinstance(self.expr, str):
            found = [self._key(text) for text in given] if given else [self._key_of_run(what, context)]
            return Slice.of(found)
        if not given:
            raise ConfigError(f"{what} has several dimensions, but its run has no partition key.", remedy=_GIVE)
        names = list(self.expr)
        cells = [{name: self._key(part) for name, part in split_multi_key(text, names).items()} for text in given]
        return Slice.of_many(names, cells)

    def check(self, what: str, part: Slice, columns: Mapping[str, PartitionColumn]) -> None:
        """Refuse keys that are moments if the column holds times, because their length is unknown."""
        for position, name in enumerate(part.dimensions):
            if columns[name].kind not in (Kind.DATE, Kind.TIMESTAMP, Kind.INSTANT):
                continue
            for cell in part.cells:
                if cell[position].window is None and is_moment(cell[position].text):
                    raise ConfigError(
                        f"{what}: the partition key {cell[position].text!r} is a time of unknown length.",
                        remedy='Set its length, for example partition_window="day".',
                    )

    def _key(self, text: str) -> Key:
        return key_of_text(text, self._zone, unit=self.window, fmt=self.format)

    def _key_of_run(self, what: str, context: Mapping[str, Any]) -> Key:
        start, end = context.get("data_interval_start"), context.get("data_interval_end")
        moment = context.get("logical_date")
        if isinstance(start, datetime) and isinstance(end, datetime) and start < end:
            if self.window is None:
                text = key_of_time(start, self._zone, unit=_unit(start, end), fmt=self.format).text
                return Key(text, Window(start.astimezone(self._zone), end.astimezone(self._zone)))
            if self.window not in UNITS:
                return key_of_text(start.astimezone(self._zone).isoformat(), self._zone, unit=self.window)
            moment = start
        if not isinstance(moment, datetime):
            raise ConfigError(f"{what}: its run has neither a partition key nor a logical date.", remedy=_GIVE)
        key = key_of_time(moment, self._zone, unit=self.window or "day", fmt=self.format)
        # Midnight means the day. Any other time can mean an hour, and a day has several runs then.
        is_midnight = key.window is not None and moment == key.window.start
        return key._replace(guessed=self.window is None and not is_midnight)

    @property
    def _zone(self) -> ZoneInfo:
        try:
            return ZoneInfo(str(self.timezone))
        except (ZoneInfoNotFoundError, ValueError):
            failure = ConfigError(f"`partition_timezone` = {self.timezone!r} is not a time zone.")
        raise failure


_GIVE = 'Start the run with a partition key, or give the task `partition_key="…"`.'


def given_keys(keys: Keys, is_given: bool) -> Keys:
    """Return the keys of a task. An empty template or result of another task counts as given, so it is refused."""
    return "" if is_given and keys is None else keys


def _refuse_empty(what: str, keys: Keys, given: list[str]) -> None:
    """Refuse the text that a template renders without a value, and an empty list of keys."""
    if keys is not None and (not given or any(key.strip() in ("", "None") for key in given)):
        raise ConfigError(
            f"{what}: `partition_key` is {keys!r}, which names no partition.",
            remedy="Fix the template or the task that provides it, or omit `partition_key` to use that of the run.",
        )


def _listed(keys: Any) -> list[str]:
    if keys is None:
        return []
    return [keys] if isinstance(keys, str) else [str(key) for key in keys]


def _unit(start: datetime, end: datetime) -> str:
    days = (end - start).total_seconds() / 86400
    for unit, least in (("year", 360), ("month", 28), ("week", 7), ("day", 0.9)):
        if days >= least:
            return unit
    return "hour"
