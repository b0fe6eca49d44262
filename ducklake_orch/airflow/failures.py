"""What Airflow makes of errors: what somebody has to mend is not tried again, the rest soon."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from airflow.providers.common.compat.sdk import AirflowFailException

from ducklake_orch.errors import DuckLakeOrchError

# Conflicts and locks pass within seconds; Airflow itself would wait for five minutes.
_SOON = timedelta(seconds=15)


@contextmanager
def failures(what: str) -> Iterator[None]:
    """Turn errors that another attempt ends with as well into one that Airflow does not try again.

    Args:
        what: What is done, for the message.
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
    """Return the policy that tries again soon what can succeed, and fails at once what cannot.

    For tasks of one's own, as `retry_policy=`; those of this package have it. It counts within their `retries`. None
    before Airflow 3.3, which has no such policies.
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
