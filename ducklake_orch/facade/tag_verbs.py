"""Verbs that name snapshots."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ducklake_orch.config.units import read_argument
from ducklake_orch.errors import ConfigError
from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import Tag

if TYPE_CHECKING:
    from ducklake_orch.engine.session import Session


class TagVerbs(LakeBase):
    """Give snapshots names. Maintenance retains a snapshot that has one."""

    def tag(
        self,
        name: str,
        snapshot: int | None = None,
        keep_until: datetime | str | None = None,
        *,
        replace: bool = False,
    ) -> Tag:
        """Give a snapshot of the lake a name. Repeating the call changes at most `keep_until`.

        The expiry of other programs does not know the name, and can remove the snapshot.

        Args:
            name: The name.
            snapshot: The snapshot; by default the latest.
            keep_until: When maintenance may expire the snapshot, with a time zone; by default never.
            replace: Move the name from an earlier snapshot. A later one keeps it, so that a retry never moves it back.

        Raises:
            ConfigError: When another snapshot has the name.
            SnapshotNotFoundError: When there is no such snapshot.

        Examples:
            >>> lake.tag("2026-q3").snapshot_id
            1
            >>> _ = lake.delete("orders", "region = 'eu'")
            >>> lake.read("orders", tag="2026-q3").num_rows
            3
        """
        from ducklake_orch.catalog.lifecycle import put_tag

        self._pin(False, snapshot, None)  # checks the type
        until = None if keep_until is None else _end(keep_until)
        return put_tag(self.config, name, snapshot, until, replace=replace)

    def tags(self) -> list[Tag]:
        """List the names of snapshots, the oldest snapshot first.

        Examples:
            >>> _ = lake.tag("2026-q3")
            >>> [(tag.name, tag.snapshot_id) for tag in lake.tags()]
            [('2026-q3', 1)]
        """
        from ducklake_orch.catalog.lifecycle import read_tags
        from ducklake_orch.catalog.metadata import reading

        def read(session: "Session") -> list[Tag]:
            with reading(session, "Reading the tags") as metadata:
                return read_tags(metadata)

        return self._read_if_created(read, [])

    def untag(self, name: str) -> None:
        """Remove a name. Its snapshot expires like all others.

        Args:
            name: The name.

        Raises:
            ObjectNotFoundError: When no snapshot has the name.

        Examples:
            >>> _ = lake.tag("2026-q3")
            >>> lake.untag("2026-q3")
            >>> lake.tags()
            []
        """
        from ducklake_orch.catalog.lifecycle import remove_tag

        remove_tag(self.config, name)


def _end(given: datetime | str) -> datetime:
    """Return `keep_until` as a time in UTC."""
    time = read_argument("keep_until", datetime.fromisoformat, given) if isinstance(given, str) else given
    if not isinstance(time, datetime):
        raise ConfigError(
            f"`keep_until` = {given!r} is not a time.", remedy="Give a datetime, or its text in ISO format."
        )
    if time.tzinfo is None:
        raise ConfigError(f"`keep_until` = {time.isoformat()} has no time zone.", remedy="Add one, such as `+00:00`.")
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ConfigError(f"`keep_until` = {time.isoformat()} is too late.", remedy="Leave it out.") from None
