"""The options that commands share, and the lake that they select."""

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.still_running import still_running
from ducklake_orch.config.redaction import Scrubber
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from ducklake_orch.config.lake import LakeConfig
    from ducklake_orch.config.loading import Loaded
    from ducklake_orch.lake import DuckLake

DEFAULT_FILE = "ducklake.toml"
_LAKE, _OUTPUT = "Which lake", "Output"


@dataclass(frozen=True)
class OutputOptions:
    """The options for the output of a command."""

    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.", rich_help_panel=_OUTPUT)] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.", rich_help_panel=_OUTPUT)] = False

    @property
    def known_config(self) -> "LakeConfig | None":
        """The lake's configuration; None before it is loaded."""
        return None

    @property
    def scrubber(self) -> Scrubber:
        """A scrubber that masks the secrets known so far."""
        return self.known_config.scrubber if self.known_config else Scrubber()


@dataclass(frozen=True)
class LakeOptions(OutputOptions):
    """The options that select the lake of a command."""

    lake: Annotated[
        str | None, typer.Option(metavar="NAME", help="Name of the lake.", rich_help_panel=_LAKE, show_default=False)
    ] = None
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help=f"TOML file; default is ./{DEFAULT_FILE}.", rich_help_panel=_LAKE, show_default=False
        ),
    ] = None
    profile: Annotated[
        str | None, typer.Option(metavar="P", help="Profile of the file.", rich_help_panel=_LAKE, show_default=False)
    ] = None
    catalog: Annotated[
        str | None, typer.Option(metavar="URL", help="Catalog.", rich_help_panel=_LAKE, show_default=False)
    ] = None
    storage: Annotated[
        str | None, typer.Option(metavar="URL", help="Data files.", rich_help_panel=_LAKE, show_default=False)
    ] = None

    @property
    def any_lake_given(self) -> bool:
        """Whether the command line, the environment or an existing default file names a lake."""
        given = (self.lake, self.config, self.profile, self.catalog, self.storage)
        return any(value is not None for value in given) or _environment("") or self._file is not None

    @cached_property
    def loaded(self) -> "Loaded":
        """The lake's configuration and the origins of its values."""
        from ducklake_orch.config.loading import load

        if not self.any_lake_given:
            raise ConfigError(
                "No lake is given.",
                remedy="Name one with --catalog or --config, set DUCKLAKE_CATALOG, or run `ducklake-orch init`.",
            )
        return load(path=self._file, profile=self.profile, lake=self.lake, catalog=self.catalog, storage=self.storage)

    @property
    def known_config(self) -> "LakeConfig | None":
        """The lake's configuration; None before it is loaded."""
        loaded: Loaded | None = self.__dict__.get("loaded")
        return loaded.config if loaded else None

    def open(self) -> "DuckLake":
        """Return the lake, without connecting to it. From now on, a terminal shows that the command runs."""
        from ducklake_orch.lake import DuckLake

        still_running.start()
        return DuckLake(self.loaded.config, origins=self.loaded.origins)

    @property
    def _file(self) -> str | None:
        elsewhere = self.catalog is not None or _environment("CATALOG") or _environment("CONFIG")
        if self.config is not None or elsewhere:
            return self.config
        return DEFAULT_FILE if Path(DEFAULT_FILE).exists() else None


def _environment(field: str) -> bool:
    """Return whether a variable sets a field of the lake; the empty name stands for any field."""
    prefix = f"DUCKLAKE_{field}"
    return any(
        value and name.startswith(prefix) and not name.startswith("DUCKLAKE_ORCH_")
        for name, value in os.environ.items()
    )
