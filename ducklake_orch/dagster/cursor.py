"""What the sensor remembers between its ticks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Self

# So many keys of an asset wait for their partitions; a cursor is a text in a row of the instance's database.
LIMIT = 200


@dataclass(frozen=True)
class Cursor:
    """How far a sensor has seen, and which changes it could not report yet.

    Attributes:
        snapshot: The last snapshot that it saw.
        pending: By asset, keys that are of no partition yet, each with the snapshot that changed its rows.
    """

    snapshot: int
    pending: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str | None) -> Self | None:
        """Return what was written."""
        if text is None:
            return None
        said = json.loads(text)
        return cls(said) if isinstance(said, int) else cls(said["snapshot"], said["pending"])

    def __str__(self) -> str:
        pending = {asset: dict(keys) for asset, keys in self.pending.items() if keys}
        return json.dumps({"snapshot": self.snapshot, "pending": pending}) if pending else str(self.snapshot)


def bounded(keys: Mapping[str, int]) -> dict[str, int]:
    """Return as many keys as can wait, those that changed last."""
    return dict(sorted(keys.items(), key=lambda pair: (-pair[1], pair[0]))[:LIMIT])
