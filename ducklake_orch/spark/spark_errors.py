"""Turn errors of Spark, which are pages of stack traces, into ducklake-orch errors: `translated_errors`."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.errors import DuckLakeOrchError, MissingExtraError

# The last line of a worker's traceback: the error's class, perhaps with its module, and its message.
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w*(?:Error|Exception|Interrupt)): ", re.MULTILINE)

_CAUSED = re.compile(r"^Caused by: (?:[\w.$]+\.)?(\w+: .+)$", re.MULTILINE)


@contextmanager
def translated_errors(config: LakeConfig, doing: str) -> Iterator[None]:
    """Raise the error of a job in a block as a ducklake-orch error.

    Args:
        config: The lake.
        doing: What the job does, for the message.
    """
    try:
        yield
        return
    except Exception as error:
        if not _is_from_spark(error):
            raise
        failure = _translated(error, config, doing)
    raise failure  # raised outside the handler: Spark's error may show a password


def _is_from_spark(error: Exception) -> bool:
    """Whether an error comes from Spark itself."""
    return type(error).__module__.partition(".")[0] in ("pyspark", "py4j", "grpc")


def _translated(error: Exception, config: LakeConfig, doing: str) -> DuckLakeOrchError:
    """Return the ducklake-orch error for a failed Spark job, with a short message instead of the stack traces."""
    text = str(error)
    raised = list(_RAISED.finditer(text))
    if raised:
        traceback = text[raised[-1].start() :].partition("\n\tat ")[0].strip()
        text = "\n".join(line for line in traceback.splitlines() if line.strip())[:2000]
    else:
        # Java prints the first cause last.
        causes = _CAUSED.findall(text)
        text = "\n".join([text.partition("\n\tat ")[0][:2000], *causes[-1:]])
    if "No module named" in text:
        return MissingExtraError(
            f"{doing}: the workers' Python lacks a module: {text}",
            remedy=f"Set PYSPARK_PYTHON (for example, to {sys.executable}) before the session starts, or install"
            " duckdb, pyarrow and the extension of the storage on every executor.",
        )
    return classify(RuntimeError(text), config, f"{doing} failed")
