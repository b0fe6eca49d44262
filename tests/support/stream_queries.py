"""Runs three streaming queries over the table `t` in a process of its own, which a test can kill."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from ducklake_orch import DuckLake

QUERIES = ("model", "replica", "log")


class QueryProcess:
    """Starts, ends and kills the process that runs the queries.

    Args:
        folder: Holds the lake, the checkpoints, and the batches of the query `model`.
        fault: The fault point at which the process and its workers kill themselves.
    """

    def __init__(self, folder: Path, fault: str | None = None) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        environment |= {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}  # a JVM of short life
        command = [sys.executable, "-c", f"from {__name__} import serve; serve({str(folder)!r})"]
        with (folder / "log").open("a") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env=environment | ({"DUCKLAKE_ORCH_FAULT": fault} if fault else {}),
                start_new_session=True,
            )

    def send(self, action: str, queries: Sequence[str], **options: Any) -> None:
        """Send a command without waiting for its end."""
        with suppress(BrokenPipeError):  # the process has died
            _file(self._process.stdin).write(f"{json.dumps([action, list(queries), options])}\n")
            _file(self._process.stdin).flush()

    def answer(self) -> str:
        """Return the answer to a command: `done`, an error, or nothing if the process has died."""
        return _file(self._process.stdout).readline().strip()

    def do(self, action: str, queries: Sequence[str], **options: Any) -> str:
        """Send a command and return its answer."""
        self.send(action, queries, **options)
        return self.answer()

    def kill(self) -> None:
        """Kill the process, its JVM and their workers."""
        with suppress(ProcessLookupError):  # the processes have ended already
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(BrokenPipeError):
            _file(self._process.stdin).close()
        _file(self._process.stdout).close()


def _file(pipe: Any) -> TextIO:
    file: TextIO = pipe
    return file


# --- in the process --------------------------------------------------------------------------------------------------


def serve(folder: str) -> None:
    """Run the commands that come in."""
    from ducklake_orch import DuckLake
    from ducklake_orch.spark import local_session

    lake = DuckLake.local(Path(folder) / "lake", data_inlining_row_limit=20)
    conf = {"spark.sql.shuffle.partitions": 1, "spark.sql.codegen.wholeStage": "false"}
    spark = local_session("soak", master="local[2]", conf=conf)
    lake.register(spark)
    server = _Server(lake, spark, Path(folder))
    for line in sys.stdin:
        action, queries, options = json.loads(line)
        try:
            getattr(server, action)(queries, **options)
            print("done", flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)


class _Server:
    def __init__(self, lake: "DuckLake", spark: "SparkSession", folder: Path) -> None:
        self._lake, self._spark, self._folder = lake, spark, folder
        self._running: dict[str, StreamingQuery] = {}

    def start(self, queries: Sequence[str], **options: Any) -> None:
        """Start queries that process what is committed until they are stopped."""
        for name in queries:
            if name not in self._running:
                self._running[name] = self._query(name, **options).start()

    def finish(self, queries: Sequence[str], **options: Any) -> None:
        """Let queries process everything that is committed."""
        ending = []
        for name in queries:
            if name not in self._running:
                ending.append(self._query(name, **options).trigger(availableNow=True).start())
        for name in queries:
            if name in self._running:
                self._running[name].processAllAvailable()
        for query in ending:
            query.awaitTermination()

    def stop(self, queries: Sequence[str]) -> None:
        """Stop queries, also in the middle of a batch."""
        for name in queries:
            if name in self._running:
                self._running.pop(name).stop()

    def _query(self, name: str, most: int | None = None, writer: str = "sink") -> "DataStreamWriter":
        """Return a query: of at most so many snapshots per batch, and with one of two writers of the replica."""
        if name == "replica" and writer == "sink":
            most = 1  # so that a batch has one change per row
        write: DataStreamWriter = {"model": self._model, "replica": self._replica, "log": self._log}[name](most, writer)
        return write.option("checkpointLocation", str(self._folder / f"checkpoint of {name}"))

    def _model(self, most: int | None, _: str) -> "DataStreamWriter":
        changes = self._lake.read_stream(
            self._spark, "t", start="earliest", changes=True, max_snapshots_per_batch=most, name="model"
        )
        return changes.writeStream.foreachBatch(_keeper(self._folder))

    def _replica(self, most: int | None, writer: str) -> "DataStreamWriter":
        removed = "source.change_type = 'delete'"
        changes = self._by_name("replica", "earliest", most).where("change_type <> 'update_preimage'")
        columns = ("rowid AS id", "change_type", "k", "v")
        if writer == "sink":
            options = {"table": "replica", "mode": "merge", "keys": "id", "delete_condition": removed}
            return changes.selectExpr(*columns).writeStream.format("ducklake").options(**options)
        merge = self._lake.stream_writer("replica", "merge", keys=["id"], delete_condition=removed)
        newest_first = "row_number() OVER (PARTITION BY rowid ORDER BY snapshot_id DESC) AS n"

        def apply(batch: "DataFrame", number: int) -> None:
            merge(batch.selectExpr("*", newest_first).where("n = 1").selectExpr(*columns), number)

        return changes.writeStream.foreachBatch(apply)

    def _log(self, most: int | None, _: str) -> "DataStreamWriter":
        columns = ("snapshot_id", "snapshot_time", "rowid AS row", "change_type", "author", "k", "v")
        changes = self._by_name("log", "0", most).selectExpr(*columns)
        return changes.writeStream.format("ducklake").options(table="log")

    def _by_name(self, name: str, start: str, most: int | None) -> "DataFrame":
        options = {"table": "t", "start": start, "changes": "true", "name": name}
        if most is not None:
            options["maxSnapshotsPerBatch"] = str(most)
        return self._spark.readStream.format("ducklake").options(**options).load()


def _keeper(folder: Path) -> Callable[["DataFrame", int], None]:
    """Return a function that keeps each batch in a file, and checks that a repeated batch is the same."""

    def keep(batch: "DataFrame", number: int) -> None:
        rows = batch.select("snapshot_id", "rowid", "change_type", "k", "v").collect()
        text = json.dumps(sorted((list(row) for row in rows), key=repr))
        file = folder / "batches" / f"{number}.json"
        assert not file.exists() or file.read_text() == text, f"Batch {number} differs when it is repeated."
        file.with_suffix(".new").write_text(text)
        file.with_suffix(".new").replace(file)

    return keep
