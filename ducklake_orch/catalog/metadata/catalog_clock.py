"""Read the catalog's clock, by which ages of snapshots and files are computed, because a host's clock may be wrong."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ducklake_orch.catalog.metadata.snapshot_reader import Metadata
from ducklake_orch.errors import ClockError

_WARNED, _REFUSED = timedelta(hours=1), timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Clock:
    """The current time, and the offset of this host's clock.

    Attributes:
        now: The time by the clock of the catalog's server, or of this host if the catalog is a file.
        off: How far this host's clock is ahead of the catalog's clock; negative if it is behind.
        against: What the host's clock was compared with, for messages.
    """

    now: datetime
    off: timedelta
    against: str

    def refuse_wrong(self, *, force: bool) -> list[str]:
        """Return a warning if this host's clock is off by more than an hour.

        Raises:
            ClockError: When the clock is off by more than a day, unless `force` is set.
        """
        if abs(self.off) <= _WARNED:
            return []
        hours, side = abs(self.off) / timedelta(hours=1), "ahead of" if self.off > timedelta(0) else "behind"
        text = f"The clock of this host is {hours:.1f} h {side} {self.against}."
        if abs(self.off) > _REFUSED and not force:
            raise ClockError(
                f"{text} Ages of snapshots and files cannot be trusted.",
                remedy="Set the clock. If it is right, pass `force=True`.",
            )
        return [text]


def read_clock(metadata: Metadata) -> Clock:
    """Return the time by the catalog's clock, and the offset of this host's clock.

    A catalog in a file has no clock. Its newest snapshot shows only that this host's clock is behind, because a lake
    without recent writes would be mistaken for a clock that is ahead. A clock that is behind is still used: with it,
    everything only seems younger.
    """
    local = datetime.now(UTC)
    if (clock := metadata.dialect.clock_sql()) is not None:
        ((microseconds,),) = metadata.rows(metadata.dialect.query(f"select {clock} as now"))
        local = datetime.now(UTC)
        now = _EPOCH + timedelta(microseconds=int(microseconds))
        return Clock(now, local - now, "that of the catalog's server")
    snapshots = metadata.table_sql("ducklake_snapshot")
    ((newest,),) = metadata.rows(f"SELECT max(epoch_us(snapshot_time::TIMESTAMPTZ)) FROM {snapshots}")
    made = _EPOCH + timedelta(microseconds=int(newest or 0))
    return Clock(local, min(local - made, timedelta(0)), "the newest snapshot")
