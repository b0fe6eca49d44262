"""The verbs of `DuckLake`, grouped by what users do: read, write, change rows, define tables, stream, maintain."""
