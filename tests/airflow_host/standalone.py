"""`airflow standalone` in a temporary folder, and a client of its REST API."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.base import free_port
from tests.support.waiting import waiting


class Standalone:
    """A running Airflow.

    Args:
        port: The port of its API.
        home: Its `AIRFLOW_HOME`.
    """

    def __init__(self, port: int, home: Path) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.home = home
        self._token = ""

    def ask(self, path: str, body: Any = None, method: str | None = None) -> Any:
        """Send a request to the API and return its answer."""
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            text = answer.read().decode()
        return json.loads(text) if text.startswith(("{", "[")) else text

    def log_in(self) -> None:
        """Wait for the API and log in."""

        def token() -> str | None:
            try:
                return str(self.ask("/auth/token", {"username": "admin", "password": "admin"})["access_token"])
            except (OSError, KeyError):
                return None

        self._token = str(waiting(token, "the API", 600))

    def healthy(self) -> bool:
        """Return whether all components are healthy."""
        found = self.ask("/api/v2/monitor/health")
        return all(found[component]["status"] == "healthy" for component in ("metadatabase", "scheduler", "triggerer"))

    def unpause(self, *dags: str) -> None:
        """Unpause DAGs once Airflow has parsed them."""
        for dag in dags:

            def unpaused(dag: str = dag) -> bool:
                try:
                    self.ask(f"/api/v2/dags/{dag}", {"is_paused": False}, "PATCH")
                except urllib.error.HTTPError:
                    return False
                return True

            waiting(unpaused, f"DAG {dag}", 180)

    def trigger(self, dag: str, **body: Any) -> str:
        """Start a run and return its id."""
        return str(self.ask(f"/api/v2/dags/{dag}/dagRuns", {"logical_date": None, **body})["dag_run_id"])

    def runs(self, dag: str) -> list[dict[str, Any]]:
        """Return the runs of a DAG."""
        found: list[dict[str, Any]] = self.ask(f"/api/v2/dags/{dag}/dagRuns?limit=100")["dag_runs"]
        return found

    def finished(
        self, dag: str, run_id: str | None = None, seconds: float = 300, partition_key: str | None = None
    ) -> dict[str, Any]:
        """Wait until a run of a DAG has ended: the given run, one of the given partition, or any."""

        def ended() -> dict[str, Any] | None:
            for run in self.runs(dag):
                wanted = run_id in (None, run["dag_run_id"]) and partition_key in (None, run["partition_key"])
                if wanted and run["state"] in ("success", "failed"):
                    return run
            return None

        found: dict[str, Any] = waiting(ended, f"a run of {dag}", seconds)
        return found

    def tasks(self, dag: str, run_id: str) -> list[dict[str, Any]]:
        """Return the task instances of a run."""
        path = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances?limit=100"
        found: list[dict[str, Any]] = self.ask(path)["task_instances"]
        return found

    def everything_shown(self, dag: str, run_id: str) -> str:
        """Return everything that the API shows about a run: fields, XCom, logs, and the connections."""
        shown = [self.ask("/api/v2/connections"), self.ask("/api/v2/assets/events")]
        for task in self.tasks(dag, run_id):
            instance = f"/api/v2/dags/{dag}/dagRuns/{run_id}/taskInstances/{task['task_id']}"
            index = f"?map_index={task['map_index']}"
            values = self.ask(f"{instance}/xcomEntries{index}")
            shown += [task, values, self.ask(f"{instance}/logs/{task['try_number']}{index}")]
            if any(entry["key"] == "return_value" for entry in values["xcom_entries"]):
                shown.append(self.ask(f"{instance}/xcomEntries/return_value{index}"))
        return json.dumps(shown) + "".join(path.read_text(errors="replace") for path in self.home.glob("logs/**/*.log"))


@contextmanager
def standalone(home: Path, dags: Path, variables: Mapping[str, str]) -> Iterator[Standalone]:
    """Run Airflow for a block."""
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")} | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "3",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "AIRFLOW__API__WORKERS": "1",
        # Generous timeouts, since the machine runs other tests at the same time.
        "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "60",
        "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "180",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "5",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        **variables,
    }
    with open(home / "standalone.out", "wb") as output:
        process = subprocess.Popen(
            [str(Path(sys.executable).with_name("airflow")), "standalone"],
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        running = Standalone(port, home)
        running.log_in()
        waiting(running.healthy, "a healthy Airflow", 240)
        yield running
    finally:
        _end(process)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End a process and its children: exactly the processes of its session."""
    for signals in (signal.SIGTERM, signal.SIGKILL):
        for pid in _session(process.pid):
            try:
                os.kill(pid, signals)
            except ProcessLookupError:
                continue
        deadline = time.monotonic() + 15
        while time.monotonic() < deadline and _session(process.pid) - {process.pid}:
            process.poll()
            time.sleep(0.2)
    process.wait()


def _session(leader: int) -> set[int]:
    found = set()
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and os.getsid(int(entry.name)) == leader:
                found.add(int(entry.name))
        except ProcessLookupError:
            continue
    return found
