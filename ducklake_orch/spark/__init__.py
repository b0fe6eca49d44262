"""Write Spark DataFrames into a lake and read tables as DataFrames; `local_session` starts a session."""

from ducklake_orch.spark.session import local_session

__all__ = ["local_session"]
