"""Operators that maintain a lake: one for all operations, one for each operation, and one for its health."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import Context

from ducklake_orch.airflow.base_operator import LakeOperator
from ducklake_orch.airflow.task_spark import TaskSpark
from ducklake_orch.config.maintenance import MaintenancePolicy, read_policy
from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.maintenance.health_report import GRADES

log = logging.getLogger("ducklake_orch")
# A result holds at most this many steps. The log has all of them.
_LISTED = 200
Text = str | None
Number = int | str | None


class DuckLakeMaintenanceOperator(LakeOperator):
    """Maintains a lake by its policy, and returns a JSON report of each step.

    After a failed step, the other steps still run and then the task fails; the next run does the remaining work. A task
    that is terminated finishes the running step first.

    Args:
        policy: Fields that override the policy in the lake's configuration.
        operations: Some of `flush`, `rewrite`, `merge`, `expire`, `cleanup`, `orphans`; by default all.
        schemas: Only tables in these schemas, by name or pattern.
        tables: Only these tables, by name or pattern.
        plan_only: Change nothing, and return the plan.
        engine: The engine of merges and rewrites: `duckdb` in this process, `spark`, or `auto`, which uses the
            connection's session for what is too large for one machine. By default this process, without a session.
        **kwargs: Arguments of every operator.
    """

    template_fields = (*LakeOperator.template_fields, "policy", "operations", "schemas", "tables")
    template_fields_renderers = {"policy": "json"}  # noqa: RUF012 - as Airflow has it

    def __init__(
        self,
        *,
        policy: Mapping[str, Any] | None = None,
        operations: Sequence[str] | None = None,
        schemas: Sequence[str] | None = None,
        tables: Sequence[str] | None = None,
        plan_only: bool = False,
        engine: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self.operations = operations
        self.schemas = schemas
        self.tables = tables
        self.plan_only = plan_only
        self.engine = engine

    def execute(self, context: Context) -> dict[str, Any]:
        """Plan the maintenance, and run the plan."""
        with self.working("Maintenance failed"), TaskSpark(lambda: self.hook.connected.spark) as spark:
            lake = self.hook.existing_lake()
            session = spark.session() if self.engine in ("auto", "spark") else None
            chosen = {"operations": self.operations, "schemas": self.schemas, "tables": self.tables}
            plan = lake.plan_maintenance(self._policy(lake.config.maintenance), **chosen, spark=session)
            log.info("%s", plan)
            if self.plan_only:
                return _result(plan.to_dict() | {"dry_run": True})
            report = lake.maintain(plan, spark=session)
            log.info("%s", report)
            if report.signal is not None:
                raise SystemExit(f"{report.signal} ended task `{self.task_id}` before its maintenance was complete")
            report.raise_for_error()
            return _result(report.to_dict())

    def _policy(self, own: MaintenancePolicy) -> MaintenancePolicy:
        names = ("merge", "rewrite") if self.engine == "extension" else ("merge", "rewrite", "layout")
        engine = None if self.engine is None else {name: {"engine": self.engine} for name in names}
        return read_policy(engine, read_policy(self.policy, own))


class SingleOperationOperator(DuckLakeMaintenanceOperator):
    """Runs one operation. Arguments that are not given come from the lake's policy.

    The arguments of a subclass are settings of its operation in the policy, and are template fields.

    Args:
        **kwargs: `schemas`, `tables`, `plan_only`, `engine` as in `DuckLakeMaintenanceOperator`, and arguments of every
            operator.
    """

    operation: ClassVar[str]
    settings: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, operation: str | None = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        if operation is not None:
            cls.operation = operation
            cls.settings = tuple(inspect.signature(cls.__init__).parameters)[1:-1]  # without `self` and `**kwargs`
            cls.template_fields = (*DuckLakeMaintenanceOperator.template_fields, *cls.settings)

    def __init__(self, **kwargs: Any) -> None:
        values = {name: kwargs.pop(name, None) for name in self.settings}
        super().__init__(**kwargs, operations=[self.operation])
        for name, value in values.items():
            setattr(self, name, value)

    def _policy(self, own: MaintenancePolicy) -> MaintenancePolicy:
        given = {name: value for name in self.settings if (value := getattr(self, name)) is not None}
        return read_policy({self.operation: given}, super()._policy(own))


class DuckLakeFlushOperator(SingleOperationOperator, operation="flush"):
    """Writes inlined rows to files.

    Args:
        min_rows: Skip tables with fewer inlined rows.
        min_age: Skip tables whose inlined rows are younger.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(self, *, min_rows: Number = None, min_age: Text = None, **kwargs: Any) -> None:
        super().__init__(min_rows=min_rows, min_age=min_age, **kwargs)


