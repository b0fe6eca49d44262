"""The clock of a catalog, by which ages are judged: hosts have clocks of their own, and one of them may be wrong."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from ducklake_orch.catalog.metadata.snapshot_reader import Metadata
from ducklake_orch.errors import ClockError

_WARNED, _REFUSED = timedelta(hours=1), timedelta(days=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Clock:
    """What time it is.

    Attributes:
        now: By the server of the catalog; by this host where the catalog is a file.
        off: By how much this host's clock is ahead of the catalog; negative: behind.
        against: What it was compared with.
    """

    now: datetime
    off: timedelta
    against: str

    def refuse_wrong(self, *, force: bool) -> list[str]:
        """Return what is wrong with this host's clock, as warnings.

        Raises:
            ClockError: When it is off by more than a day, without `force`.
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
    """Return the time by the catalog's clock, and how far this host's is off.

    A catalog in a file has no clock. Its newest snapshot only tells whether this host's clock is behind: a lake that is
    long not written looks like a clock that is ahead. Where it is behind, it still holds: everything seems younger.
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
