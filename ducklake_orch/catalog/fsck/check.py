"""The definition of a check: a broken state with its code, its effect on readers, its remedy and its query."""

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True)
class Check:
    """A broken state that fsck can find.

    Attributes:
        code: Its stable name.
        severity: `error`: readers get wrong rows or none, or data will be lost; `warning`: something else fails or
            misleads; `info`: only untidy.
        effect: What a user of the lake notices.
        remedy: What to do.
        repairable: Whether `repair=True` repairs it.
        proof: For repairs that take values from files: the view of the files that are not proven to be the intended
            ones. A finding about such a file is not repaired.
        sql: The query over the copy of the catalog that finds the state; it returns table id, file and details.
    """

    code: str
    severity: Severity
    effect: str
    remedy: str
    repairable: bool = False
    proof: str = ""
    sql: str = ""


UNPROVEN = (
    "Restore the correct file from a backup, and delete no rows of the table before that. Nothing proves that this is"
    " the file that the catalog describes, so `repair=True` takes no values from it. If it is the right file, write"
    " its values into the catalog by hand."
)