class DuckLakeRewriteOperator(SingleOperationOperator, operation="rewrite"):
    """Rewrites files that have many deleted rows.

    Args:
        delete_threshold: The share of deleted rows from which on a file is rewritten.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(self, *, delete_threshold: float | str | None = None, **kwargs: Any) -> None:
        super().__init__(delete_threshold=delete_threshold, **kwargs)


class DuckLakeMergeFilesOperator(SingleOperationOperator, operation="merge"):
    """Merges small files.

    Args:
        min_files: Skip partitions with fewer small files.
        target_file_size: The size of merged files, for example `128 MiB`.
        max_files_per_run: The maximum number of files that one run merges.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(
        self,
        *,
        min_files: Number = None,
        target_file_size: Number = None,
        max_files_per_run: Number = None,
        **kwargs: Any,
    ) -> None:
        sizes = {"target_file_size": target_file_size, "max_files_per_run": max_files_per_run}
        super().__init__(min_files=min_files, **sizes, **kwargs)


class DuckLakeLayoutOperator(SingleOperationOperator, operation="layout"):
    """Clusters the files of tables by their cluster keys or sort keys.

    Args:
        cluster_by: Columns to cluster by, instead of the keys of the tables.
        max_depth: Skip partitions where at most this many files hold a value of a key.
        max_bytes: The most bytes that are clustered together, for example `16 GiB`.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(
        self,
        *,
        cluster_by: Sequence[str] | None = None,
        max_depth: float | str | None = None,
        max_bytes: Number = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(cluster_by=cluster_by, max_depth=max_depth, max_bytes=max_bytes, **kwargs)


class DuckLakeExpireOperator(SingleOperationOperator, operation="expire"):
    """Expires old snapshots.

    Args:
        older_than: The age from which on snapshots expire: `7 days`.
        retain_last: The number of latest snapshots to retain, whatever their age.
        keep: Patterns; a snapshot whose message or author matches one is retained.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(
        self, *, older_than: Text = None, retain_last: Number = None, keep: Sequence[str] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(older_than=older_than, retain_last=retain_last, keep=keep, **kwargs)


class DuckLakeCleanupOperator(SingleOperationOperator, operation="cleanup"):
    """Deletes files that no snapshot needs any more.

    Args:
        older_than: How long a file must have been unneeded before it is deleted: `2 days`.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(self, *, older_than: Text = None, **kwargs: Any) -> None:
        super().__init__(older_than=older_than, **kwargs)


class DuckLakeOrphansOperator(SingleOperationOperator, operation="orphans"):
    """Finds orphaned files, which the catalog does not know.

    Args:
        action: `report`, `delete` or `off`.
        unknown: `report` or `delete`: for files that another lake or program may have written.
        older_than: The minimum age. Younger files are skipped, because they may belong to a running write.
        **kwargs: Arguments of `SingleOperationOperator`.
    """

    def __init__(self, *, action: Text = None, unknown: Text = None, older_than: Text = None, **kwargs: Any) -> None:
        super().__init__(action=action, unknown=unknown, older_than=older_than, **kwargs)


class DuckLakeHealthOperator(LakeOperator):
    """Returns the health of a lake and of its tables as JSON, and fails at a bad grade.

    Args:
        fail_at: The grade from which on the task fails: `warn`, `bad`; by default it only reports.
        policy: Fields that override the policy in the lake's configuration.
        **kwargs: Arguments of every operator.
    """

    template_fields = (*LakeOperator.template_fields, "policy")
    template_fields_renderers = {"policy": "json"}  # noqa: RUF012 - as Airflow has it

    def __init__(self, *, fail_at: str | None = None, policy: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.fail_at = fail_at
        self.policy = policy

    def execute(self, context: Context) -> dict[str, Any]:
        """Read the health, and compare the grade."""
        with self.working("The lake's health is unknown"):
            if self.fail_at is not None and self.fail_at not in GRADES[1:]:
                raise ConfigError(f"`fail_at` = {self.fail_at!r} is not a grade.", remedy=nearest(self.fail_at, GRADES))
            report = self.hook.health(self.policy)
        log.info("%s", report)
        if self.fail_at is not None and GRADES.index(report.grade) >= GRADES.index(self.fail_at):
            raise AirflowFailException(str(report))
        found = report.to_dict()
        return {"schema_version": 1, "operation": "health", **found, "tables": found["tables"][:_LISTED]}


def _result(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return a plan or report without file paths and snapshot ids, with skipped steps last."""
    steps = [
        {name: value for name, value in step.items() if name not in ("paths", "snapshot_ids")}
        for step in sorted(report["operations"], key=lambda step: step["action"] == "skip")
    ]
    more = {"operations": steps[:_LISTED], "operation_count": len(steps)}
    return {"schema_version": 1, "operation": "maintenance", **report, **more}
