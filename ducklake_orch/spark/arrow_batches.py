"""Choose how many rows Spark puts into each Arrow batch that it passes to Python: `in_batches`.

By default Spark also ends a batch after 64 MiB and therefore measures the whole batch after each row. With a small
number of columns that takes two thirds of the time of a write. A limit on rows bounds the bytes as well, unless the
rows hold documents.
"""

import logging
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.spark.session import has_a_copy, is_local, plan_has, with_settings

log = logging.getLogger("ducklake_orch")
T = TypeVar("T")
_ROWS, _BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"
# The value that Spark takes for no limit.
_UNLIMITED = str(2**31 - 1)
_FIXED_LENGTH = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "void"}
_FIXED_LENGTH |= {"date", "timestamp", "timestamp_ntz"}
_VARIABLE_LENGTH = {"string", "char", "varchar", "array", "map"}
# The least and the most rows in a batch: with fewer rows measuring is faster, with more nothing is gained.
_FEW, _MANY, _MANY_OF_VARIABLE_LENGTH = 256, 10_000, 1024
_WIDEST_VALUE, _BATCH = 16, 16 * 1024 * 1024
# The memory that a task needs for each row beyond the least: documents of a megabyte, and copies of them.
_LONG_ROW = 4 * 1024 * 1024
# Arrow's error for more than 2 GiB in a column of a batch.
_TOO_LONG = "OversizedAllocationException"


def in_batches(frame: Any, run: Callable[[Any], T]) -> T:
    """Run a job on a DataFrame with batches limited by rows; repeat it with Spark's own if rows are too long."""
    limited = in_quick_batches(frame)
    try:
        return run(limited)
    except DuckLakeOrchError as error:
        if limited is frame or _TOO_LONG not in str(error):
            raise
        log.warning("rows are too long for a limit on rows, so the job runs again with a limit on bytes: %s", error)
    return run(frame)


def in_quick_batches(frame: Any) -> Any:
    """Return the DataFrame for `mapInArrow`, in a session with limits on rows if that is safe.

    Copying the session takes 50 ms, which is too much for small data.
    """
    rows = _limit(frame)
    return frame if rows is None else with_settings(frame, {_BYTES: _UNLIMITED, _ROWS: str(rows)})


def has_long_batches(frame: Any) -> bool:
    """Whether batches are so long that DuckDB writes them faster than Spark's own writer."""
    return (_limit(frame) or 0) > _MANY_OF_VARIABLE_LENGTH


def _limit(frame: Any) -> int | None:
    """Return the number of rows in a batch; None if Spark has to measure bytes.

    Spark has to measure if values may have any size (binary values, user-defined types), if the user has set a limit on
    bytes, if a limit on rows would also apply to the user's Python functions, and with Spark Connect, which copies no
    session.
    """
    from py4j.protocol import Py4JError

    rows = _rows([field.dataType for field in frame.schema])
    if rows is None or not has_a_copy(frame) or plan_has(frame, "PYTHON_UDF"):
        return None
    try:
        if rows == _MANY_OF_VARIABLE_LENGTH:
            rows = max(_FEW, min(rows, _task_memory(frame) // _LONG_ROW))
        conf = frame.sparkSession._jsparkSession.conf()
        given = int(conf.get(_ROWS))  # zero or less means no limit
        return None if conf.contains(_BYTES) else min(given, rows) if given > 0 else rows
    except (Py4JError, TypeError) as error:  # Spark's internals differ on some platforms
        log.debug("Spark measures its batches: %s", error)
        return None


def _rows(kinds: list[Any]) -> int | None:
    """Return how many rows make a batch; None if the number of rows does not bound its bytes."""
    leaves = [leaf for kind in kinds for leaf in _leaves(kind)]
    if not _FIXED_LENGTH.issuperset(leaves):
        return _MANY_OF_VARIABLE_LENGTH if (_FIXED_LENGTH | _VARIABLE_LENGTH).issuperset(leaves) else None
    return max(_FEW, min(_MANY, _BATCH // (_WIDEST_VALUE * max(1, len(leaves)))))


def _task_memory(frame: Any) -> int:
    """Return how many bytes a task may hold; 0 if unknown, because executors have this memory outside their heap."""
    if not is_local(frame.sparkSession):
        return 0
    context = frame.sparkSession.sparkContext
    memory = int(context._jvm.java.lang.Runtime.getRuntime().maxMemory())
    return memory // max(os.cpu_count() or 1, int(context.defaultParallelism))


def _leaves(kind: Any) -> Iterator[str]:
    match kind.typeName():
        case "struct":
            for field in kind.fields:
                yield from _leaves(field.dataType)
        case "array":
            yield "array"
            yield from _leaves(kind.elementType)
        case "map":
            yield "map"
            yield from _leaves(kind.keyType)
            yield from _leaves(kind.valueType)
        case name:
            yield str(name)
