"""Connections of Airflow in tests."""

from collections.abc import Callable

# Makes a connection from its fields, and returns its id.
Connect = Callable[..., str]
