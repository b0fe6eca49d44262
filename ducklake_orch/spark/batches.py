"""How Spark hands the rows of a DataFrame to Python: in Arrow batches that end after so many rows.

Spark ends them after 64 MiB, too, and measures the whole batch after each row for it: with a few columns that takes two
thirds of the time of a write. Few rows are few bytes, unless they hold documents.
"""

import logging
from collections.abc import Iterator
from typing import Any

from ducklake_orch.spark.session import has_a_copy, plan_has, with_settings

log = logging.getLogger("ducklake_orch")
_ROWS, _BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"
# What Spark takes for no limit.
_ENDLESS = str(2**31 - 1)
_OF_ONE_LENGTH = {"boolean", "byte", "short", "integer", "long", "float", "double", "decimal", "void"}
_OF_ONE_LENGTH |= {"date", "timestamp", "timestamp_ntz"}
_OF_ANY_LENGTH = {"string", "char", "varchar", "array", "map"}
# So many rows of 256 KiB are what Spark's own limit allows.
_FEW, _MANY = 256, 10_000
_WIDEST_VALUE, _BATCH = 16, 16 * 1024 * 1024


def in_quick_batches(frame: Any) -> Any:
    """Return the DataFrame, for `mapInArrow`: in a session with limits by rows, where that is safe.

    Spark measures on where it may have to (binary values, types of others), where somebody has set a limit of bytes,
    where the limits would hold for Python functions of somebody else, and with Connect, whose sessions have no copies.
    A copy takes 50 ms: too much for little data.
    """
    from py4j.protocol import Py4JError

    rows = _rows([field.dataType for field in frame.schema])
    if rows is None or not has_a_copy(frame) or plan_has(frame, "PYTHON_UDF"):
        return frame
    try:
        conf = frame.sparkSession._jsparkSession.conf()
        if conf.contains(_BYTES):
            return frame
        given = int(conf.get(_ROWS))  # none, or less, is no limit
        return with_settings(frame, {_BYTES: _ENDLESS, _ROWS: str(min(given, rows) if given > 0 else rows)})
    except (Py4JError, TypeError) as error:  # Spark's own insides are others in some places
        log.debug("Spark measures its batches: %s", error)
        return frame


def _rows(kinds: list[Any]) -> int | None:
    """Return how many rows are a batch, None where that says nothing about bytes."""
    leaves = [leaf for kind in kinds for leaf in _leaves(kind)]
    if not _OF_ONE_LENGTH.issuperset(leaves):
        return _FEW if (_OF_ONE_LENGTH | _OF_ANY_LENGTH).issuperset(leaves) else None
    return max(_FEW, min(_MANY, _BATCH // (_WIDEST_VALUE * max(1, len(leaves)))))


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
