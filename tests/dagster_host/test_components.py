"""The `dg` component of maintenance: its YAML attributes, its scaffold, its imports, and how `dg` finds it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from dagster.components.testing import create_defs_folder_sandbox

from ducklake_orch.dagster import DuckLakeMaintenanceComponent

ROOT = Path(__file__).parents[2]
# Dagster itself raises both warnings.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.parse_obj_as. is deprecated:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*is currently in beta"),
]


def test_yaml_attributes_configure_the_maintenance_component() -> None:
    attributes: dict[str, Any] = {
        "lake": "store",
        "file": "lake.toml",
        "operations": ["expire", "cleanup"],
        "policy": {"expire": {"older_than": "30 days"}},
        "cron_schedule": "0 1 * * *",
        "owners": ["team:data"],
    }
    yaml = {"type": f"{DuckLakeMaintenanceComponent.__module__}.DuckLakeMaintenanceComponent", "attributes": attributes}
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(DuckLakeMaintenanceComponent, defs_yaml_contents=yaml)
        (folder / "lake.toml").write_text('[lakes.x]\ncatalog = "sqlite:///x.sqlite"\ncreate_if_missing = true\n')
        with sandbox.load_component_and_build_defs(folder) as (_, definitions):
            schedule = definitions.resolve_schedule_def("store_maintenance")
            assert schedule.cron_schedule == "0 1 * * *"
            assert {spec.key.path[-1] for spec in definitions.resolve_all_asset_specs()} == {"expire", "cleanup"}
            assert {tuple(spec.owners) for spec in definitions.resolve_all_asset_specs()} == {("team:data",)}
            assert definitions.resolve_job_def("store_maintenance").execute_in_process().success
            assert (folder / "x.sqlite").exists()


def test_a_scaffolded_component_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKLAKE_CATALOG", f"sqlite:///{tmp_path / 'lake.sqlite'}")
    with create_defs_folder_sandbox() as sandbox:
        folder = sandbox.scaffold_component(DuckLakeMaintenanceComponent)
        assert (folder / "ducklake.toml").exists()
        with sandbox.load_component_and_build_defs(folder) as (_, definitions):
            result = definitions.resolve_job_def("lake_maintenance_plan").execute_in_process()
    assert result.success
    assert (tmp_path / "lake.sqlite").exists()


def test_importing_the_component_needs_neither_spark_nor_java() -> None:
    script = (
        "import sys; import ducklake_orch.dagster.components;"
        "assert not {'pyspark', 'py4j', 'airflow', 'pandas'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=os.environ | {"JAVA_HOME": "/none"}, check=True)


def test_dg_lists_the_components(tmp_path: Path) -> None:
    pytest.importorskip("dagster_dg_cli", reason="the first releases of dg need an older typer")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    # Metadata as an installer writes them, so that the test does not depend on how the package is installed.
    info = tmp_path / "ducklake_orch-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ducklake-orch\nVersion: 0.0.0\n")
    (module,) = declared["dagster_dg_cli.registry_modules"].values()
    (info / "entry_points.txt").write_text(f"[dagster_dg_cli.registry_modules]\nducklake_orch = {module}\n")
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{ROOT}", "DAGSTER_HOME": str(tmp_path)}
    command = [sys.executable, "-c", "from dagster_dg_cli.cli import main; main()", "list", "components", "--json"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    for name in ("DuckLakeComponent", "DuckLakeMaintenanceComponent"):
        assert f'ducklake_orch.dagster.components.{name}"' in done.stdout, done.stdout + done.stderr


def test_dg_checks_the_code_location(tmp_path: Path) -> None:
    pytest.importorskip("dagster_dg_cli", reason="the first releases of dg need an older typer")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "DAGSTER_HOME": str(tmp_path), "SHOP_FOLDER": str(tmp_path)}
    command = [sys.executable, "-c", "from dagster_dg_cli.cli import main; main()", "check", "defs"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "All definitions loaded successfully" in done.stdout + done.stderr
