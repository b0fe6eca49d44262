"""The example of a Spark cluster: compose file and manifests fit together, and its commands run on a real cluster."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.cli.program import app
from tests.docs.pages import REPOSITORY
from tests.servers.base import LOOPBACK
from tests.servers.postgres import PostgresServer
from tests.servers.s3 import VersityS3
from tests.servers.spark_cluster import SparkCluster
from tests.support.lakes import Servers

yaml = pytest.importorskip("yaml")
EXAMPLE = REPOSITORY / "docs" / "examples" / "cluster"
DOCKERFILE = (EXAMPLE / "Dockerfile").read_text("utf-8")
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
SERVICES = yaml.safe_load((EXAMPLE / "compose.yaml").read_text("utf-8"))["services"]
OBJECTS: dict[tuple[str, str], Any] = {
    (document["kind"], document["metadata"]["name"]): document
    for document in yaml.safe_load_all((EXAMPLE / "kubernetes.yaml").read_text("utf-8"))
}
JOB = OBJECTS["Job", "orders"]["spec"]["template"]["spec"]
NIGHT = OBJECTS["CronJob", "lake-maintenance"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
COMMANDS = {
    "compose write": SERVICES["write"]["command"],
    "compose maintain": SERVICES["maintain"]["command"],
    "kubernetes write": JOB["containers"][0]["command"] + JOB["containers"][0]["args"],
    "kubernetes maintain": NIGHT["containers"][0]["command"],
}


def pinned(package: str) -> str:
    constraints = (REPOSITORY / "constraints.txt").read_text("utf-8")
    (version,) = re.findall(rf"^{package}==(.+)$", constraints, re.MULTILINE)
    return str(version)


def test_the_image_has_the_tested_spark_and_what_the_wheel_is_built_from() -> None:
    assert f"FROM apache/spark:{pinned('pyspark')} AS spark" in DOCKERFILE
    copied = set(re.findall(r"^COPY (?!--from)(.+) /src/\S*$", DOCKERFILE, re.MULTILINE))
    needed = {"pyproject.toml", "constraints.txt", PROJECT["project"]["readme"], *PROJECT["project"]["license-files"]}
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {name for names in copied for name in names.split()} == needed | {
        *wheel["packages"],
        *wheel["force-include"],
    }


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_commands_exist_in_the_image_and_read_the_mounted_files(command: list[str]) -> None:
    program, *arguments = command
    if program == app.info.name:
        assert arguments[0] in {registered.name for registered in app.registered_commands}
    else:
        assert program == "/opt/spark/bin/spark-submit"
    mounted = [argument for argument in arguments if argument.startswith("/etc/lake/")]
    assert mounted
    assert all((EXAMPLE / Path(path).name).exists() for path in mounted)


def test_compose_services_use_one_image_and_wait_for_services_that_exist() -> None:
    own = [service for service in SERVICES.values() if "build" in service]
    assert {service["image"] for service in own} == {"spark-ducklake:1"}
    (build,) = {json.dumps(service["build"]) for service in own}
    context = (EXAMPLE / json.loads(build)["context"]).resolve()
    assert (context / json.loads(build)["dockerfile"]).samefile(EXAMPLE / "Dockerfile")
    for service in SERVICES.values():
        assert set(service.get("depends_on", ())) <= set(SERVICES)
    addresses = {SERVICES["write"]["environment"][name] for name in ("PGHOST", "S3_ENDPOINT")}
    assert addresses == {"postgres", f"http://s3{SERVICES['s3']['command'][1]}"}
    master = SERVICES["master"]["command"]
    url = f"spark://{master[master.index('--host') + 1]}:{master[master.index('--port') + 1]}"
    assert f"--master={url}" in SERVICES["write"]["command"]
    assert url in SERVICES["worker"]["command"]


def test_volumes_secrets_and_accounts_of_the_manifest_exist() -> None:
    generated = yaml.safe_load((EXAMPLE / "kustomization.yaml").read_text("utf-8"))
    (config,) = generated["configMapGenerator"]
    assert generated["resources"] == ["kubernetes.yaml"]
    assert all((EXAMPLE / name).exists() for name in config["files"])
    for pod in (JOB, NIGHT):
        (container,) = pod["containers"]
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
        assert volumes["config"]["configMap"]["name"] == config["name"]
        assert all(("Secret", source["secretRef"]["name"]) in OBJECTS for source in container["envFrom"])
        assert ("ServiceAccount", pod.get("serviceAccountName", "spark")) in OBJECTS
        assert f"docker build -t {container['image']} -f docs/examples/cluster/Dockerfile ." in DOCKERFILE
    assert f"--conf=spark.kubernetes.container.image={JOB['containers'][0]['image']}" in JOB["containers"][0]["args"]
    binding = OBJECTS["RoleBinding", "spark"]
    assert ("Role", binding["roleRef"]["name"]) in OBJECTS
    assert [("ServiceAccount", subject["name"]) in OBJECTS for subject in binding["subjects"]] == [True]


@pytest.mark.parametrize(
    "login", [SERVICES["write"]["environment"], OBJECTS["Secret", "lake"]["stringData"]], ids=["compose", "kubernetes"]
)
def test_the_configuration_is_valid_with_the_given_environment(
    login: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in login.items():
        monkeypatch.setenv(name, value)
    config = DuckLake.from_toml(EXAMPLE / "ducklake.toml").config
    assert config.catalog.type == "postgres"
    assert str(config.data_path).startswith("s3://lake/analytics")


@pytest.fixture
def login(servers: Servers, postgres: PostgresServer, versity_s3: VersityS3) -> dict[str, str]:
    """The environment of the jobs, for the servers of the tests."""
    postgres.create_database("lake")
    postgres.create_role("lake", "change-me", superuser=True)
    versity_s3.create_bucket("lake")
    return {
        "PGHOST": postgres.host,
        "PGPORT": str(postgres.port),
        "PGPASSWORD": "change-me",
        "S3_ENDPOINT": f"http://{versity_s3.endpoint}",
        "AWS_ACCESS_KEY_ID": versity_s3.access_key_id,
        "AWS_SECRET_ACCESS_KEY": versity_s3.secret_access_key,
    }


def test_the_commands_run_on_a_cluster_and_a_repeated_job_writes_once(
    servers: Servers, login: dict[str, str], tmp_path: Path
) -> None:
    pyspark = pytest.importorskip("pyspark")
    cluster = servers.get(SparkCluster)
    spark_home = Path(pyspark.__file__).parent
    environment = {"SPARK_HOME": str(spark_home), "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    environment |= {**login, "TMPDIR": str(tmp_path), "PYTHONPATH": str(REPOSITORY)}

    def run(name: str) -> str:
        command = [argument.replace("/etc/lake", str(EXAMPLE)) for argument in COMMANDS[name]]
        folder = spark_home / "bin" if command[0].startswith("/opt/spark") else Path(sys.executable).parent
        command[0] = str(folder / Path(command[0]).name)
        command = [f"--master={cluster.url}" if part.startswith("--master=") else part for part in command]
        env = os.environ | environment
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return done.stdout

    assert run("compose write") == "2026-01-31: 100000 rows written, 100000 rows in the table, snapshot 1\n"
    assert "100000 rows in the table, snapshot 1\n" in run("compose write")
    assert "sales.orders" in run("compose maintain")
