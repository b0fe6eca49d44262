"""The typed configuration of a lake: pure pydantic, without engine or host. `loading.load` is the entry point."""
