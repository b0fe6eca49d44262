"""Spark: write DataFrames into a lake, and read tables of it as DataFrames."""

from ducklake_orch.spark.session import local_session

__all__ = ["local_session"]
