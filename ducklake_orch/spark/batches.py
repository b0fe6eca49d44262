"""How Spark hands the rows of a DataFrame to Python: in Arrow batches that end after so many rows.

Spark ends them after so many bytes, too, and measures the whole batch after each row for it: with a few columns that
takes two thirds of the time of a write. Rows are bytes enough where Spark knows how long they are, or nearly so.
"""

from typing import Any

from ducklake_orch.spark.session import is_observed, with_settings

_ROWS, _BYTES = "spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch"
# What Spark takes for no limit.
_ENDLESS = str(2**31 - 1)
_OF_ONE_LENGTH = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date", "timestamp")
# As many as DuckDB takes at once: of 30 kB each they are what Spark sets as a limit.
_FEW = 2048
_MANY = 10_000


def in_quick_batches(frame: Any) -> Any:
    """Return the DataFrame, for `mapInArrow`: in a session with limits by rows, where that is safe.

    Binary values may be of any size: Spark measures on. So it does where somebody has set a limit of bytes or observes
    the DataFrame, and with Connect, whose sessions have no copies. A copy takes 50 ms: too much for little data.
    """
    kinds = [field.dataType for field in frame.schema]
    if not hasattr(frame, "_jdf") or any("binary" in kind.simpleString() for kind in kinds):
        return frame
    conf = frame.sparkSession._jsparkSession.conf()
    if conf.contains(_BYTES) or is_observed(frame):
        return frame
    most = _MANY if all(kind.simpleString().startswith(_OF_ONE_LENGTH) for kind in kinds) else _FEW
    given = int(conf.get(_ROWS))  # none, or less, is no limit
    return with_settings(frame, {_BYTES: _ENDLESS, _ROWS: str(min(given, most) if given > 0 else most)})
