"""Typed configuration of a lake: pure pydantic, no engine, no host."""
