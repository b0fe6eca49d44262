"""Asset checks for the health of tables and for the consistency of the lake (fsck)."""

from collections.abc import Iterator, Sequence

import dagster as dg

from ducklake_orch.dagster.check_results import LAKE_METRICS, TABLE_METRICS, figures_of
from ducklake_orch.dagster.event_metadata import failures
from ducklake_orch.dagster.table_names import Assets, TableNames, specs_of
from ducklake_orch.engine.quoting import TableName
from ducklake_orch.errors import ObjectNotFoundError
from ducklake_orch.lake import DuckLake
from ducklake_orch.maintenance.selection import Selection
from ducklake_orch.results import Finding

CONSISTENT = "consistent"
# A check result shows this many findings.
_SHOWN = 20


def build_health_checks(
    assets: Assets,
    *,
    lake: str = "lake",
    schema: str | None = None,
    schema_prefix: str = "",
    fsck: bool = True,
) -> list[dg.AssetChecksDefinition]:
    """Return checks of the tables of assets and of their lake, graded by the policy of the lake.

    Each table is checked for small files, files per partition, deleted rows and inlined rows. The lake is checked for
    the number and age of its snapshots and for files that await deletion; its key is `<lake>/health`. A figure that
    reaches the first threshold of the policy is a warning, and the second threshold an error. One step computes all
    health checks.

    Args:
        assets: The assets; the IO manager's rules name their tables.
        lake: The key of the lake's resource.
        schema: `schema` of the IO manager.
        schema_prefix: `schema_prefix` of the IO manager.
        fsck: Also check that `lake.fsck()` finds nothing.
    """
    specs, names = specs_of(assets), TableNames(schema, schema_prefix)
    tables = {spec.key: names.of_asset(spec.key, spec.metadata) for spec in specs}
    lake_asset = dg.AssetKey([lake, "health"])
    checks = [dg.AssetCheckSpec(metric, asset=key) for key in tables for metric in TABLE_METRICS]
    checks += [dg.AssetCheckSpec(metric, asset=lake_asset) for metric in LAKE_METRICS]

    # `can_subset`: a job that selects some assets runs only their checks.
    @dg.multi_asset_check(name=f"{lake}_health", specs=checks, required_resource_keys={lake}, can_subset=True)
    def healthy(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with failures("The health of the lake was not checked", {}):
            opened: DuckLake = getattr(context.resources, lake).existing_lake()
            selected = _selected_checks(context)
            for key in selected.keys() & tables.keys():
                _refuse_missing(opened, tables[key])
            # A run that materializes some assets measures only their tables.
            health = opened.health(tables=None if lake_asset in selected else [tables[key] for key in selected])
            for key, metrics in selected.items():
                selection = Selection(tables=[tables[key]] if key in tables else None)
                for metric in metrics:
                    yield figures_of(health, metric, selection).check(metric, key)

    if not fsck:
        return [healthy]
    consistency = [dg.AssetCheckSpec(CONSISTENT, asset=key) for key in tables]

    @dg.multi_asset_check(name=f"{lake}_fsck", specs=consistency, required_resource_keys={lake}, can_subset=True)
    def consistent(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with failures("The lake was not checked", {}):
            selected = _selected_checks(context)
            report = getattr(context.resources, lake).lake().fsck(tables=[tables[key] for key in selected])
        for key in selected:
            # A finding without a table concerns all tables.
            yield consistency_check(
                [finding for finding in report.findings if finding.table in (None, str(tables[key]))], key
            )

    return [healthy, consistent]


def consistency_check(findings: Sequence[Finding], asset: dg.AssetKey | None = None) -> dg.AssetCheckResult:
    """Return the findings of fsck as the result of a check. Findings of severity `info` pass."""
    problems = [finding for finding in findings if finding.severity != "info"]
    error = any(finding.severity == "error" for finding in problems)
    shown = [f"- {finding}\n  - {finding.effect}\n  - {finding.remedy}" for finding in problems[:_SHOWN]]
    return dg.AssetCheckResult(
        passed=not problems,
        check_name=CONSISTENT,
        asset_key=asset,
        severity=dg.AssetCheckSeverity.ERROR if error else dg.AssetCheckSeverity.WARN,
        metadata={
            "ducklake/findings": len(problems),
            **({"ducklake/report": dg.MetadataValue.md("\n".join(shown))} if shown else {}),
        },
    )


def _selected_checks(context: dg.AssetCheckExecutionContext) -> dict[dg.AssetKey, list[str]]:
    """Return the selected checks of a run, by asset."""
    selected: dict[dg.AssetKey, list[str]] = {}
    for key in sorted(context.selected_asset_check_keys):
        selected.setdefault(key.asset_key, []).append(key.name)
    return selected


def _refuse_missing(lake: DuckLake, table: TableName) -> None:
    if not lake.exists(str(table)):
        raise ObjectNotFoundError(f"Lake `{lake.config.name}` has no table `{table}`.", remedy="Materialize its asset.")
