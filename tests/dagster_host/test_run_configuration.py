"""Run config sets single fields of a lake, its IO manager and its assets, as the page about Dagster shows."""

import re
import textwrap
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import yaml

from ducklake_orch import DuckLake
from ducklake_orch.dagster import DuckLakeFileResource, DuckLakeIOManager, DuckLakeResource, SQLiteCatalog
from ducklake_orch.errors import ConfigError
from tests.docs.pages import DOCS, blocks
from tests.support.dagster_runs import metadata_of

PAGE = DOCS / "dagster.md"
Job = Any


def block(containing: str) -> str:
    """Return the only block of the page with a text."""
    (code,) = [code for _, code in blocks(PAGE, "python") if containing in code]
    return code


def executed(code: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run a block of the page in a folder with the page's lake."""
    monkeypatch.chdir(folder)
    lake = DuckLake.from_url("shop", catalog="sqlite:///shop.sqlite", storage="./shop.files", create_if_missing=True)
    lake.write(pa.table({"region": ["eu", "us"], "price": [3.0, 4.0]}), "raw.orders", mode="append")
    names: dict[str, Any] = {"__name__": "__docs__", "DuckLake": DuckLake, "dg": dg, "lake": lake}
    exec(compile(code, str(PAGE), "exec"), names)
    return names


def test_the_run_config_of_the_page_appends_and_is_the_same_in_yaml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = executed(block("class Load"), tmp_path, monkeypatch)
    (text,) = re.findall(r"The same in the launchpad:\n\n```yaml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    in_yaml = yaml.safe_load(text)
    given = names["run_config"].to_config_dict()
    assert {part: given[part] for part in ("ops", "resources")} == in_yaml
    assert names["lake"].table("sales.regions").count() == 4
    assert names["job"].execute_in_process(run_config=in_yaml).success
    assert names["lake"].table("sales.regions").count() == 6
    assert names["job"].execute_in_process().success
    assert names["lake"].table("sales.regions").count() == 2


@dg.asset
def numbers() -> pa.Table:
    return pa.table({"id": [1, 2, 3]})


@pytest.fixture
def fields(tmp_path: Path) -> dict[str, Any]:
    return {"name": "lake", "catalog": f"sqlite:///{tmp_path}/c.sqlite", "storage": f"{tmp_path}/files"}


def job_of(resource: Any, *assets: dg.AssetsDefinition, manager: Any = None) -> Job:
    resources = {"lake": resource, "io_manager": manager or DuckLakeIOManager(lake=resource)}
    return dg.Definitions(assets=assets, resources=resources).resolve_implicit_global_asset_job_def()


def test_a_run_reads_the_lake_as_it_was(fields: dict[str, Any]) -> None:
    seen: list[list[int]] = []

    @dg.asset
    def look(numbers: pa.Table, lake: DuckLakeResource) -> None:
        seen.append(numbers["id"].to_pylist())

    lake = DuckLake.from_url(**fields, create_if_missing=True)
    first = lake.write(pa.table({"id": [7]}), "numbers", mode="append").snapshot_id
    lake.write(pa.table({"id": [8]}), "numbers", mode="append")
    job = job_of(DuckLakeResource.configure_at_launch(**fields), numbers, look)
    for config in ({}, {"resources": {"lake": {"config": {"snapshot": first}}}}):
        assert job.execute_in_process(run_config=config, asset_selection=[look.key]).success
    assert seen == [[7, 8], [7]]


def test_the_catalog_and_the_schemas_of_a_run_can_be_others(fields: dict[str, Any], tmp_path: Path) -> None:
    resource = DuckLakeResource.configure_at_launch(**fields, create_if_missing=True)
    job = job_of(resource, numbers, manager=DuckLakeIOManager(lake=resource, schema_prefix="prod_"))
    other = {
        "catalog": {"sqlite": {"path": f"{tmp_path}/other.sqlite"}},
        "storage": {"local": {"path": f"{tmp_path}/o"}},
    }
    configs: list[dict[str, Any]] = [
        {},
        {"io_manager": {"config": {"schema_prefix": "try_"}}},
        {"lake": {"config": other}},
    ]
    for config in configs:
        assert job.execute_in_process(run_config={"resources": config}).success
    lakes = [fields, {**fields, "catalog": f"sqlite:///{tmp_path}/other.sqlite", "storage": f"{tmp_path}/o"}]
    tables = [[table.schema for table in DuckLake.from_url(**lake).tables()] for lake in lakes]
    assert tables == [["prod_main", "try_main"], ["prod_main"]]


def test_models_and_environment_variables_are_kept_until_the_run(
    fields: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields["catalog"] = SQLiteCatalog(path=dg.EnvVar("LAKE_PATH"))
    job = job_of(DuckLakeResource.configure_at_launch(**fields, create_if_missing=True), numbers)
    for name in ("one", "two"):
        monkeypatch.setenv("LAKE_PATH", f"{tmp_path}/{name}.sqlite")
        assert job.execute_in_process(run_config={"resources": {"lake": {"config": {"threads": 1}}}}).success
        assert (tmp_path / f"{name}.sqlite").exists()


def test_a_run_chooses_the_profile_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ducklake.toml"
    file.write_text(
        textwrap.dedent(f"""
        [lakes.shop]
        catalog = "sqlite:///{tmp_path}/prod.sqlite"
        storage = "{tmp_path}/prod"
        create_if_missing = true
        [profiles.staging.lakes.shop]
        catalog = "sqlite:///{tmp_path}/staging.sqlite"
        """)
    )
    job = job_of(DuckLakeFileResource.configure_at_launch(path=str(file)), numbers)
    assert job.execute_in_process(run_config={"resources": {"lake": {"config": {"profile": "staging"}}}}).success
    assert (tmp_path / "staging.sqlite").exists()
    assert not (tmp_path / "prod.sqlite").exists()


def test_mistakes_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="thread"):
        DuckLakeResource.configure_at_launch(**fields, thread=1)
    with pytest.raises(dg.DagsterInvalidConfigError, match="thread"):
        job_of(DuckLakeResource.configure_at_launch(**fields), numbers).execute_in_process(
            run_config={"resources": {"lake": {"config": {"thread": 1}}}}
        )


@pytest.mark.filterwarnings("default")  # Dagster's own Pipes client raises warnings
def test_the_pipes_program_of_the_page_appends_once_per_run_and_partition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = executed(block("load_visits.py"), tmp_path, monkeypatch)
    lake, visits = names["lake"], names["visits"]
    assert lake.read("web.visits").to_pylist() == [{"region": "eu", "visits": 7}]
    assert lake.snapshots(1)[0].extra["dagster"]["partitions"] == ["eu"]
    program = tmp_path / "load_visits.py"
    program.write_text(
        program.read_text() + "\nmark = __import__('pathlib').Path('tried')\n"
        "if not mark.exists():\n    mark.touch()\n    raise SystemExit('the answer is lost')\n"
    )
    result = dg.materialize([visits], partition_key="us", resources={"pipes": dg.PipesSubprocessClient()})
    assert result.success
    assert [event.is_step_up_for_retry for event in result.all_events].count(True) == 1
    assert sorted(row["region"] for row in lake.read("web.visits").to_pylist()) == ["eu", "us"]
    assert metadata_of(result, "web/visits", "us")["ducklake/snapshot_id"] == lake.snapshots(1)[0].snapshot_id
