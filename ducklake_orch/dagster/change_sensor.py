"""A sensor that reports changes in a lake that no Dagster run wrote."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import dagster as dg

from ducklake_orch.catalog.metadata import changes_rows, parse_tokens, quoted_path
from ducklake_orch.dagster import tick_reasons
from ducklake_orch.dagster.metadata_settings import settings_in
from ducklake_orch.dagster.outside_changes import changed_keys, may_become
from ducklake_orch.dagster.table_names import DEFAULT_SCHEMA, Assets, TableNames, specs_of
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ConfigError, DuckLakeOrchError
from ducklake_orch.host_partitions.metadata_keys import table_address
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import Snapshot, Table

# Limit of pending keys per asset. A cursor is a text in one row of the instance's database, so it must stay small.
_LIMIT = 200


def ducklake_snapshot_sensor(
    assets: Assets,
    *,
    lake: str = "lake",
    name: str = "ducklake_snapshots",
    job: Any = None,
    schema: str = DEFAULT_SCHEMA,
    schema_prefix: str = "",
    minimum_interval_seconds: int = 60,
    default_status: dg.DefaultSensorStatus = dg.DefaultSensorStatus.STOPPED,
) -> dg.SensorDefinition:
    """Return a sensor for assets whose tables are also written outside Dagster.

    The sensor remembers the last snapshot that it has seen. If rows of a table have changed since without a Dagster
    run, it observes the asset with the snapshot as data version, once for each partition with such rows. If a job is
    given, it requests one run of the job for each instead. Rows of a partition that does not exist yet (today's, for
    example) are reported once the partition exists. Compactions and flushes are not changes.

    Args:
        assets: The assets; the IO manager's rules name their tables.
        lake: The key of the lake's resource.
        name: The name of the sensor.
        job: The job to run instead of an observation.
        schema: `schema` of the IO manager.
        schema_prefix: `schema_prefix` of the IO manager.
        minimum_interval_seconds: The interval between two ticks.
        default_status: Whether the sensor runs without being started in the UI.
    """
    specs, names = specs_of(assets), TableNames(schema, schema_prefix)
    if not specs:
        raise ConfigError(
            "The sensor has no assets.", remedy="Pass the assets whose tables are written outside Dagster."
        )

    @dg.sensor(
        name=name,
        job=job,
        required_resource_keys={lake},
        minimum_interval_seconds=minimum_interval_seconds,
        default_status=default_status,
        description=(
            f"Looks for rows that programs other than Dagster changed in the lake `{lake}`, and"
            f" {'observes their assets' if job is None else 'requests runs of the job for them'}."
            " Each tick says what it found. A tick fails if the lake does not open; the next one repeats its work."
            " What helps: `ducklake-orch doctor`, and `ducklake-orch snapshots` for who wrote when."
        ),
    )
    def evaluate(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        opened: DuckLake = getattr(context.resources, lake).lake()
        if not (latest := opened.snapshots(1)):
            return dg.SkipReason(f"The lake `{opened.config.name}` does not exist yet: the first write creates it.")
        newest, before = latest[0].snapshot_id, _Cursor.read(context.cursor)
        if before is None or newest < before.snapshot:
            # A lake that was created anew has lower snapshot ids: the sensor begins with it again.
            return _skipped(f"The sensor starts at snapshot {newest}.", _Cursor(newest))
        seen = before.snapshot
        if newest == seen and not before.pending:
            return _skipped(f"There is no snapshot after {newest}.", before)
        # Snapshot ids have no gaps except for expired ones, so the difference bounds the number.
        recent = opened.snapshots(newest - seen) if newest > seen else []
        foreign = [snapshot for snapshot in recent if snapshot.snapshot_id > seen and not _is_known(snapshot)]
        changes = _Changes(context, opened, opened.tables(), foreign, before.pending)
        events = [event for spec in specs for event in changes.of_asset(spec, names.of_asset(spec.key, spec.metadata))]
        cursor = _Cursor(newest, changes.pending)
        news = tick_reasons.seen(seen, newest, changes.changed, events=bool(events))
        reason = " ".join([news, *tick_reasons.waiting(changes.pending)])
        if not events:
            return _skipped(reason, cursor)
        if job is None:
            # Without a run request, Dagster shows the tick as skipped, with this reason.
            reason = f"{tick_reasons.observed(events, before.pending)} {reason}"
            return dg.SensorResult(asset_events=events, skip_reason=reason, cursor=str(cursor))
        partitioned = {spec.key for spec in specs if spec.partitions_def is not None}
        requests = [_request(name, event) for event in events if event.partition or event.asset_key not in partitioned]
        if len(requests) < len(events):
            context.log.warning("The partitions of some changes are unknown, so no run is requested for them.")
        if not requests:
            return _skipped(f"{reason} The changed partitions are unknown, so no run is requested.", cursor)
        return dg.SensorResult(run_requests=requests, cursor=str(cursor))

    return evaluate


@dataclass(frozen=True)
class _Cursor:
    """The last snapshot that a sensor has seen, and the changes that it could not report yet.

    Attributes:
        snapshot: The last snapshot that the sensor has seen.
        pending: By asset, keys that have no partition yet, each with the snapshot that changed its rows.
    """

    snapshot: int
    pending: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Parse a cursor; None if there is none yet."""
        if text is None:
            return None
        state = json.loads(text)
        return cls(state) if isinstance(state, int) else cls(state["snapshot"], state["pending"])

    def __str__(self) -> str:
        pending = {asset: dict(keys) for asset, keys in self.pending.items() if keys}
        return json.dumps({"snapshot": self.snapshot, "pending": pending}) if pending else str(self.snapshot)


