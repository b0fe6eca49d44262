"""Asset checks for the health of tables and for the consistency of the lake (fsck)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import dagster as dg

from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.dagster import descriptions
from ducklake_orch.dagster.check_results import LAKE_METRICS, TABLE_METRICS, figures_of
from ducklake_orch.dagster.event_metadata import failures
from ducklake_orch.dagster.table_names import DEFAULT_SCHEMA, Assets, TableNames, specs_of
from ducklake_orch.engine.quoting import TableName, table_name
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
    schema: str = DEFAULT_SCHEMA,
    schema_prefix: str = "",
    fsck: bool = True,
) -> list[dg.AssetChecksDefinition]:
    """Return checks of the tables of assets and of their lake, graded by the policy of the lake.

    Each table is checked for small files, files per partition, deleted rows and inlined rows. The lake is checked for
    the number and age of its snapshots and for files that await deletion; its key is `<lake>/health`. A figure that
    reaches the first threshold of the policy is a warning, and the second threshold an error. One step computes all
    health checks.

    A run that materializes some of the assets evaluates the checks of their tables. If Dagster maintains the lake, pass
    the assets to `build_maintenance_definitions(checked_assets=…)` instead: its job evaluates all checks. Otherwise
    give the checks a job: `dg.define_asset_job("health", dg.AssetSelection.checks(*checks))`.

    Args:
        assets: The assets; the IO manager's rules name their tables.
        lake: The key of the lake's resource.
        schema: `schema` of the IO manager.
        schema_prefix: `schema_prefix` of the IO manager.
        fsck: Also check that `lake.fsck()` finds nothing.
    """
    checks = health_checks(assets, lake, TableNames(schema, schema_prefix), name=lake)
    return checks if fsck else checks[:1]


def health_checks(
    assets: Assets,
    lake: str,
    names: TableNames,
    *,
    name: str,
    policy: MaintenancePolicy | Mapping[str, Any] | None = None,
    after: Sequence[dg.AssetKey] = (),
) -> list[dg.AssetChecksDefinition]:
    """Return the checks of health and the checks of consistency.

    Args:
        assets: The assets.
        lake: The key of the lake's resource.
        names: The rule that names tables.
        name: The prefix of the names: `<name>/health` is the key of the lake's checks.
        policy: Fields that override the policy in the lake's configuration, or a whole policy instead of it.
        after: Assets that a run materializes before it evaluates the checks.
    """
    tables = {spec.key: names.of_asset(spec.key, spec.metadata) for spec in specs_of(assets)}
    lake_asset = health_key(name)

    def spec(check: str, asset: dg.AssetKey, description: str) -> dg.AssetCheckSpec:
        return dg.AssetCheckSpec(check, asset=asset, description=description, additional_deps=after)

    checks = [spec(metric, key, descriptions.of_figure(metric)) for key in tables for metric in TABLE_METRICS]
    checks += [spec(metric, lake_asset, descriptions.of_figure(metric)) for metric in LAKE_METRICS]

    # `can_subset`: a job that selects some assets runs only their checks.
    @dg.multi_asset_check(
        name=f"{name}_health",
        specs=checks,
        description=f"Measures the lake `{lake}` and grades its figures. `ducklake-orch health` does the same.",
        required_resource_keys={lake},
        can_subset=True,
    )
    def healthy(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with failures("The health of the lake was not checked", {}):
            opened: DuckLake = getattr(context.resources, lake).existing_lake()
            selected = _selected_checks(context)
            stored = _stored(opened, tables)
            yield from _not_stored(opened, selected, tables, stored)
            measured = [key for key in selected if key in stored or key == lake_asset]
            if not measured:
                return
            # A run that materializes some assets measures only their tables.
            some = None if lake_asset in selected else [stored[key] for key in measured]
            health = opened.health(policy, tables=some)
            for key in measured:
                selection = Selection(tables=[stored[key]] if key in stored else None)
                for metric in selected[key]:
                    yield figures_of(health, metric, selection).check(metric, key)

    about = descriptions.of_consistency("the table")
    consistency = [spec(CONSISTENT, key, about) for key in tables]

    @dg.multi_asset_check(
        name=f"{name}_fsck",
        specs=consistency,
        description=f"Checks tables of the lake `{lake}`. `ducklake-orch fsck` does the same.",
        required_resource_keys={lake},
        can_subset=True,
    )
    def consistent(context: dg.AssetCheckExecutionContext) -> Iterator[dg.AssetCheckResult]:
        with failures("The lake was not checked", {}):
            opened: DuckLake = getattr(context.resources, lake).existing_lake()
            selected = _selected_checks(context)
            stored = _stored(opened, tables)
            yield from _not_stored(opened, selected, tables, stored)
            checked = {key: stored[key] for key in selected if key in stored}
            findings = _findings(opened, list(checked.values())) if checked else []
            for key, table in checked.items():
                # A finding without a table concerns all tables.
                yield consistency_check([finding for finding in findings if finding.table in (None, str(table))], key)

    return [healthy, consistent]


def health_key(name: str) -> dg.AssetKey:
    """Return the key under which the health of a whole lake is checked."""
    return dg.AssetKey([name, "health"])


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
        description=f"{len(problems)} found, such as: {problems[0]}" if problems else None,
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


def _findings(lake: DuckLake, tables: Sequence[TableName]) -> Sequence[Finding]:
    """Return the findings of fsck on some tables."""
    report = lake.fsck(tables=tables)
    if len(tables) == 1 or len(report.findings) == sum(report.counts.values()):
        return report.findings
    # A report lists only the first findings of each code, so that one bad table can hide another.
    return list(dict.fromkeys(finding for table in tables for finding in lake.fsck(tables=[table]).findings))


def _stored(lake: DuckLake, tables: Mapping[dg.AssetKey, TableName]) -> dict[dg.AssetKey, TableName]:
    """Return the tables that exist, as the catalog spells their names."""
    known = [TableName(table.schema, table.table) for table in lake.tables()]
    return {key: found for key, name in tables.items() for found in known if name.names(*found)}


def _not_stored(
    lake: DuckLake,
    selected: Mapping[dg.AssetKey, Sequence[str]],
    tables: Mapping[dg.AssetKey, TableName],
    stored: Mapping[dg.AssetKey, TableName],
) -> Iterator[dg.AssetCheckResult]:
    """Return the results of the selected checks of assets that have no table; they pass if the table is staged."""
    missing = {key: table for key, table in tables.items() if key not in stored}
    wanted = [(key, check) for key, checks in selected.items() if key in missing for check in checks]
    stages = [stage for stage in lake.stages() if stage.status == "open"] if wanted else []
    for key, check in wanted:
        staged = any(missing[key].names(*table_name(table)) for stage in stages for table in stage.tables)
        todo = "its table is staged, and waits to be published" if staged else "materialize it"
        yield dg.AssetCheckResult(
            passed=staged,
            check_name=check,
            asset_key=key,
            severity=dg.AssetCheckSeverity.WARN,
            description=f"Lake `{lake.config.name}` has no table of this asset yet: {todo}.",
        )
