"""What Dagster makes of errors: what somebody has to mend is not tried again."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg

from ducklake_orch.errors import DuckLakeOrchError


@contextmanager
def failures(what: str, details: Mapping[str, Any]) -> Iterator[None]:
    """Turn errors that another attempt ends with as well into a Failure that no retry policy repeats.

    Args:
        what: What is done, for the message.
        details: What else the event shows; looked at when it happens.
    """
    failure: dg.Failure | None = None
    try:
        yield
    except DuckLakeOrchError as error:
        if error.retryable:
            raise
        shown: dict[str, Any] = {
            "ducklake/error": type(error).__name__,
            "ducklake/message": dg.MetadataValue.md(str(error)),
        }
        shown |= {f"ducklake/{name}": value for name, value in details.items()}
        failure = dg.Failure(f"{what}: {error}", metadata=shown, allow_retries=False)
        failure.__cause__ = error
    if failure is not None:
        raise failure
