"""The steps of `writeStream.format("ducklake")`: plan a batch, and commit what its tasks wrote, exactly once.

Spark plans and commits each batch in a process of its own near the driver. What the commit needs of the plan comes back
with the results of the tasks.
"""

import json
import pickle
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ducklake_orch.catalog.verbs import KeyedRequest, StreamBatch, WriteRequest, merge_rows, request_for
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.nearest import nearest
from ducklake_orch.engine.attach import Access
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.engine.session import open_session
from ducklake_orch.engine.stored_files import remove_written
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo, WriteResult
from ducklake_orch.spark.data_source_steps import PlannedFiles, check_options, names_in, plan_files, task_of
from ducklake_orch.spark.merge_source_staging import StagedSpool, staging_job
from ducklake_orch.spark.spark_rows import remove_marker
from ducklake_orch.spark.storage_access import check_reachable
from ducklake_orch.spark.task_values import unpacked
from ducklake_orch.spark.types import duckdb_columns
from ducklake_orch.spark.write_task import TaskResult

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MERGE_OPTIONS = (
    "keys",
    "strategy",
    "matched_condition",
    "delete_condition",
    "boundary",
    "valid_from",
    "valid_to",
    "hard_delete",
    "deduplicate_by",
    "null_keys",
)
SINK_OPTIONS = ("table", "mode", "query", *MERGE_OPTIONS, "schema_evolution", "author", "message")
# Options of Spark's own, which it also gives to the sink.
_SPARKS = ("checkpointlocation", "queryname")
_MODES = ("append", "merge")
Given = tuple[Mapping[str, str], "StructType", bool]


@dataclass(frozen=True)
class StagedRows:
    """A batch whose rows tasks stage, and whose commit merges them.

    Attributes:
        folder: The folder of the staged files.
        write_id: Part of their names.
        marker: The driver's marker file, if tasks look for one.
    """

    folder: str
    write_id: str
    marker: str | None

    def finish(
        self, config: LakeConfig, schema: "StructType", request: KeyedRequest, results: Sequence[bytes]
    ) -> WriteResult:
        """Merge the rows that tasks staged, exactly once."""
        task_results: list[TaskResult] = [unpacked(result) for result in results]
        try:
            if failed := next((task_result.error for task_result in task_results if task_result.error), None):
                raise failed
            files = [file for task_result in task_results for file in task_result.files]
            return merge_rows(config, StagedSpool(duckdb_columns(schema), files), request)
        finally:
            self.abandon(config)

    def abandon(self, config: LakeConfig) -> None:
        """Delete the staged files."""
        if self.marker is not None:
            remove_marker(self.marker)
        remove_written(config, self.folder, self.write_id)


def plan_batch(config: LakeConfig, given: Given) -> tuple[bytes, bytes]:
    """Plan a batch; return what its commit needs, and what its tasks need, both pickled."""
    options, schema, overwrite = given
    _check(options, overwrite)
    query_of(options)  # refused here, before any task runs
    planned: StagedRows | PlannedFiles
    if not _merges(options):
        planned, task = plan_files(config, schema, _write_request(options, overwrite))
        return pickle.dumps(planned), pickle.dumps(task)
    request = _merge_request(options)
    check_reachable(config)
    task = task_of(staging_job(config, duckdb_columns(schema), request.table), schema)
    return pickle.dumps(StagedRows(task.table.folder, task.write_id, task.marker)), pickle.dumps(task)


def finish_batch(
    config: LakeConfig, given: "tuple[Mapping[str, str], StructType, bool, bytes, int, Sequence[bytes]]"
) -> None:
    """Commit a batch, unless an earlier run of the query has committed it."""
    options, schema, overwrite, packed, number, results = given
    planned: StagedRows | PlannedFiles = pickle.loads(packed)  # noqa: S301 - our own, from `plan_batch`
    batch = StreamBatch(query_of(options), number)
    about: dict[str, Any] = {"idempotency_key": batch.key, "commit": batch.described(_commit(options)), "once": True}
    if isinstance(planned, StagedRows):
        result = planned.finish(config, schema, replace(_merge_request(options), **about), results)
    else:
        request = replace(_write_request(options, overwrite), **about)
        write = replace(planned.write, info=request.commit)
        result = replace(planned, request=request, write=write).finish(config, schema, results)
    if result.replayed:
        opened = open_session(config, Access(False, reads=True), entering=False)
        batch.refuse_passed(opened, table_name(options["table"]))


def abandon_batch(config: LakeConfig, given: "tuple[Mapping[str, str], StructType, bool, bytes]") -> None:
    """Clean up after a failed batch, whose commit has not begun."""
    planned: StagedRows | PlannedFiles = pickle.loads(given[-1])  # noqa: S301 - our own, from `plan_batch`
    planned.abandon(config)


# --- options ---------------------------------------------------------------------------------------------------------


def query_of(options: Mapping[str, str]) -> str:
    """Return what identifies the query: the option `query`, or the id in the checkpoint.

    Spark does not tell a sink in Python the id. A checkpoint in a folder of this machine can be read; Spark takes its
    path as it is, without percent-encoding.

    Raises:
        ConfigError: When there is neither.
    """
    if query := options.get("query", "").strip():
        return query
    checkpoint = options.get("checkpointlocation", "").removeprefix("file://").removeprefix("file:")
    with suppress(OSError, ValueError, KeyError):
        if checkpoint:
            return str(json.loads((Path(checkpoint) / "metadata").read_text())["id"])
    raise ConfigError(
        "The streaming query has no name: its checkpoint is not a folder of this machine, or not set by the option"
        " `checkpointLocation`, which Spark Connect does not pass on.",
        remedy="Give the option `query`: a name that no other query into this table has. Keep it across restarts, and"
        " choose a new one with each new checkpoint.",
    )


def _check(options: Mapping[str, str], overwrite: bool) -> None:
    check_options(options, (*SINK_OPTIONS, *_SPARKS))
    mode = options.get("mode", "append")
    if mode not in _MODES:
        raise ConfigError(f"`mode` = {mode!r} is unknown.", remedy=nearest(mode, _MODES))
    if mode == "merge" and overwrite:
        raise ConfigError(
            "The output mode `complete` replaces the whole table, and cannot be combined with `mode` = `merge`.",
            remedy="Leave out one of them.",
        )
    if mode != "merge" and (given := next((name for name in MERGE_OPTIONS if name in options), None)):
        raise ConfigError(f"The option `{given}` needs `mode` = `merge`.")


def _merges(options: Mapping[str, str]) -> bool:
    return options.get("mode") == "merge"


def _commit(options: Mapping[str, str]) -> CommitInfo:
    return CommitInfo(author=options.get("author"), message=options.get("message"))


def _write_request(options: Mapping[str, str], overwrite: bool) -> WriteRequest:
    return WriteRequest(
        table=table_name(options["table"]),
        mode="overwrite" if overwrite else "append",
        schema_evolution=options.get("schema_evolution", "error"),
        commit=_commit(options),
    )


def _merge_request(options: Mapping[str, str]) -> KeyedRequest:
    strategy = options.get("strategy", "upsert")
    given: dict[str, Any] = {name: options[name] for name in MERGE_OPTIONS if name in options and name != "strategy"}
    given |= {name: names_in(given[name]) for name in ("keys", "deduplicate_by") if name in given}
    if strategy == "scd2":
        given["retire_absent"] = False  # a batch has only what is new
    if "schema_evolution" in options:
        given["schema_evolution"] = options["schema_evolution"]
    return request_for(strategy, {**given, "table": table_name(options["table"]), "commit": _commit(options)})
