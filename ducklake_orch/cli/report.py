"""`ducklake-orch report`: writes an HTML page about the lake."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show
from ducklake_orch.config.units import in_bytes
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from ducklake_orch.report.collect import LakeReport


def report(
    options: LakeOptions,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the page here.", show_default=False)] = None,
    snapshots: Annotated[int, typer.Option(metavar="N", help="List so many of the latest snapshots.")] = 200,
) -> None:
    """Show a lake on one page that needs no network: tables, files, partitions, health, and who wrote what."""
    if html is None and not options.json:
        raise ConfigError("Where to is the page to go?", remedy="Give `--html lake.html`, or `--json` for its figures.")
    found = options.open().report(snapshots=snapshots)
    if html is not None:
        _write(found, html)
    if options.json:
        print_json(found.to_dict())
    elif html is not None:
        show(f"{html}: {in_bytes(html.stat().st_size)}, {len(found.health.tables)} tables, {found.health.grade}")


def _write(found: "LakeReport", path: Path) -> None:
    try:
        path.write_text(found.to_html(), encoding="utf-8")
    except OSError as error:
        remedy = "Give a file in a folder that is there and may be written to."
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}.", remedy=remedy) from error
