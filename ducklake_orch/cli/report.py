"""`ducklake-orch report`: writes an HTML page about the lake."""

from collections.abc import Sequence
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
    snapshots: Annotated[int, typer.Option(metavar="N", help="How many of the latest snapshots to list.")] = 200,
    host_url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST=URL",
            help="Link snapshots to their runs: `dagster=https://…` or `airflow=https://…`.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show a lake on one page that needs no network: tables, files, partitions, health, and who wrote what."""
    if html is None and not options.json:
        raise ConfigError("The report has no output.", remedy="Pass `--html lake.html`, or `--json` for the figures.")
    lake_report = options.open().report(snapshots=snapshots, host_urls=_host_urls(host_url or ()))
    if html is not None:
        _write(lake_report, html)
    if options.json:
        print_json(lake_report.to_dict())
    elif html is not None:
        health = lake_report.health
        show(f"{html}: {in_bytes(html.stat().st_size)}, {len(health.tables)} tables, {health.grade}")


def _host_urls(pairs: Sequence[str]) -> dict[str, str]:
    for pair in pairs:
        if "=" not in pair:
            raise ConfigError(f"`--host-url {pair}` has no `=`.", remedy="Give it as `dagster=https://…`.")
    return dict(pair.split("=", 1) for pair in pairs)


def _write(lake_report: "LakeReport", path: Path) -> None:
    try:
        path.write_text(lake_report.to_html(), encoding="utf-8")
    except OSError as error:
        remedy = "Name a file in an existing, writable folder."
        raise ConfigError(f"`{path}` cannot be written: {error.strerror}.", remedy=remedy) from error
