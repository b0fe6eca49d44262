"""Converts the health figures of a lake to results of asset checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dagster as dg

from ducklake_orch.engine.quoting import table_name
from ducklake_orch.maintenance.health import HELPS
from ducklake_orch.maintenance.health_report import HealthFinding, HealthReport
from ducklake_orch.maintenance.selection import Selection
from ducklake_orch.maintenance.table_plan import TABLE_OPERATIONS

TABLE_METRICS = tuple(metric for metric, operation in HELPS.items() if operation in TABLE_OPERATIONS)
LAKE_METRICS = tuple(metric for metric in HELPS if metric not in TABLE_METRICS)


def of_operation(operation: str) -> list[str]:
    """Return the figures that an operation improves."""
    return [metric for metric, helps in HELPS.items() if helps == operation]


@dataclass(frozen=True)
class Figures:
    """One figure of the lake or of some of its tables, worst first.

    Attributes:
        metric: The name of the figure in the policy.
        values: The figure of each table by name, or that of the lake, with an empty name.
        findings: The figures that have reached a threshold.
    """

    metric: str
    values: Sequence[tuple[str, float]]
    findings: Sequence[tuple[str, HealthFinding]]

    def check(self, name: str | None = None, asset: dg.AssetKey | None = None) -> dg.AssetCheckResult:
        """Return the figure as the result of a check. A warning fails the check, too, with severity WARN."""
        bad = any(finding.grade == "bad" for _, finding in self.findings)
        metadata: dict[str, Any] = {"ducklake/value": float(self.values[0][1])} if self.values else {}
        if self.findings:
            metadata["ducklake/threshold"] = float(self.findings[0][1].threshold)
            metadata["ducklake/remedy"] = self.findings[0][1].remedy
            metadata["ducklake/where"] = ", ".join(table or "the lake" for table, _ in self.findings[:20])
        shown = [f"{table}: {finding}".removeprefix(": ") for table, finding in self.findings[:3]]
        return dg.AssetCheckResult(
            passed=not self.findings,
            check_name=name or self.metric,
            asset_key=asset,
            severity=dg.AssetCheckSeverity.ERROR if bad else dg.AssetCheckSeverity.WARN,
            description="; ".join(shown) or None,
            metadata=metadata,
        )


def figures_of(health: HealthReport, metric: str, selection: Selection) -> Figures:
    """Return a figure of the lake or, for a figure of tables, of the selected tables."""
    if metric in LAKE_METRICS:
        graded = [("", health.lake.metrics, health.lake.findings)]
    else:
        selected = [table for table in health.tables if selection.wants_table(table_name(table.table))]
        graded = [(table_health.table, table_health.metrics, table_health.findings) for table_health in selected]
    values = [(name, float(metrics[metric])) for name, metrics, _ in graded if metrics.get(metric) is not None]
    findings = [(name, finding) for name, _, found in graded for finding in found if finding.metric == metric]
    return Figures(
        metric,
        sorted(values, key=lambda pair: -pair[1]),
        sorted(findings, key=lambda pair: -pair[1].value),
    )
