"""Values of options and arguments that Tab completes. The engine is not loaded for them."""

from collections.abc import Callable

MODES = ("append", "overwrite", "overwrite_partitions", "replace_where", "merge", "error", "ignore")
STRATEGIES = ("upsert", "insert-only", "delete-insert", "scd2")
OUTSIDE = ("error", "drop")
SCHEMA_EVOLUTION = ("error", "add", "promote")
ENGINES = ("auto", "duckdb", "native")
DISTRIBUTIONS = ("auto", "none", "hash", "range")
OPERATIONS = ("flush", "rewrite", "merge", "layout", "expire", "cleanup", "orphans")


def one_of(names: tuple[str, ...]) -> Callable[[str], list[str]]:
    """Return what completes a word to one of some names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def listed(names: tuple[str, ...]) -> str:
    """Return names for a help text."""
    return ", ".join(names)


def error_codes(incomplete: str) -> list[str]:
    """Complete the code of an error."""
    from ducklake_orch.cli.errors_page import sections

    return [code for code in sections() if code.startswith(incomplete)]
