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
        proof: Where the repair takes its truth from files, the view of those that are not proven to be the ones that
            were meant: a finding about one of them is not repaired.
        sql: How the catalog's copy tells: a query of table id, file and details. The other modes have no SQL.
    """

    code: str
    severity: Severity
    effect: str
    remedy: str
    repairable: bool = False
    proof: str = ""
    sql: str = ""


UNPROVEN = (
    "Bring the right file back from a backup, and delete no rows of the table before: nothing proves that this is the"
    " file that was meant, so `repair=True` takes nothing from it. If it is, write what it says into the catalog by"
    " hand."
)
