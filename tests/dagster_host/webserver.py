"""`dagster dev` in a temporary folder, and a client of its GraphQL API."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers.base import free_port
from tests.support.waiting import waiting

_LOCATION = {"repositoryLocationName": "dagster_defs.definitions", "repositoryName": "__repository__"}
_ENDED = ("SUCCESS", "FAILURE", "CANCELED")
_LAUNCH = """mutation($params: ExecutionParams!) { launchRun(executionParams: $params) {
__typename ... on LaunchRunSuccess { run { runId } } ... on PythonError { message } } }"""
_BACKFILL = """mutation($params: LaunchBackfillParams!) { launchPartitionBackfill(backfillParams: $params) {
__typename ... on LaunchBackfillSuccess { backfillId } ... on PythonError { message } } }"""
_RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
_BACKFILLED = """query($id: String!) { partitionBackfillOrError(backfillId: $id) {
... on PartitionBackfill { status } ... on PythonError { message } } }"""
_START = """mutation($which: ScheduleSelector!) { startSchedule(scheduleSelector: $which) {
... on ScheduleStateResult { scheduleState { status } } ... on PythonError { message } } }"""
_TICK = """mutation($which: ScheduleSelector!, $at: Float) { scheduleDryRun(selectorData: $which, timestamp: $at) {
... on DryRunInstigationTick { evaluationResult { runRequests { runKey jobName } skipReason error { message } } } } }"""
_ASSET = """query($key: AssetKeyInput!) { assetOrError(assetKey: $key) { ... on Asset {
assetMaterializations { partition runId metadataEntries { __typename label
... on IntMetadataEntry { intValue } ... on TextMetadataEntry { text }
... on TableSchemaMetadataEntry { schema { columns { name type } } } } } } } }"""


class Webserver:
    """A running Dagster, with the code location of the project.

    Args:
        port: The port of its API.
    """

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ask(self, query: str, **variables: Any) -> Any:
        """Send a query and return the only field of its answer."""
        body = json.dumps({"query": query, "variables": variables}).encode()
        request = urllib.request.Request(f"{self.url}/graphql", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=120) as answer:
            found = json.loads(answer.read())
        assert not found.get("errors"), found
        return next(iter(found["data"].values()))

    def is_loaded(self) -> bool:
        """Return whether it answers and has loaded the code location."""
        try:
            found = self.ask("{ workspaceOrError { ... on Workspace { locationEntries { loadStatus } } } }")
        except OSError:
            return False
        return [entry["loadStatus"] for entry in found["locationEntries"]] == ["LOADED"]

    def launch(self, job: str, partition: str | None = None) -> str:
        """Run a job to its end and return the id of the run."""
        tags = [] if partition is None else [{"key": "dagster/partition", "value": partition}]
        selector = _LOCATION | {"jobName": job}
        run_config = {"loggers": {"console": {"config": {"log_level": "ERROR"}}}}
        params = {"selector": selector, "runConfigData": run_config, "executionMetadata": {"tags": tags}}
        found = self.ask(_LAUNCH, params=params)
        assert found["__typename"] == "LaunchRunSuccess", found
        run_id = str(found["run"]["runId"])
        status = waiting(lambda: self._ended(run_id), f"the run of {job}", 300)
        assert status == "SUCCESS", (job, status)
        return run_id

    def _ended(self, run_id: str) -> str | None:
        status = str(self.ask(_RUN, id=run_id)["status"])
        return status if status in _ENDED else None

    def backfill(self, assets: list[list[str]], partitions: list[str]) -> None:
        """Run partitions of assets to the end."""
        params = {"assetSelection": [{"path": asset} for asset in assets], "partitionNames": partitions}
        found = self.ask(_BACKFILL, params=params)
        assert found["__typename"] == "LaunchBackfillSuccess", found

        def status() -> str | None:
            now = str(self.ask(_BACKFILLED, id=found["backfillId"])["status"])
            return now if now.startswith(("COMPLETED", "FAILED")) else None

        assert waiting(status, "the backfill", 600) == "COMPLETED_SUCCESS"

    def start_schedule(self, name: str) -> str:
        """Start a schedule and return its state."""
        found = self.ask(_START, which=_LOCATION | {"scheduleName": name})
        return str(found["scheduleState"]["status"])

    def tick(self, name: str, at: float) -> dict[str, Any]:
        """Return the result of a dry run of a schedule at a given time."""
        found: dict[str, Any] = self.ask(_TICK, which=_LOCATION | {"scheduleName": name}, at=at)["evaluationResult"]
        return found

    def materializations(self, *asset: str) -> list[dict[str, Any]]:
        """Return the materializations of an asset in the event log, newest first."""
        found: list[dict[str, Any]] = self.ask(_ASSET, key={"path": list(asset)})["assetMaterializations"]
        return found


@contextmanager
def dagster_dev(root: Path, home: Path, variables: Mapping[str, str]) -> Iterator[Webserver]:
    """Run Dagster for a block, in the folder of the project."""
    port = free_port()
    environment = os.environ | {"DAGSTER_HOME": str(home), "PYTHONPATH": str(root), **variables}
    (home / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")
    command = [sys.executable, "-m", "dagster", "dev", "--host", "127.0.0.1", "--port", str(port)]
    with open(home / "dev.out", "wb") as output:
        process = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        running = Webserver(port)
        waiting(running.is_loaded, "Dagster", 240)
        running.ask("mutation { setNuxSeen }")  # otherwise a form covers the first page
        yield running
    finally:
        # Dagster ends its children itself; children that ignore the signal are in its session.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
