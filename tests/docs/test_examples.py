"""The examples in `docs/examples` run unchanged, and print the output shown on their page."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.docs.pages import REPOSITORY
from tests.servers.postgres import PostgresServer

EXAMPLES = REPOSITORY / "docs" / "examples"
PAGE = REPOSITORY / "docs" / "examples.md"
needs_spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="needs pyspark")


def expected(name: str) -> str:
    """Return the output of an example on the page: the text block after its command."""
    (text,) = re.findall(
        rf"python docs/examples/{name}[^\n]*\n```\n\n```text\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    return str(text)


def run(name: str, folder: Path, python: str | Path = sys.executable, **environ: str) -> str:
    env = os.environ | {"PYTHONPATH": str(REPOSITORY)} | environ
    command = [str(python), str(EXAMPLES / name), str(folder)]
    completed = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=280, check=False)
    assert completed.returncode == 0, completed.stderr[-4000:] + completed.stdout[-2000:]
    return completed.stdout


def test_every_example_is_on_the_page_and_tested() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert expected(path.name)
        assert f'"{path.name}"' in Path(__file__).read_text("utf-8")


@needs_spark
def test_the_taxi_example_runs_twice_with_the_same_result(tmp_path: Path) -> None:
    assert run("taxi.py", tmp_path) == expected("taxi.py")
    assert run("taxi.py", tmp_path) == expected("taxi.py")


def test_the_cdc_example_applies_postgres_changes_once(tmp_path: Path, postgres: PostgresServer) -> None:
    database = f"shop_{os.getpid()}"
    postgres.create_database(database)
    assert run("cdc.py", tmp_path, DATABASE_URL=postgres.url(database)) == expected("cdc.py")


@pytest.fixture
def dbt() -> str:
    """The program of dbt."""
    found = os.environ.get("DBT") or shutil.which(
        "dbt", path=f"{REPOSITORY / '.venv-dbt' / 'bin'}{os.pathsep}{os.defpath}"
    )
    if found is None:
        pytest.skip("dbt is not installed; run `make dbt`")
    return found


@needs_spark
def test_the_dbt_example_reads_spark_tables_and_spark_reads_its_models(tmp_path: Path, dbt: str) -> None:
    for _ in range(2):  # the second run replaces existing tables
        assert run("dbt_models.py", tmp_path, DBT=dbt) == expected("dbt_models.py")


def test_dbt_models_are_assets_between_those_of_the_io_manager(tmp_path: Path, dbt: str) -> None:
    python = Path(dbt).with_name("python")
    needed = "import dagster_dbt, pyarrow"
    if not python.exists() or subprocess.run([python, "-c", needed], capture_output=True, check=False).returncode:
        pytest.skip("dagster-dbt is not installed beside dbt; run `make dbt`")
    for _ in range(2):  # the second run replaces existing tables
        assert run("dbt_assets.py", tmp_path, python) == expected("dbt_assets.py")
