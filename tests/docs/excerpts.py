"""Writes the excerpts of the pages (`py` blocks) as modules, so that mypy checks that all called names exist.

Names that readers define, such as a frame, have the type `Any`.
"""

import re
import textwrap
from pathlib import Path

from tests.docs.pages import PAGES, REPOSITORY, blocks, name_of

OUT = REPOSITORY / "build" / "excerpts"
_GIVEN = """
from typing import Any

import pandas
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import CommitInfo, DuckLake
from ducklake_orch.spark import local_session

spark: SparkSession
"""
_LAKE = "lake: DuckLake\n"
# Imports that pages about a host assume; on these pages a lake is a resource.
_HOSTS = {
    "dagster.md": """
import dagster as dg
import ducklake_orch.spark.submit
from ducklake_orch.dagster import *

DAYS: dg.DailyPartitionsDefinition
orders: dg.AssetsDefinition
lake: DuckLakeResource
""",
    "airflow.md": """
from airflow.providers.common.sql.operators.sql import SQLExecuteQueryOperator
from airflow.sdk import DAG, AssetWatcher, task
from ducklake_orch.airflow import *
""",
}
# Names that readers define.
_THEIRS = {
    "airflow.md": ["df", "orders_of", "rows"],
    "migration.md": ["first", "last", "path"],
    "streaming.md": ["events"],
}


def write(folder: Path) -> None:
    """Write a module for each page, replacing existing ones."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for page in PAGES:
        functions = [_function(line, code) for line, code in blocks(page, "py")]
        if functions:
            theirs = [f"{name}: Any\n" for name in _THEIRS.get(name_of(page), [])]
            given = _GIVEN + _HOSTS.get(name_of(page), _LAKE) + "".join(theirs)
            module = re.sub(r"\W", "_", name_of(page).removesuffix(".md"))
            (folder / f"{module}.py").write_text(given + "".join(functions), "utf-8")


def _function(line: int, code: str) -> str:
    """Return a block as a function, named after its line."""
    return f"\n\ndef line_{line + 1}() -> None:\n" + textwrap.indent(code, "    ")


if __name__ == "__main__":
    write(OUT)
