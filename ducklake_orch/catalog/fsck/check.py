"""What one check is: a broken state with a name, what it does to a reader, what to do about it, and how it is found."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Check:
    """A broken state that fsck knows.

    Attributes:
        code: Its stable name.
        severity: `error`: readers get wrong rows or none, or data will be lost; `warning`: something else fails or
            misleads; `info`: only untidy.
        effect: What somebody who uses the lake notices.
        remedy: What to do.
        repairable: Whether `repair=True` mends it.
        sql: How the catalog's copy tells: a query of table id, file and details. The other modes have no SQL.
    """

    code: str
    severity: Severity
    effect: str
    remedy: str
    repairable: bool = False
    sql: str = ""
