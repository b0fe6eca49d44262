"""From a configuration to an attached DuckDB connection."""
