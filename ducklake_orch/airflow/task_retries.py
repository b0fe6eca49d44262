"""Maps errors to Airflow's retries: terminal errors fail the task at once, transient ones are retried soon."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from ducklake_orch.errors import DuckLakeOrchError

# Conflicts and locks pass within seconds. Airflow's default delay is five minutes.
_SOON = timedelta(seconds=15)


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Turn errors that are not retryable into one that Airflow does not retry.

    Args:
        what: The failed work, for the message.
    """
    failure: AirflowFailException | None = None
    try:
        yield
    except DuckLakeOrchError as error:
        if error.retryable:
            raise
        failure = AirflowFailException(f"{what}: {error}")
        failure.__cause__ = error
    if failure is not None:
        raise failure


def retry_policy() -> Any:
    """Return the policy that retries transient errors soon and fails at once for terminal ones.

    Pass it as `retry_policy=` to custom tasks; ducklake-orch's operators have it. It applies within their `retries`.
    Before Airflow 3.3 there are no such policies, and the function returns None.
    """
    try:
        from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule
    except ImportError:
        return None
    transient, terminal = "ducklake_orch.errors.TransientError", "ducklake_orch.errors.TerminalError"
    return ExceptionRetryPolicy(
        rules=[
            RetryRule(exception=transient, action=RetryAction.RETRY, retry_delay=_SOON, reason="it can pass"),
            RetryRule(exception=terminal, action=RetryAction.FAIL, reason="another attempt ends the same way"),
        ]
    )
