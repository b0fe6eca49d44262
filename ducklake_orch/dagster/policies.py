"""Dagster config models of retries and of the connection pool."""

from pydantic import Field

from ducklake_orch.dagster.configuration import Part


class RetryPolicy(Part):
    """How often and with which waits transient failures are retried."""

    max_attempts: int | None = Field(default=None, description="Attempts in all, the first included.")
    max_seconds: float | None = Field(default=None, description="No new attempt starts after this long.")
    base_ms: float | None = Field(default=None, description="Wait before the second attempt; doubles from there.")
    jitter: bool | None = Field(default=None, description="Spread the waits, so that rivals do not meet again.")


class PoolPolicy(Part):
    """How many connections to a server catalog one process keeps."""

    size: int | None = Field(default=None, description="Connections to one lake that may be open at once.")
    idle: str | None = Field(default=None, description="An idle connection older than this is closed.")
    wait: str | None = Field(default=None, description="How long to wait for a free connection.")
