"""Executor side of compaction: runs the driver's own `compact_bin` on each bin."""

import os
from collections.abc import Iterator, Sequence
from typing import Any

from ducklake_orch.catalog.lifecycle import BinJob, compact_bin
from ducklake_orch.spark.task_engine import EngineSpec, open_engine
from ducklake_orch.spark.task_values import result_row, task_numbers


def compact(engine: EngineSpec, jobs: Sequence[BinJob], write_id: str, batches: Iterator[Any]) -> Iterator[Any]:
    """Compact the bins whose numbers arrive in the batches; yield one row for each."""
    from pyspark import TaskContext

    context = TaskContext.get()
    # Concurrent attempts at the same task need different file names.
    name = f"{write_id}-{context.taskAttemptId() if context else os.getpid()}"
    for number in task_numbers(batches):
        with open_engine(engine) as con:
            yield result_row(compact_bin(con, jobs[number], name))
