"""Importing the package is fast, and loads neither an engine nor a host."""

import json
import pkgutil
import subprocess
import sys

import pytest

import ducklake_orch.config

HEAVY = ["duckdb", "pyarrow", "pandas", "polars", "pyspark", "dagster", "airflow", "sqlglot"]
CONFIG = [f"ducklake_orch.config.{module.name}" for module in pkgutil.iter_modules(ducklake_orch.config.__path__)]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


LIGHT = ["ducklake_orch", "ducklake_orch.config", "ducklake_orch.errors", "ducklake_orch.host_partitions"]


@pytest.mark.parametrize("modules", [LIGHT, CONFIG])
def test_importing_loads_no_engine_and_no_host(modules: list[str]) -> None:
    loaded = run(f"import json, sys, {', '.join(modules)}\nprint(json.dumps(sorted(sys.modules)))")
    assert set(HEAVY).isdisjoint(json.loads(loaded))


def test_importing_takes_less_than_a_third_of_a_second() -> None:
    code = (
        "from time import perf_counter\n"
        "start = perf_counter()\n"
        "import ducklake_orch, ducklake_orch.config\n"
        "print(perf_counter() - start)"
    )
    assert min(float(run(code)) for _ in range(3)) < 0.3


def test_public_names_resolve_on_first_use() -> None:
    code = (
        "import sys, ducklake_orch\n"
        "assert 'pydantic' not in sys.modules\n"
        "assert 'LakeConfig' in dir(ducklake_orch)\n"
        "print(ducklake_orch.LakeConfig.__name__)"
    )
    assert run(code).strip() == "LakeConfig"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        ducklake_orch.nonsense  # noqa: B018
