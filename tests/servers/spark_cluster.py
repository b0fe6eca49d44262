"""A standalone Spark cluster from the pip package: a master and two workers, each in its own process."""

import json
import urllib.error
import urllib.request
from pathlib import Path
from typing import Self

from ducklake_orch.install_commands import install_extra
from ducklake_orch.spark.java_home import find_java
from tests.servers.base import LOOPBACK, Server, ServerProcess, accepts_connections, free_port


class SparkCluster(Server):
    """A master with two workers of one core."""

    name = "spark-cluster"
    how = f"{install_extra('spark')} and a Java of at least 17"

    def __init__(self, url: str, processes: list[ServerProcess]) -> None:
        self.url = url
        self._processes = processes

    @classmethod
    def start(cls, folder: Path) -> Self:
        import pyspark

        find_java()
        home = Path(pyspark.__file__).parent
        # Executors have Spark, DuckDB and pyarrow, and a fake package `ducklake_orch` that must not be imported.
        fake_package = folder / "site" / "ducklake_orch"
        fake_package.mkdir(parents=True)
        (fake_package / "__init__.py").write_text("raise ImportError('the copy on the executor was imported')")
        env = {"SPARK_HOME": str(home), "PYTHONPATH": str(fake_package.parent)}
        program = str(home / "bin" / "spark-class")
        port, web = free_port(), free_port()
        url = f"spark://{LOOPBACK}:{port}"
        started: list[ServerProcess] = []

        def start(name: str, kind: str, *options: str, host: str = LOOPBACK) -> None:
            place = folder / name
            place.mkdir(parents=True)
            command = [program, f"org.apache.spark.deploy.{kind}", "--host", host, *options]
            worker_environment = {"SPARK_WORKER_DIR": str(place), "SPARK_LOCAL_IP": host}
            started.append(ServerProcess(command, place, env=env | worker_environment))

        cluster = cls(url, started)
        try:
            start("master", "master.Master", "--port", str(port), "--webui-port", str(web))
            started[0].wait_until(lambda: accepts_connections(port) and accepts_connections(web))
            for number in (1, 2):
                options = ["--webui-port", str(free_port()), "-c", "1", "-m", "1g", url]
                # Two hosts for Spark, because it runs a second attempt at a task only on another host.
                start(f"worker{number}", "worker.Worker", *options, host=f"127.0.0.{number}")
            started[0].wait_until(lambda: _workers(web) == 2)
        except BaseException:
            cluster.stop()
            raise
        return cluster

    def stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()


def _workers(web: int) -> int:
    try:
        with urllib.request.urlopen(f"http://{LOOPBACK}:{web}/json/") as answer:
            return int(json.load(answer)["aliveworkers"])
    except (urllib.error.HTTPError, json.JSONDecodeError):  # the page does not exist yet, or another page is served
        return 0
