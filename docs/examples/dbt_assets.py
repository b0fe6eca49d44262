"""Dagster and dbt on one lake, in one asset graph: an asset, a dbt model that reads it, an asset that reads the model.

    make dbt
    .venv-dbt/bin/python docs/examples/dbt_assets.py [FOLDER]

The key of a dbt source or model is the schema and the name of its table, as those of our assets are. So dbt's source
`sales.orders` is our asset `sales/orders`, and our asset reads the model `marts.revenue` as the asset `marts/revenue`.
"""

import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
import pyarrow as pa
from dagster_dbt import DagsterDbtTranslator, DbtCliResource, dbt_assets

from ducklake_orch.dagster import DuckLakeIOManager, DuckLakeResource
from ducklake_orch.engine.extensions import find_wheel

PROJECT = {"name": "shop", "profile": "shop", "model-paths": ["models"], "models": {"+materialized": "table"}}
SOURCES = {
    "version": 2,
    "sources": [{"name": "sales", "database": "lake", "schema": "sales", "tables": [{"name": "orders"}]}],
    "models": [{"name": "revenue", "columns": [{"name": "region", "data_tests": ["unique", "not_null"]}]}],
}
MODEL = """
SELECT region, count(*) AS orders, sum(amount) AS revenue
FROM {{ source('sales', 'orders') }} GROUP BY region
"""


class LakeKeys(DagsterDbtTranslator):
    """Names the assets of dbt as the IO manager names their tables: schema and table."""

    def get_asset_key(self, dbt_resource_props: Mapping[str, Any]) -> dg.AssetKey:
        """Return the key of a model or source."""
        name = dbt_resource_props.get("identifier") or dbt_resource_props.get("alias") or dbt_resource_props["name"]
        return dg.AssetKey([dbt_resource_props["schema"], name])


@dg.asset(key_prefix="sales")
def orders() -> pa.Table:
    """Return the orders, which the IO manager writes to `sales.orders`."""
    regions = ["north", "east", "south"]
    return pa.table({"region": [regions[n % 3] for n in range(3000)], "amount": [n % 100 for n in range(3000)]})


@dg.asset(key_prefix="reports", ins={"revenue": dg.AssetIn(["marts", "revenue"])})
def best_region(revenue: pa.Table) -> pa.Table:
    """Return the region with the highest revenue, from the table that dbt has made."""
    return revenue.sort_by([("revenue", "descending"), ("region", "ascending")]).slice(0, 1)


def make_project(folder: Path, catalog: Path) -> None:
    """Write dbt's files. They are YAML, of which JSON is a part."""
    output = {
        "type": "duckdb",
        "path": ":memory:",
        "database": "lake",  # models and sources are in the lake, not in memory
        "schema": "marts",
        "threads": 1,  # a SQLite catalog takes one writer at a time
        "config_options": {"extension_directory": str(folder / "extensions")},
        "attach": [{"path": f"ducklake:sqlite:{catalog}", "alias": "lake", "is_ducklake": True}],
    }
    profiles = {"shop": {"target": "lake", "outputs": {"lake": output}}}
    offer_extensions(folder / "extensions")
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "dbt_project.yml").write_text(json.dumps(PROJECT))
    (folder / "profiles.yml").write_text(json.dumps(profiles))
    (folder / "models" / "schema.yml").write_text(json.dumps(SOURCES))
    (folder / "models" / "revenue.sql").write_text(MODEL)


def offer_extensions(folder: Path) -> None:
    """Put the extensions of the wheels where DuckDB looks for them, so that dbt's does not ask the network."""
    with duckdb.connect() as con:
        (platform,) = con.execute("PRAGMA platform").fetchone() or ("",)
    place = folder / f"v{duckdb.__version__}" / platform
    place.mkdir(parents=True, exist_ok=True)
    for name in ("ducklake", "sqlite_scanner"):
        wheel = find_wheel(name)
        if wheel is not None and wheel.file is not None:
            shutil.copy(wheel.file, place)


def definitions(folder: Path) -> dg.Definitions:
    """Return the assets of both, on one lake."""
    project = folder / "shop"
    make_project(project, folder / "lake.sqlite")
    dbt = DbtCliResource(
        project_dir=project, profiles_dir=project, dbt_executable=Path(sys.executable).with_name("dbt")
    )
    manifest = dbt.cli(["parse"], target_path=project / "target").wait().target_path / "manifest.json"

    @dbt_assets(manifest=manifest, dagster_dbt_translator=LakeKeys())
    def models(context: dg.AssetExecutionContext, dbt: DbtCliResource) -> Iterator[Any]:
        yield from dbt.cli(["build"], context=context).stream()

    lake = DuckLakeResource(
        name="lake",
        catalog=f"sqlite:///{folder}/lake.sqlite",
        storage=str(folder / "lake.files"),
        create_if_missing=True,
    )
    return dg.Definitions(
        assets=[orders, models, best_region],
        resources={"lake": lake, "io_manager": DuckLakeIOManager(lake=lake), "dbt": dbt},
    )


def main(folder: Path) -> None:
    """Materialize all assets in one run, and print what came of it."""
    folder = folder.resolve()
    with contextlib.redirect_stdout(sys.stderr):  # dbt's log
        defs = definitions(folder)
        graph = defs.resolve_asset_graph()
        result = defs.resolve_implicit_global_asset_job_def().execute_in_process()
        lake = defs.resources["lake"].lake()  # type: ignore[index]
    for key in graph.toposorted_asset_keys:
        parents = ", ".join(sorted(parent.to_user_string() for parent in graph.get(key).parent_keys))
        print(f"{key.to_user_string()} <- {parents}" if parents else key.to_user_string())
    checks = result.get_asset_check_evaluations()
    print("dbt's tests:", ", ".join(sorted(f"{check.check_name} {check.passed}" for check in checks)))
    print("best region:", lake.read("reports.best_region").to_pylist())
    print("written by Dagster:", sorted(snapshot.extra["dagster"]["asset"] for snapshot in by_dagster(lake)))
    print("fsck:", "whole" if lake.fsck(deep=True).ok else "broken")


def by_dagster(lake: Any) -> list[Any]:
    """Return the last snapshot that each of our assets wrote."""
    return [snapshot for snapshot in lake.snapshots() if snapshot.author == "dagster"][:2]


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
