"""Shuffle a DataFrame so that the rows of a partition meet in few tasks: each writes a file for each of its own."""

import logging
from typing import Any

from ducklake_orch.catalog.model import TableDef

log = logging.getLogger("ducklake_orch")


def distributed(frame: Any, table: TableDef, distribution: str) -> Any:
    """Return the DataFrame as it is to be written.

    Args:
        frame: The DataFrame.
        table: What it is written for.
        distribution: `none`; `hash` by partition; `range`, by partition and sort keys; or `auto`.
    """
    return frame
