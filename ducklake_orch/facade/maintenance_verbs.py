"""Verbs that keep a lake fast, small and correct."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ducklake_orch.config.maintenance import MaintenancePolicy, TablePattern, read_policy
from ducklake_orch.errors import ConfigError
from ducklake_orch.facade.lake_base import LakeBase
from ducklake_orch.results import FsckReport, LakeDrop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ducklake_orch.catalog.lifecycle import QuarantinedFile
    from ducklake_orch.maintenance.health_report import HealthReport
    from ducklake_orch.maintenance.results import MaintenancePlan, MaintenanceReport
    from ducklake_orch.maintenance.run_log import MaintenanceRun
    from ducklake_orch.maintenance.run_plan import Progress
    from ducklake_orch.maintenance.workload import ColumnReads
    from ducklake_orch.report.collect import LakeReport


class MaintenanceVerbs(LakeBase):
    """Maintain, grade, check and report on a lake."""

    def plan_maintenance(
        self,
        policy: MaintenancePolicy | Mapping[str, Any] | None = None,
        operations: Sequence[str] | None = None,
        schemas: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        *,
        spark: "SparkSession | None" = None,
    ) -> "MaintenancePlan":
        """Return what maintenance would do for each table and partition, and why it would skip the others.

        Args:
            policy: Fields that override `maintenance` of the lake's configuration, or a whole policy instead of it.
            operations: Any of `flush`, `rewrite`, `merge`, `expire`, `cleanup`, `orphans`; by default all.
            schemas: Only tables in these schemas, by name or pattern; operations on the whole lake are still planned.
            tables: Only these tables, by name or pattern: `sales.*`, `*.raw_*`, `orders` (in `main`).
            spark: A session for steps that are too large for one machine, classic or Connect.

        Raises:
            MaintenanceFloorError: When a retention is below its floor, without `force` in the policy.
            ObjectNotFoundError: When no table or schema matches one of the names.

        Examples:
            >>> plan = lake.plan_maintenance(operations=["merge"])
            >>> [(step.operation, step.table) for step in plan.operations if step.action == "run"]
            []
        """
        from ducklake_orch.maintenance.make_plan import plan_maintenance
        from ducklake_orch.maintenance.selection import Selection

        chosen = read_policy(policy, self.config.maintenance)
        selection = Selection(operations, schemas, tables)
        return plan_maintenance(self.config, chosen, selection, distributed=spark is not None)

    def maintain(
        self,
        plan_or_policy: "MaintenancePlan | MaintenancePolicy | Mapping[str, Any] | None" = None,
        operations: Sequence[str] | None = None,
        schemas: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        dry_run: bool = False,
        *,
        progress: "Progress | None" = None,
        spark: "SparkSession | None" = None,
    ) -> "MaintenanceReport":
        """Maintain the lake by a plan: flush, rewrite, merge, expire, clean up and delete orphans.

        Each step is a separate transaction and is retried after transient failures. A step that fails is reported, and
        the other steps run. Ctrl-C and SIGTERM end the run after the current step; a second signal rolls that step
        back. The remaining steps are reported as `stopped`, and the next run does them.

        Args:
            plan_or_policy: A plan of `plan_maintenance`, to do exactly what it lists; or a policy, which is planned
                first: fields that override `maintenance` of the lake's configuration, or a whole policy.
            operations: Any of `flush`, `rewrite`, `merge`, `expire`, `cleanup`, `orphans`; by default all.
            schemas: Only tables in these schemas, by name or pattern.
            tables: Only these tables, by name or pattern.
            dry_run: Change nothing; the report lists the planned steps.
            progress: Called before each step and with its result.
            spark: A session for steps that are too large for one machine, or if the policy's `engine` is `spark`.

        Raises:
            MaintenanceRunningError: When another process is maintaining the lake.
            MaintenanceFloorError: When a retention is below its floor, without `force` in the policy.

        Examples:
            >>> _ = lake.execute("INSERT INTO orders VALUES (4, 'us', 40.0)")  # a small INSERT is inlined
            >>> report = lake.maintain(operations=["flush"])
            >>> [(step.operation, step.rows, step.status) for step in report.operations]
            [('flush', 1, 'done')]
        """
        from ducklake_orch.maintenance.results import MaintenancePlan
        from ducklake_orch.maintenance.run_plan import maintain

        chosen = {"operations": operations, "schemas": schemas, "tables": tables}
        if not isinstance(plan_or_policy, MaintenancePlan):
            plan_or_policy = self.plan_maintenance(plan_or_policy, **chosen, spark=spark)
        elif given := [name for name, value in chosen.items() if value is not None]:
            raise ConfigError(f"`{given[0]}` cannot be combined with a plan.", remedy="Give it to `plan_maintenance`.")
        return maintain(self.config, plan_or_policy, dry_run=dry_run, progress=progress, spark=spark)

    def fsck(
        self,
        *,
        deep: bool = False,
        storage: bool = False,
        repair: bool = False,
        tables: Sequence[TablePattern] | None = None,
    ) -> FsckReport:
        """Find and explain broken states of the lake. By default it reads only the catalog.

        Args:
            deep: Read the files, too: the footers of all files, and the contents of the live ones.
            storage: List the storage, too.
            repair: Repair what can be repaired without guessing, in one snapshot.
            tables: Only these tables: names, patterns, or exact pairs of schema and table. Rows of other tables are
                not read from the catalog.

        Examples:
            >>> lake.fsck(deep=True).findings
            []
            >>> lake.fsck(tables=["orders"]).findings
            []
        """
        from ducklake_orch.catalog.fsck import fsck

        return fsck(self.config, deep=deep, storage=storage, repair=repair, tables=_some(tables))

    def drop_lake(self, *, dry_run: bool = True) -> LakeDrop:
        """Drop the whole lake: all tables with their history, its files, and its catalog.

        Nothing brings it back. Files outside the data path, and files that the lake's writers have not written, stay.
        A catalog in a file is deleted; in a database, the tables of the lake are dropped. End all programs that use
        the lake first.

        Args:
            dry_run: Only return what would be dropped, which is the default.

        Raises:
            StorageError: When a file cannot be deleted; call it again once the cause is mended.

        Examples:
            >>> lake.drop_lake().tables
            1
        """
        from ducklake_orch.catalog.lifecycle import drop_lake

        return drop_lake(self.config, dry_run=dry_run)

    def create_indexes(self) -> None:
        """Create indexes on the metadata tables, so that planning reads only the files of matching partitions.

        They pay off from about ten thousand files in a table with many partitions. Other engines keep them up to date.
        Writers wait while they are created.

        Raises:
            UnsupportedStatementError: When the catalog is neither PostgreSQL nor SQLite.

        Examples:
            >>> lake.create_indexes()
        """
        from ducklake_orch.catalog.metadata import create_indexes

        create_indexes(self.config)

    def drop_indexes(self) -> None:
        """Drop the indexes that `create_indexes` created.

        Examples:
            >>> lake.drop_indexes()
        """
        from ducklake_orch.catalog.metadata import drop_indexes

        drop_indexes(self.config)

    def maintenance_runs(self, limit: int = 20) -> "list[MaintenanceRun]":
        """List the latest runs of maintenance, with what their plans predicted and what came out.

        Args:
            limit: How many runs to list, the latest first.

        Examples:
            >>> _ = lake.maintain(operations=["flush"])
            >>> [run.status for run in lake.maintenance_runs()]
            ['ok']
        """
        from ducklake_orch.catalog.search import planning
        from ducklake_orch.maintenance.run_log import latest_runs

        with planning(self.config, f"Listing the maintenance of lake `{self.config.name}`", reads=True) as metadata:
            return latest_runs(metadata, limit)

    def workload(self, days: int = 30) -> "list[ColumnReads]":
        """List which columns reads had conditions on, and how many files they opened.

        Reads by `lake.read` are counted, also in Spark, if the lake's configuration has `workload = true`. Other reads
        are not. A process adds its counts once a minute, and at exit.

        Args:
            days: The reads of how many days to count, today included; at most 60 are kept.

        Examples:
            >>> lake.workload()  # `workload` is off
            []
        """
        from ducklake_orch.maintenance.workload import workload

        return workload(self.config, days)

    def quarantined(self) -> "list[QuarantinedFile]":
        """List the orphaned files that maintenance has moved into quarantine, the oldest first.

        Examples:
            >>> lake.quarantined()
            []
        """
        from ducklake_orch.catalog.lifecycle import quarantined

        return quarantined(self.config)

    def restore_quarantined(self, paths: Sequence[str] | None = None) -> "list[QuarantinedFile]":
        """Move files in quarantine back to where they were, and return them.

        Args:
            paths: Where they were; None for all files.

        Raises:
            ObjectNotFoundError: When a file is not in quarantine.
            ObjectExistsError: When there is a file again where one was.

        Examples:
            >>> lake.restore_quarantined()
            []
        """
        from ducklake_orch.catalog.lifecycle import release_quarantined

        return release_quarantined(self.config, paths)

    def health(
        self,
        policy: MaintenancePolicy | Mapping[str, Any] | None = None,
        *,
        tables: Sequence[TablePattern] | None = None,
    ) -> "HealthReport":
        """Grade the lake and its tables against the thresholds of a policy, and name remedies.

        Args:
            policy: Fields that override `maintenance` of the lake's configuration, or a whole policy instead of it.
            tables: Only these tables: names, patterns, or exact pairs of schema and table. The figures of the lake as
                a whole are then left out.

        Examples:
            >>> lake.health().grade
            'ok'
            >>> [table.grade for table in lake.health(tables=["orders"]).tables]
            ['ok']
        """
        from ducklake_orch.maintenance.health import health

        return health(self.config, read_policy(policy, self.config.maintenance), _some(tables))

    def report(
        self,
        policy: MaintenancePolicy | Mapping[str, Any] | None = None,
        *,
        snapshots: int = 200,
        host_urls: Mapping[str, str] | None = None,
    ) -> "LakeReport":
        """Describe the lake for people: tables, health, writers and maintenance. `.to_html()` renders it as a page.

        Args:
            policy: Fields that override `maintenance` of the lake's configuration, or a whole policy instead of it.
            snapshots: How many of the latest snapshots to list.
            host_urls: The addresses of Dagster's and Airflow's interfaces, such as
                `{"dagster": "https://dagster.example.com"}`, to link snapshots to the runs that made them.

        Examples:
            >>> lake.report().to_html()[:15]
            '<!doctype html>'
        """
        from ducklake_orch.report.collect import report
        from ducklake_orch.report.run_links import read_host_urls

        if snapshots < 0:
            raise ConfigError(f"`snapshots` = {snapshots} is negative.", remedy="Give the number of snapshots to list.")
        return report(self.config, read_policy(policy, self.config.maintenance), snapshots, read_host_urls(host_urls))


def _some(tables: str | Sequence[TablePattern] | None) -> Sequence[TablePattern] | None:
    """Return the tables to check as a list; None means all."""
    if tables is not None and not tables:
        raise ConfigError("`tables` is empty.", remedy="Name tables, or leave out `tables` to check all.")
    return [tables] if isinstance(tables, str) else tables
