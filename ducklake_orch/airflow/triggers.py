"""The trigger that fires when rows of a table have changed, for asset watchers and deferred sensors."""

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from ducklake_orch.airflow.hook import DEFAULT_CONN_ID, DuckLakeHook
from ducklake_orch.airflow.latest_change import Change, is_newer, latest_change
from ducklake_orch.errors import TransientError

log = logging.getLogger("ducklake_orch")


class DuckLakeSnapshotTrigger(BaseEventTrigger):
    """Fires each time that rows of a table have changed, whichever writer changed them.

    It waits for a table or lake that does not exist yet or does not answer. An `AssetWatcher` fires for changes since
    its first check. Airflow 3.3 and later store the last change, so that none is missed when the triggerer restarts.

    Args:
        ducklake_conn_id: The connection to the lake.
        table: `table` or `schema.table`; without a table, every snapshot of the lake counts.
        after: Fire for changes after this snapshot.
        since: Fire for changes after this time, in ISO 8601.
        poke_interval: Seconds between two checks.
    """

    def __init__(
        self,
        ducklake_conn_id: str = DEFAULT_CONN_ID,
        table: str | None = None,
        after: int | None = None,
        since: str | None = None,
        poke_interval: float = 30.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's class is untyped
        self.ducklake_conn_id = ducklake_conn_id
        self.table = table
        self.after = after
        self.since = since
        self.poke_interval = poke_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments that recreate the trigger. They contain no secret."""
        names = ("ducklake_conn_id", "table", "after", "since", "poke_interval")
        path = f"{type(self).__module__}.{type(self).__qualname__}"
        return path, {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Check the lake every `poke_interval` seconds."""
        mark = self.after if self.after is not None else await self._stored()
        since = datetime.fromisoformat(self.since) if self.since is not None else None
        if mark is None and since is None:
            change = await self._look()
            mark = change.snapshot_id if change is not None else 0
            await self._store(mark)
        while True:
            change = await self._look()
            if change is not None and is_newer(change, mark, since):
                about = {"ducklake_conn_id": self.ducklake_conn_id, "table": self.table}
                yield TriggerEvent(change.payload(previous_snapshot_id=mark, **about))
                # Stored only after the event: an event that is sent twice is better than a lost one.
                mark, since = change.snapshot_id, None
                await self._store(mark)
            await asyncio.sleep(self.poke_interval)

    async def _look(self) -> Change | None:
        try:
            return await asyncio.to_thread(self._change)
        except TransientError as error:
            log.warning("the lake of `%s` does not answer; the trigger retries: %s", self.ducklake_conn_id, error)
            return None

    def _change(self) -> Change | None:
        return latest_change(DuckLakeHook(ducklake_conn_id=self.ducklake_conn_id).lake(), self.table)

    @property
    def _mark_name(self) -> str:
        return f"ducklake/{self.ducklake_conn_id}/{self.table or ''}"

    async def _stored(self) -> int | None:
        store = getattr(self, "asset_state_store", None)
        stored = await store.aget(self._mark_name) if store is not None else None
        return int(stored) if isinstance(stored, int | str) else None

    async def _store(self, mark: int) -> None:
        if (store := getattr(self, "asset_state_store", None)) is not None:
            await store.aset(self._mark_name, mark)
