"""The cursor of the sensor: its state between two ticks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

# Limit of pending keys per asset. A cursor is a text in one row of the instance's database, so it must stay small.
LIMIT = 200


@dataclass(frozen=True)
class Cursor:
    """The last snapshot that a sensor has seen, and the changes that it could not report yet.

    Attributes:
        snapshot: The last snapshot that the sensor has seen.
        pending: By asset, keys that have no partition yet, each with the snapshot that changed its rows.
    """

    snapshot: int
    pending: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Parse a cursor; None if there is none yet."""
        if text is None:
            return None
        said = json.loads(text)
        return cls(said) if isinstance(said, int) else cls(said["snapshot"], said["pending"])

    def __str__(self) -> str:
        pending = {asset: dict(keys) for asset, keys in self.pending.items() if keys}
        return json.dumps({"snapshot": self.snapshot, "pending": pending}) if pending else str(self.snapshot)


def bounded(keys: Mapping[str, int]) -> dict[str, int]:
    """Return at most `LIMIT` pending keys, the most recently changed ones."""
    return dict(sorted(keys.items(), key=lambda pair: (-pair[1], pair[0]))[:LIMIT])
