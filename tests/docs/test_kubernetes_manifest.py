"""The Kubernetes manifest parses, its references exist, and driver and executors mount the same files."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from tests.docs.pages import REPOSITORY

yaml = pytest.importorskip("yaml")
PAGE = REPOSITORY / "docs" / "scaling.md"


@pytest.fixture(scope="module")
def objects() -> dict[tuple[str, str], Any]:
    (text,) = re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return {(document["kind"], document["metadata"]["name"]): document for document in yaml.safe_load_all(text)}


def pods(objects: dict[tuple[str, str], Any]) -> Iterator[dict[str, Any]]:
    yield objects["Job", "orders"]["spec"]["template"]["spec"]
    yield objects["CronJob", "lake-maintenance"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]


def test_volumes_secrets_and_accounts_exist(objects: dict[tuple[str, str], Any]) -> None:
    for pod in pods(objects):
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert ("PersistentVolumeClaim", volumes["lake"]["persistentVolumeClaim"]["claimName"]) in objects
        assert ("ConfigMap", volumes["config"]["configMap"]["name"]) in objects
        assert all(("Secret", source["secretRef"]["name"]) in objects for source in container["envFrom"])
        assert ("ServiceAccount", pod.get("serviceAccountName", "spark")) in objects
    binding = objects["RoleBinding", "spark"]
    assert ("Role", binding["roleRef"]["name"]) in objects
    assert [("ServiceAccount", subject["name"]) in objects for subject in binding["subjects"]] == [True]


def test_executors_and_driver_mount_the_same_volumes(objects: dict[tuple[str, str], Any]) -> None:
    job, _ = pods(objects)
    (driver,) = job["containers"]
    settings = dict(
        argument.removeprefix("--conf=").split("=", 1) for argument in driver["args"] if argument.startswith("--conf=")
    )
    mounts = {mount["name"]: mount["mountPath"] for mount in driver["volumeMounts"]}
    volume = "spark.kubernetes.executor.volumes.persistentVolumeClaim.lake"
    assert settings[f"{volume}.mount.path"] == mounts["lake"]
    assert ("PersistentVolumeClaim", settings[f"{volume}.options.claimName"]) in objects
    assert settings["spark.kubernetes.container.image"] == driver["image"]


def test_the_configuration_is_valid_and_its_files_are_on_the_shared_volume(
    objects: dict[tuple[str, str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = objects["ConfigMap", "lake"]["data"]
    (tmp_path / "ducklake.toml").write_text(data["ducklake.toml"])
    for name, value in objects["Secret", "lake"]["stringData"].items():
        monkeypatch.setenv(name, value)
    lake = DuckLake.from_toml(tmp_path / "ducklake.toml")
    assert lake.config.catalog.type == "postgres"
    assert str(lake.config.data_path).startswith("/lake/")
    assert lake.config.maintenance.budget_s == 7200
    compile(data["job.py"], "job.py", "exec")


def test_the_nightly_job_runs_an_existing_command(objects: dict[tuple[str, str], Any]) -> None:
    from ducklake_orch.cli.program import app

    _, night = pods(objects)
    program, command, *_ = night["containers"][0]["command"]
    assert program == app.info.name
    assert command in {registered_command.name for registered_command in app.registered_commands}
