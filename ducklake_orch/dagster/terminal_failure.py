"""Turns terminal errors into Dagster failures that are not retried."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dagster as dg

from ducklake_orch.errors import DuckLakeOrchError


@contextmanager
def failures(what: str, details: Mapping[str, Any]) -> Iterator[None]:
    """Turn errors that are not retryable into a `dg.Failure` that no retry policy repeats.

    Args:
        what: The failed work, for the message.
        details: Further metadata of the event. They are read at the time of the error, so callers can add some later.
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
