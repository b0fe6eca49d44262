"""Provides the Spark session of a lake's resource."""

from typing import TYPE_CHECKING, Any

import dagster as dg
from pydantic import Field

from ducklake_orch.dagster.configuration import Strict
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SparkConfig(Strict, dg.ConfigurableResource):  # type: ignore[type-arg]  # the resource provides itself
    """A Spark session to start if none runs in this process. The session is shared, and Dagster never stops it."""

    master: str | None = Field(default=None, description="Where Spark runs: `local[*]`, or a cluster's address.")
    remote: str | None = Field(default=None, description="The server of Spark Connect, `sc://host:port`.")
    conf: dict[str, Any] | None = Field(default=None, description="Settings of the session.")

    @property
    def spark_session(self) -> "SparkSession":
        """The session."""
        if self.master is not None and self.remote is not None:
            raise ConfigError("`master` and `remote` both say where Spark runs.", remedy="Give one of them.")
        from ducklake_orch.spark import local_session

        if self.remote is None:
            return local_session("dagster", master=self.master or "local[*]", conf=self.conf)
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.remote(self.remote)
        for name, value in (self.conf or {}).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def session_of(source: Any) -> "SparkSession":
    """Return the session of the resource that is given as `spark=`; without one, the running or a new local one."""
    if source is None:
        from ducklake_orch.spark import local_session

        return local_session("dagster")
    session = getattr(source, "spark_session", None)
    if session is None:
        raise ConfigError(
            f"`spark` = {type(source).__name__} has no `spark_session`.",
            remedy="Give a SparkConfig, dagster-pyspark's PySparkResource or LazyPySparkResource.",
        )
    return session  # type: ignore[no-any-return]  # resources of other packages are untyped
