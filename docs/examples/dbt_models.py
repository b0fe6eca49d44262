"""dbt on the same lake: Spark writes orders, a model of dbt's sums them up in DuckDB, Spark reads what came of it.

    python docs/examples/dbt_models.py [FOLDER]

dbt is called as a program, `$DBT` or `dbt`, because it may live in an environment of its own: `make dbt` makes one in
`.venv-dbt`.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb

from ducklake_orch import DuckLake
from ducklake_orch.engine.extensions import find_wheel
from ducklake_orch.spark import local_session

PROJECT = """
name: shop
profile: shop
model-paths: [models]
models: { +materialized: table }
"""
PROFILE = """
shop:
  target: lake
  outputs:
    lake:
      type: duckdb
      path: ":memory:"
      database: lake            # models and sources are in the lake, not in memory
      schema: marts
      threads: 1                # a SQLite catalog takes one writer at a time
      config_options: {{ extension_directory: "{extensions}" }}
      attach:
        - {{ path: "ducklake:sqlite:{catalog}", alias: lake, is_ducklake: true }}
"""
SOURCES = """
version: 2
sources:
  - { name: sales, database: lake, schema: sales, tables: [{ name: orders }] }
models:
  - name: revenue
    columns: [{ name: region, data_tests: [unique, not_null] }]
"""
MODEL = """
SELECT region, count(*) AS orders, sum(amount) AS revenue
FROM {{ source('sales', 'orders') }} GROUP BY region
"""


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


def make_project(folder: Path, catalog: Path) -> None:
    """Write dbt's files."""
    offer_extensions(folder / "extensions")
    (folder / "models").mkdir(parents=True, exist_ok=True)
    (folder / "dbt_project.yml").write_text(PROJECT)
    (folder / "profiles.yml").write_text(PROFILE.format(catalog=catalog, extensions=folder / "extensions"))
    (folder / "models" / "schema.yml").write_text(SOURCES)
    (folder / "models" / "revenue.sql").write_text(MODEL)


def main(folder: Path) -> None:
    """Write, transform, read."""
    folder = folder.resolve()
    lake, spark = DuckLake.local(folder / "lake"), local_session("dbt")
    orders = spark.sql(
        "SELECT id, element_at(array('north', 'east', 'south'), CAST(id % 3 AS INT) + 1) AS region,"
        " CAST(id % 100 AS DECIMAL(9, 2)) AS amount FROM range(3000)"
    )
    lake.write(orders, "sales.orders", mode="overwrite", partition_by=["region"])
    make_project(folder / "shop", folder / "lake.sqlite")
    command = [os.environ.get("DBT", "dbt"), "build", "--quiet", "--project-dir", ".", "--profiles-dir", "."]
    subprocess.run(command, cwd=folder / "shop", check=True, env=os.environ | {"DBT_SEND_ANONYMOUS_USAGE_STATS": "0"})
    for row in lake.read("marts.revenue", spark).orderBy("region").collect():
        print(f"{row['region']:<6} {row['orders']:>5} orders {row['revenue']:>10} $")
    print("made by dbt:", ", ".join(sorted(table.table for table in lake.tables() if table.schema == "marts")))
    print("fsck:", "whole" if lake.fsck(deep=True).ok else "broken")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
