"""Pass values between the driver and Spark's tasks: a task gets packed values, and yields one packed row per result."""

import pickle
import zlib
from collections.abc import Iterator
from typing import Any

_RESULT = "result"
# The schema of the rows that tasks yield.
RESULT_SCHEMA = f"{_RESULT} binary"


def packed(value: Any) -> bytes:
    """Return a value, serialized and compressed."""
    return zlib.compress(pickle.dumps(value), 1)


def unpacked(value: bytes) -> Any:
    """Return a value that the driver or a task has packed."""
    return pickle.loads(zlib.decompress(value))  # noqa: S301 - our own


def result_row(value: Any) -> Any:
    """Return the row that holds a task's result."""
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array([packed(value)], pa.binary())], [_RESULT])


def task_numbers(batches: Iterator[Any]) -> Iterator[int]:
    """Yield the numbers in a task's batches, each of which names a part of the work."""
    for batch in batches:
        yield from batch.column(0).to_pylist()
