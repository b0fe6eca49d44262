"""The arguments of `lake.execute`: `Request`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ducklake_orch.config.nearest import nearest
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import CommitInfo


@dataclass(frozen=True)
class Request:
    """The arguments of `lake.execute`."""

    atomic: bool = False
    on_error: Literal["stop", "continue"] = "stop"
    max_rows: int | None = 1000
    params: Mapping[str, Any] | Sequence[Any] | None = None
    timeout: float | None = None
    force: bool = False
    commit: CommitInfo | None = None

    def __post_init__(self) -> None:
        if self.on_error not in ("stop", "continue"):
            known = nearest(self.on_error, ["stop", "continue"])
            raise ConfigError(f"`on_error` = {self.on_error!r} is unknown.", remedy=known)
        if self.max_rows is not None and self.max_rows < 0:
            raise ConfigError(f"`max_rows` = {self.max_rows} is negative.", remedy="None keeps all rows.")
