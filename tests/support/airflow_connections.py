"""Connections of Airflow in tests."""

from collections.abc import Callable

# Creates a connection from its fields, and returns its id.
Connect = Callable[..., str]
