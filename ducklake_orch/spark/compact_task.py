"""Executor side of compaction: runs the driver's own `compact_bin` on each bin."""

import os
import pickle
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from ducklake_orch.catalog.lifecycle import BinJob, Compacted, compact_bin
from ducklake_orch.spark.task_engine import EngineSpec, open_engine

RESULT = "result"


def compact(engine: EngineSpec, jobs: Sequence[BinJob], write_id: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Compact the bins whose numbers arrive in the batches; yield one row for each."""
    import pyarrow as pa
    from pyspark import TaskContext

    context = TaskContext.get()
    # Concurrent attempts at the same task need different file names.
    name = f"{write_id}-{context.taskAttemptId() if context else os.getpid()}"
    for batch in batches:
        for number in batch.column(0).to_pylist():
            with open_engine(engine) as con:
                made = compact_bin(con, jobs[number], name)
            packed = zlib.compress(pickle.dumps(made))
            yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], [RESULT])


def unpack(packed: bytes) -> list[Compacted]:
    """Return a task's result for a bin."""
    made: list[Compacted] = pickle.loads(zlib.decompress(packed))  # noqa: S301 - from our own task
    return made
