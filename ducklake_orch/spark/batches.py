"""How Spark hands the rows of a DataFrame to Python: in Arrow batches that end after so many rows.

Spark ends them after 64 MiB, too, and measures the whole batch after each row for it: with a few columns that takes two
thirds of the time of a write. Few rows are few bytes, unless they hold documents.
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
# What Spark takes for no limit.
_ENDLESS = str(2**31 - 1)
_OF_ONE_LENGTH = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "void"}
_OF_ONE_LENGTH |= {"date", "timestamp", "timestamp_ntz"}
_OF_ANY_LENGTH = {"string", "char", "varchar", "array", "map"}
# Of less it is quicker to measure; of more nothing is gained.
_FEW, _MANY, _MANY_OF_ANY_LENGTH = 256, 10_000, 1024
_WIDEST_VALUE, _BATCH = 16, 16 * 1024 * 1024
# What a task must have room for, for each row of more than a few: documents of a megabyte, and copies of them.
_LONG_ROW = 4 * 1024 * 1024
# What Arrow says of more than 2 GiB in a column of a batch.
_TOO_LONG = "OversizedAllocationException"


def in_batches(frame: Any, run: Callable[[Any], T]) -> T:
    """Run a job on a DataFrame in quick batches, and once more in Spark's own where rows prove too long for them."""
    quick = in_quick_batches(frame)
    try:
        return run(quick)
    except DuckLakeOrchError as error:
        if quick is frame or _TOO_LONG not in str(error):
            raise
        log.warning("rows are too long for batches by rows, all is done again: %s", error)
    return run(frame)


def in_quick_batches(frame: Any) -> Any:
    """Return the DataFrame, for `mapInArrow`: in a session with limits by rows, where that is safe.

    A copy of the session takes 50 ms: too much for little data.
    """
    rows = _limit(frame)
    return frame if rows is None else with_settings(frame, {_BYTES: _ENDLESS, _ROWS: str(rows)})


def has_long_batches(frame: Any) -> bool:
    """Whether batches are so long that DuckDB has written them before Spark's own writer would have."""
    return (_limit(frame) or 0) > _MANY_OF_ANY_LENGTH


def _limit(frame: Any) -> int | None:
    """Return after how many rows a batch ends; None where Spark has to measure.

    That is where values may be of any size (binary ones, types of others), where somebody has set a limit of bytes,
    where ours would hold for somebody's Python functions, and with Connect, which copies no session.
    """
    from py4j.protocol import Py4JError

    rows = _rows([field.dataType for field in frame.schema])
    if rows is None or not has_a_copy(frame) or plan_has(frame, "PYTHON_UDF"):
        return None
    try:
        if rows == _MANY_OF_ANY_LENGTH:
            rows = max(_FEW, min(rows, _memory_of_a_task(frame) // _LONG_ROW))
        conf = frame.sparkSession._jsparkSession.conf()
        given = int(conf.get(_ROWS))  # none, or less, is no limit
        return None if conf.contains(_BYTES) else min(given, rows) if given > 0 else rows
    except (Py4JError, TypeError) as error:  # Spark's own insides are others in some places
        log.debug("Spark measures its batches: %s", error)
        return None


def _rows(kinds: list[Any]) -> int | None:
    """Return how many rows are a batch, None where that says nothing about bytes."""
    leaves = [leaf for kind in kinds for leaf in _leaves(kind)]
    if not _OF_ONE_LENGTH.issuperset(leaves):
        return _MANY_OF_ANY_LENGTH if (_OF_ONE_LENGTH | _OF_ANY_LENGTH).issuperset(leaves) else None
    return max(_FEW, min(_MANY, _BATCH // (_WIDEST_VALUE * max(1, len(leaves)))))


def _memory_of_a_task(frame: Any) -> int:
    """Return how much a task may hold, 0 where nobody knows: executors have it beside their heap."""
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
