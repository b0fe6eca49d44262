"""Open lakes on DuckDB, run statements in them and commit exactly once. Start with `session.open_session`."""
