"""The `dg` components: a lake with its tables and SQL assets, and the maintenance of a lake, configured in YAML."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import dagster as dg
from pydantic import Field

from ducklake_orch.config.maintenance import OPERATIONS
from ducklake_orch.dagster.component_connection import LAKE_FILE, file_resource, scaffold_file
from ducklake_orch.dagster.lake_component import DuckLakeComponent
from ducklake_orch.dagster.maintenance import build_maintenance_definitions
from ducklake_orch.dagster.op_outputs import KEPT

__all__ = ["DuckLakeComponent", "DuckLakeMaintenanceComponent"]


class MaintenanceScaffolder(dg.Scaffolder):
    """Writes the `defs.yaml` of a component and a TOML file that configures the lake."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the files."""
        dg.scaffold_component(request, {"file": LAKE_FILE, "policy": {"expire": {"older_than": "7 days"}}})
        scaffold_file(request.target_path)


@dg.scaffold_with(MaintenanceScaffolder)
class DuckLakeMaintenanceComponent(dg.Component, dg.Model, dg.Resolvable):
    """Maintains a DuckLake lake: assets for flush, rewrite, merge, expire, cleanup and orphans, and a schedule."""

    lake: str = Field(default="lake", description="Key of the lake's resource.")
    file: str | None = Field(
        default=None,
        description="TOML file that defines the lake's resource, relative to the component's folder.",
    )
    profile: str | None = Field(default=None, description="Profile in the file.")
    lake_name: str | None = Field(default=None, description="Name of the lake in the file, if the file has several.")
    name: str | None = Field(default=None, description="Prefix of the names; by default the resource's key.")
    operations: list[str] = Field(default=list(OPERATIONS), description="Operations to run.")
    schemas: list[str] | None = Field(default=None, description="Only tables in these schemas, by name or pattern.")
    tables: list[str] | None = Field(default=None, description="Only these tables, by name or pattern.")
    policy: dict[str, Any] | None = Field(
        default=None, description="Fields of the policy; by default the lake's policy."
    )
    cron_schedule: str | None = Field(default=None, description="Cron schedule; by default between 3:00 and 4:00.")
    execution_timezone: str = Field(default="UTC", description="Time zone of the schedule.")
    owners: list[str] | None = Field(default=None, description="Owners of the assets: emails, or `team:<name>`.")
    pool: str | None = Field(default=None, description="Pool of the assets.")
    fresh_within_hours: float | None = Field(default=36, description="Maximum age of an asset's last run.")
    op_outputs_older_than_days: float | None = Field(
        default=KEPT.days, description="Age from which `expire` drops the tables of op outputs."
    )
    spark: bool = Field(default=False, description="Use the resource's Spark session for large operations.")

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the definitions; see `build_maintenance_definitions`."""
        hours, days = self.fresh_within_hours, self.op_outputs_older_than_days
        maintenance = build_maintenance_definitions(
            self.lake,
            name=self.name,
            operations=self.operations,
            schemas=self.schemas,
            tables=self.tables,
            policy=self.policy,
            cron_schedule=self.cron_schedule,
            execution_timezone=self.execution_timezone,
            owners=self.owners,
            pool=self.pool,
            fresh_within=None if hours is None else timedelta(hours=hours),
            op_outputs_older_than=None if days is None else timedelta(days=days),
            spark=self.spark,
        )
        return dg.Definitions.merge(maintenance, dg.Definitions(resources=self._resources(context)))

    def _resources(self, context: dg.ComponentLoadContext) -> Mapping[str, Any]:
        if self.file is None:
            return {}
        return {self.lake: file_resource(context.path, self.file, self.profile, self.lake_name)}