def _skipped(reason: str, cursor: _Cursor) -> dg.SensorResult:
    return dg.SensorResult(skip_reason=reason, cursor=str(cursor))


def _bounded(keys: Mapping[str, int]) -> dict[str, int]:
    """Return at most `_LIMIT` pending keys, the most recently changed ones."""
    return dict(sorted(keys.items(), key=lambda pair: (-pair[1], pair[0]))[:_LIMIT])


class _Changes:
    """The changes since the last tick that no Dagster run wrote.

    Args:
        context: The tick.
        lake: The lake.
        tables: The tables of the lake.
        foreign: The snapshots that no Dagster run committed, newest first.
        waiting: By asset, keys of earlier changes that had no partition.

    Attributes:
        changed: The assets whose rows the foreign snapshots changed.
        pending: By asset, keys that still have no partition.
    """

    def __init__(
        self,
        context: dg.SensorEvaluationContext,
        lake: DuckLake,
        tables: Sequence[Table],
        foreign: Sequence[Snapshot],
        waiting: Mapping[str, Mapping[str, int]],
    ) -> None:
        self._context = context
        self._lake = lake
        self._tables = tables
        self._foreign = foreign
        self._waiting = waiting
        self.changed: list[str] = []
        self.pending: dict[str, Mapping[str, int]] = {}

    def of_asset(self, spec: dg.AssetSpec, name: TableName) -> Iterator[dg.AssetObservation]:
        """Return one observation for each changed partition, or one for the asset."""
        table = next((known for known in self._tables if name.names(known.schema, known.table)), None)
        changed = [snapshot for snapshot in self._foreign if table is not None and _changes(snapshot, table)]
        metadata: dict[str, Any] = {"dagster/table_name": table_address(self._lake, name)}
        if changed:
            self.changed.append(spec.key.to_user_string())
            authors = {snapshot.author for snapshot in changed if snapshot.author}
            metadata["ducklake/snapshots"] = len(changed)
            metadata["ducklake/author"] = ", ".join(sorted(authors)) or "unknown"
        for key, snapshot in self._keys(spec, name, changed).items():
            yield dg.AssetObservation(
                spec.key,
                partition=key,
                metadata={**metadata, "ducklake/snapshot_id": snapshot},
                tags={"dagster/data_version": str(snapshot)},
            )

    def _keys(self, spec: dg.AssetSpec, name: TableName, changed: Sequence[Snapshot]) -> Mapping[str | None, int]:
        """Return the changed partitions, each with its last snapshot. The key None stands for the whole asset."""
        definition, newest = spec.partitions_def, changed[0].snapshot_id if changed else 0
        if definition is None:
            return {None: newest} if changed else {}
        asset = spec.key.to_user_string()
        keys, unknown = dict(self._waiting.get(asset, {})), False
        if changed:
            try:
                keys |= dict.fromkeys(self._changed_keys(spec, definition, name, changed), newest)
            except DuckLakeOrchError as error:
                if error.retryable:
                    raise
                unknown = True
                self._context.log.warning(f"`{asset}` changed, but its changed partitions are unknown: {error}")
        if not keys:
            return {None: newest} if unknown else {}  # listing the keys of all partitions can be slow
        existing = set(definition.get_partition_keys(dynamic_partitions_store=self._context.instance))
        later = {key: snapshot for key, snapshot in keys.items() if key not in existing and may_become(definition, key)}
        self.pending[asset] = _bounded(later)
        if len(later) > _LIMIT:
            self._context.log.warning(f"`{asset}`: {_LIMIT} of {len(later)} keys without a partition are remembered.")
        whole: dict[str | None, int] = {None: newest} if unknown else {}
        return whole | {key: keys[key] for key in sorted(existing & keys.keys())}

    def _changed_keys(
        self, spec: dg.AssetSpec, definition: dg.PartitionsDefinition, name: TableName, changed: Sequence[Snapshot]
    ) -> Collection[str]:
        what, expression = f"Asset `{spec.key.to_user_string()}`", settings_in(spec.metadata).get("partition_expr")
        snapshots = [snapshot.snapshot_id for snapshot in changed]
        keys = changed_keys(self._lake, str(name), what, definition, expression, snapshots)
        if keys.left_out:
            self._context.log.warning(f"{what}: {keys.left_out} values of changed rows cannot be partition keys.")
        return keys.found


def _request(sensor: str, event: dg.AssetObservation) -> dg.RunRequest:
    snapshot = str(event.metadata["ducklake/snapshot_id"].value)
    what = event.asset_key.to_user_string()
    return dg.RunRequest(
        run_key=f"{sensor}:{snapshot}:{what}:{event.partition or ''}",
        partition_key=event.partition,
        tags={"ducklake/snapshot_id": snapshot, "ducklake/asset": what},
    )


def _is_known(snapshot: Snapshot) -> bool:
    """Return whether a Dagster run committed a snapshot, or maintenance, which changes no rows."""
    return isinstance(snapshot.extra, dict) and not snapshot.extra.keys().isdisjoint({"dagster", "maintenance"})


def _changes(snapshot: Snapshot, table: Table) -> bool:
    """Return whether a snapshot changed rows of a table or created it."""
    path = quoted_path(table.schema, table.table).lower()
    tokens = parse_tokens(",".join(snapshot.changes))
    is_new = any(token.kind == "created_table" and (token.name or "").lower() == path for token in tokens)
    return is_new or changes_rows(snapshot.changes, table.table_id)
