"""Definitions that maintain a lake: an asset per operation, a job with a schedule, and a job that only plans."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from ducklake_orch.config.maintenance import OPERATIONS, MaintenancePolicy, read_policy
from ducklake_orch.dagster import descriptions
from ducklake_orch.dagster.check_results import figures_of, of_operation
from ducklake_orch.dagster.configuration import Strict
from ducklake_orch.dagster.event_metadata import failures
from ducklake_orch.dagster.health_checks import CONSISTENT, consistency_check, health_checks, health_key
from ducklake_orch.dagster.maintenance_metadata import plan_metadata, report_metadata, step_check
from ducklake_orch.dagster.op_outputs import KEPT, drop_op_outputs, refuse_below_floor
from ducklake_orch.dagster.resource import LakeResource
from ducklake_orch.dagster.table_names import DEFAULT_SCHEMA, Assets, TableNames
from ducklake_orch.errors import ConfigError
from ducklake_orch.lake import DuckLake
from ducklake_orch.maintenance.selection import Selection

STEPS = "no_step_failed"
_RETRY = dg.RetryPolicy(max_retries=3, delay=60, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.FULL)


class MaintenanceConfig(Strict, dg.Config):
    """What a run of maintenance does differently from its definitions."""

    dry_run: bool = Field(default=False, description="Change nothing; the report is the plan.")
    policy: dict[str, Any] = Field(default={}, description="Fields of the policy to override in this run.")
    schemas: list[str] | None = Field(default=None, description="Only tables in these schemas, by name or pattern.")
    tables: list[str] | None = Field(default=None, description="Only these tables, by name or pattern.")


def build_maintenance_definitions(
    lake: str = "lake",
    *,
    name: str | None = None,
    operations: Sequence[str] = OPERATIONS,
    schemas: Sequence[str] | None = None,
    tables: Sequence[str] | None = None,
    policy: MaintenancePolicy | Mapping[str, Any] | None = None,
    checked_assets: Assets = (),
    schema: str = DEFAULT_SCHEMA,
    schema_prefix: str = "",
    cron_schedule: str | None = None,
    execution_timezone: str = "UTC",
    owners: Sequence[str] | None = None,
    pool: str | None = None,
    retry_policy: dg.RetryPolicy | None = _RETRY,
    fresh_within: timedelta | None = timedelta(hours=36),
    op_outputs_older_than: timedelta | None = KEPT,
    spark: bool = False,
) -> dg.Definitions:
    """Return definitions that maintain a lake, or some of its tables.

    Each operation is an asset, `<name>/maintenance/<operation>`, and the assets run in sequence. The checks of an asset
    report failed steps and grade the figures that the operation improves. The last asset also has the fsck check.
    `<name>_maintenance` is the job. Its schedule has the same name and is stopped by default.
    `<name>_maintenance_plan` is a job that only plans.

    `checked_assets` get the checks of `build_health_checks`, and the lake gets those of `<name>/health`. The job
    evaluates all of them after the last operation. Runs that materialize a checked asset evaluate its checks, too.

    Args:
        lake: The key of the lake's resource.
        name: The prefix of all these names; by default the key.
        operations: Some of `flush`, `rewrite`, `merge`, `expire`, `cleanup`, `orphans`.
        schemas: Only tables in these schemas, by name or pattern. `expire`, `cleanup` and `orphans` cover the lake.
        tables: Only these tables, by name or pattern.
        policy: Fields that override the policy in the lake's configuration, for these definitions only; or a whole
            `MaintenancePolicy` instead of it.
        checked_assets: Assets whose tables are checked; the IO manager's rules name the tables.
        schema: `schema` of the IO manager, for the tables of checked assets.
        schema_prefix: `schema_prefix` of the IO manager, for the tables of checked assets.
        cron_schedule: The schedule; by default between 3:00 and 4:00, at a minute that depends on the name.
        execution_timezone: The zone of the schedule.
        owners: The owners of the assets: emails, or teams as `team:<name>`.
        pool: The pool of the assets; by default `<name>_maintenance`.
        retry_policy: The retry policy of the assets, for failures that pass, such as another running maintenance.
        fresh_within: How old the last run of an asset may be; None allows any age.
        op_outputs_older_than: Age from which `expire` drops the tables of op outputs; None keeps them.
        spark: Pass the resource's Spark session to operations that are too large for one machine.

    Raises:
        ConfigError: If an operation does not exist or the policy is invalid.
    """
    Selection(operations, schemas, tables)  # refuses unknown operations
    chosen = [operation for operation in OPERATIONS if operation in operations]
    if not chosen:
        raise ConfigError("`operations` is empty.", remedy=f"Name some of {', '.join(OPERATIONS)}.")
    name = name or lake
    if op_outputs_older_than is not None:
        refuse_below_floor(op_outputs_older_than)
    maintenance = _LakeMaintenance(lake, name, policy, schemas, tables, spark, op_outputs_older_than)
    shown: dict[str, Any] = {
        "group_name": f"{name}_maintenance",
        "kinds": {"ducklake", "maintenance"},
        "owners": owners,
    }
    options: dict[str, Any] = {"pool": pool or f"{name}_maintenance", "retry_policy": retry_policy, **shown}
    if fresh_within is not None:
        options["freshness_policy"] = dg.FreshnessPolicy.time_window(fail_window=fresh_within)
    assets: list[dg.AssetsDefinition] = []
    for operation in chosen:
        deps = [assets[-1].key] if assets else []
        assets.append(maintenance.asset(operation, deps, **options))
    health: list[dg.AssetChecksDefinition] = []
    lake_asset: list[dg.AssetSpec] = []
    if checked_assets:
        names = TableNames(schema, schema_prefix)
        health = health_checks(checked_assets, lake, names, name=name, policy=policy, after=[assets[-1].key])
        lake_asset = [dg.AssetSpec(health_key(name), description=descriptions.of_lake(lake), **shown)]
    job = dg.define_asset_job(
        f"{name}_maintenance",
        dg.AssetSelection.assets(*assets) | dg.AssetSelection.checks(*health),
        description=f"{maintenance.about} Runs {', '.join(chosen)}, then the checks. {descriptions.JOB}",
    )
    minute = zlib.crc32(name.encode()) % 60  # spreads the start times of several lakes
    schedule = dg.ScheduleDefinition(
        name=f"{name}_maintenance",
        job=job,
        cron_schedule=cron_schedule or f"{minute} 3 * * *",
        execution_timezone=execution_timezone,
        description=f"{maintenance.about} Runs the job `{name}_maintenance`. {descriptions.SCHEDULE}",
        default_status=dg.DefaultScheduleStatus.STOPPED,
    )
    return dg.Definitions(
        assets=[*assets, *lake_asset],
        asset_checks=[maintenance.consistency(chosen[-1]), *health],
        jobs=[job, maintenance.plan_job(chosen)],
        schedules=[schedule],
    )


@dataclass(frozen=True)
class _LakeMaintenance:
    """What the assets and the plan job of one lake share."""

    lake: str
    name: str
    policy: MaintenancePolicy | Mapping[str, Any] | None
    schemas: Sequence[str] | None
    tables: Sequence[str] | None
    spark: bool
    op_outputs: timedelta | None

    def __post_init__(self) -> None:
        read_policy(self.policy, MaintenancePolicy())

    @property
    def about(self) -> str:
        """The beginning of descriptions: which lake and tables are maintained."""
        parts = [*(self.tables or ()), *(f"{schema}.*" for schema in self.schemas or ())]
        return f"Maintenance of the lake `{self.lake}`" + (f": {', '.join(parts)}." if parts else ".")

    def key(self, operation: str) -> dg.AssetKey:
        """Return the key of an operation's asset."""
        return dg.AssetKey([self.name, "maintenance", operation])

    def asset(self, operation: str, deps: Sequence[dg.AssetKey], **options: Any) -> dg.AssetsDefinition:
        """Return the asset of an operation."""
        key = self.key(operation)
        checks = {STEPS: descriptions.of_steps(operation)}
        checks |= {metric: descriptions.of_figure(metric) for metric in of_operation(operation)}

        # A parametrized `MaterializeResult[...]` would make Dagster expect a frame, so the parameter is left out.
        def operate(context: dg.AssetExecutionContext, config: MaintenanceConfig) -> dg.MaterializeResult:  # type: ignore[type-arg]
            resource = self._resource(context)
            with failures(f"Operation `{operation}` failed", {}):
                lake, dropped = resource.existing_lake(), None
                if operation == "expire" and self.op_outputs is not None and not config.dry_run:
                    dropped = drop_op_outputs(lake, self.op_outputs)
                report = lake.maintain(
                    self._policy(lake, config),
                    [operation],
                    dry_run=config.dry_run,
                    progress=lambda step: context.log.info(str(step)),
                    spark=resource.spark_session if self.spark else None,
                    **self._selection(config),
                )
                health = lake.health(self._policy(lake, config))
            selection = Selection(**self._selection(config))
            grades = [figures_of(health, metric, selection).check() for metric in of_operation(operation)]
            metadata = report_metadata(operation, report, health)
            if dropped is not None:
                metadata["ducklake/op_outputs_dropped"] = len(dropped)
            return dg.MaterializeResult(metadata=metadata, check_results=[step_check(STEPS, report), *grades])

        decorate = dg.asset(
            key=key,
            deps=list(deps),
            description=descriptions.of_operation(operation, self.about),
            required_resource_keys={self.lake},
            check_specs=[dg.AssetCheckSpec(check, asset=key, description=about) for check, about in checks.items()],
            **options,
        )
        asset: dg.AssetsDefinition = decorate(operate)
        return asset

    def consistency(self, operation: str) -> dg.AssetChecksDefinition:
        """Return the fsck check, which runs after the last operation."""

        @dg.asset_check(
            asset=self.key(operation),
            name=CONSISTENT,
            description=descriptions.of_consistency("the lake"),
            required_resource_keys={self.lake},
        )
        def consistent(context: dg.AssetCheckExecutionContext) -> dg.AssetCheckResult:
            with failures("The lake was not checked", {}):
                return consistency_check(self._resource(context).lake().fsck().findings)

        return consistent

    def plan_job(self, operations: Sequence[str]) -> dg.JobDefinition:
        """Return a job that observes each asset with its plan, so that the asset's page shows it."""

        @dg.op(name=f"{self.name}_maintenance_plan_op", out=dg.Out(dg.Nothing), required_resource_keys={self.lake})
        def plan(context: dg.OpExecutionContext, config: MaintenanceConfig) -> None:
            with failures("The maintenance of the lake was not planned", {}):
                lake = self._resource(context).existing_lake()
                selection = self._selection(config)
                made_plan = lake.plan_maintenance(self._policy(lake, config), operations, **selection)
            for step in made_plan.operations:
                context.log.info(str(step))
            for operation in operations:
                planned = plan_metadata(made_plan, operation)
                context.log_event(dg.AssetObservation(self.key(operation), metadata=planned))

        @dg.job(name=f"{self.name}_maintenance_plan", description=f"{self.about} {descriptions.PLAN_JOB}")
        def planning() -> None:
            plan()

        return planning

    def _resource(self, context: Any) -> LakeResource:
        resource = getattr(context.resources, self.lake)
        if not isinstance(resource, LakeResource):
            raise ConfigError(
                f"The resource `{self.lake}` is a {type(resource).__name__}.",
                remedy="Use a DuckLakeResource or a DuckLakeFileResource.",
            )
        return resource

    def _selection(self, config: MaintenanceConfig) -> dict[str, Any]:
        return {"schemas": config.schemas or self.schemas, "tables": config.tables or self.tables}

    def _policy(self, lake: DuckLake, config: MaintenanceConfig) -> MaintenancePolicy:
        """Return the lake's policy, overridden by the definitions and then by the config of this run."""
        return read_policy(config.policy, read_policy(self.policy, lake.config.maintenance))
