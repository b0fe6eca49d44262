"""The formats of DuckLake that ducklake-orch reads and writes."""

from ducklake_orch.errors import CatalogVersionError

# The format that the extension reads and writes, and so ducklake-orch.
FORMAT = "1.0"
# The next format, which ducklake-orch reads by its own readers.
NEWER_FORMAT = "1.1"
# There, the columns of inlined rows that are not the user's begin so.
NEWER_PREFIX = "_ducklake_"
NEWER_REMEDY = (
    "ducklake-orch reads such lakes by its own readers (tables in Python and Spark, files, history, change feed,"
    " health, report, fsck). To write to it, or to query it in DuckDB's SQL, use the program that made it."
)


def only_read(lake: str) -> CatalogVersionError:
    """Return the error for what is impossible in a lake of the newer format."""
    return CatalogVersionError(f"Lake `{lake}` has format {NEWER_FORMAT}.", remedy=NEWER_REMEDY)
