"""The stage of a run: outputs wait in it until all of them are published together.

A run that repeats only some steps of a failed run goes on in the stage of that run.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import dagster as dg

from ducklake_orch.dagster.event_metadata import STAGE, STAGE_ID
from ducklake_orch.dagster.metadata_settings import settings_in
from ducklake_orch.dagster.output_run import asset_of, code_location, cut
from ducklake_orch.dagster.table_properties import TableProperties
from ducklake_orch.engine.quoting import TableName, table_name
from ducklake_orch.errors import ConfigError, TransactionClosedError
from ducklake_orch.facade.stage import Stage
from ducklake_orch.lake import DuckLake
from ducklake_orch.results import CommitInfo, StageInfo, TransactionResult

# Tags of runs that Dagster re-executes from failure.
_FROM_FAILURE = ("dagster/is_resume_retry", "dagster/is_asset_resume_retry")
PUBLISH = ("immediately", "run", "after_checks")


@dataclass(frozen=True)
class RunStage:
    """A stage that outputs of a run wait in.

    Attributes:
        lake: The lake.
        stage: The stage.
        info: What it was when it was looked up.
        runs: The runs that stage in it: the run, and those that it repeats in part.
        instance: The Dagster instance.
    """

    lake: DuckLake
    stage: Stage
    info: StageInfo
    runs: Sequence[Any]
    instance: Any

    def has(self, table: TableName) -> bool:
        """Return whether the stage is open and changes a table."""
        return self.info.status == "open" and any(table_name(name).key == table.key for name in self.info.tables)

    def refuse_late(self, what: str, key: str | None) -> None:
        """Refuse an output that comes after the run was published, unless it was published with the run."""
        if self.info.status == "published" and not self._has_key(key):
            raise ConfigError(
                f"{what} was computed after the outputs of its run were published.",
                remedy='Store it with an IO manager that has `publish="immediately"`.',
            )

    def mark(self, table: TableName, key: str | None) -> None:
        """Store the key of an output that left nothing in the stage, because the lake has it already."""
        if key is not None and not self._has_key(key):
            with self.stage.writing(str(table), "overwrite", key):
                pass

    def _has_key(self, key: str | None) -> bool:
        return any(key in keys for keys in self.stage.keys().values())

    def assets(self) -> set[str]:
        """Return the assets that are staged, as `cut` names them."""
        return {asset_of(key) for keys in self.stage.keys().values() for key in keys}

    def publish(self, what: str, graph: Any, log: Any) -> TransactionResult:
        """Publish the stage, and set the comments of its tables.

        Args:
            what: What is published, for the message of the commit.
            graph: The graph with the assets of the run.
            log: The log of the step.

        Raises:
            TransactionClosedError: When some outputs of the runs are in an earlier stage of that name, which is gone.
        """
        info = self.stage.info()
        if any(
            name == info.name and stage_id != info.stage_id for name, stage_id in _staged_by(self.runs, self.instance)
        ):
            _refuse_lost(info.name)
        run = self.runs[0]
        about = {"run_id": run.run_id, "job": run.job_name, "stage": info.name} | code_location(run)
        commit = CommitInfo("dagster", f"publication of {what}, run {run.run_id}", {"dagster": about})
        result = self.stage.publish(commit=commit)
        if result.replayed:
            log.info(f"The stage was already published, as snapshot {result.snapshot_id}")
        else:
            log.info(f"Published as snapshot {result.snapshot_id}: {', '.join(info.tables) or 'no rows'}")
        settings = {cut(key): graph.get(key).metadata for key in graph.materializable_asset_keys}
        for table, keys in self.stage.keys().items():
            for metadata in (settings[asset_of(key)] for key in keys if asset_of(key) in settings):
                if self.lake.exists(table):
                    TableProperties(self.lake, table_name(table), settings_in(metadata)).set_comments(commit, log)
        return result


def find_run_stage(lake: DuckLake, run: Any, instance: Any, io_manager: str | None = None) -> RunStage | None:
    """Return the stage of a run, or of the nearest run that it repeats in part, open or published; None without one.

    Args:
        lake: The lake.
        run: The run.
        instance: The Dagster instance.
        io_manager: The key of an IO manager that publishes its own outputs as soon as all are there; None for the stage
            that waits for a publication.

    Raises:
        TransactionClosedError: When outputs wait in a stage that was discarded, or whose time is over.
    """
    stages = {stage.name: stage for stage in lake.stages()}
    runs: list[Any] = []
    for staging in _repeated_in_part(run, instance):
        name = _name(staging, io_manager)
        runs.append(staging)
        if (info := stages.get(name)) is not None and info.status != "expired":
            return RunStage(lake, Stage(lake, name), info, runs, instance)
        if any(staged_in == name for staged_in, _ in _staged_by([staging], instance)):
            _refuse_lost(name)
    return None


def open_run_stage(lake: DuckLake, run: Any, instance: Any, io_manager: str | None, ttl: str) -> RunStage:
    """Return the stage of a run; begin one if there is none, or if an earlier run has published it."""
    found = find_run_stage(lake, run, instance, io_manager)
    if found is not None and (found.info.status == "open" or len(found.runs) == 1):
        return found
    stage = lake.stage(_name(run, io_manager), ttl=ttl, author=f"dagster run {run.run_id}")
    return RunStage(lake, stage, stage.info(), [run], instance)


def _name(run: Any, io_manager: str | None) -> str:
    return f"dagster run {run.run_id}{f', {io_manager}' if io_manager is not None else ''}"


def _repeated_in_part(run: Any, instance: Any) -> Iterator[Any]:
    """Yield the run, the run of which it repeats some steps, the run of which that one does, and so on."""
    while run is not None:
        yield run
        parent = run.parent_run_id if run.parent_run_id is not None and _is_part(run, instance) else None
        run = instance.get_run_by_id(parent) if parent is not None else None


def _is_part(run: Any, instance: Any) -> bool:
    """Return whether a run has some steps only: those that failed in its parent, or chosen ones."""
    if any(run.tags.get(tag) == "true" for tag in _FROM_FAILURE):
        return True
    steps = run.step_keys_to_execute
    return steps is not None and len(steps) < len(
        instance.get_execution_plan_snapshot(run.execution_plan_snapshot_id).steps
    )


def _staged_by(runs: Sequence[Any], instance: Any) -> Iterator[tuple[str, str]]:
    """Yield the name and the id of the stage of each output that runs have staged."""
    for run in runs:
        events = instance.get_records_for_run(run.run_id, of_type=dg.DagsterEventType.ASSET_MATERIALIZATION)
        for event in events.records:
            metadata = event.asset_materialization.metadata
            if STAGE in metadata and STAGE_ID in metadata:
                yield str(metadata[STAGE].value), str(metadata[STAGE_ID].value)


def _refuse_lost(name: str) -> NoReturn:
    raise TransactionClosedError(
        f"Outputs of the run were staged in `{name}`, which was discarded or has ended.",
        remedy="Re-execute all steps: that begins a new stage.",
    )
