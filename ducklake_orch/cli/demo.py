"""`ducklake-orch demo`: tells in seconds what a lake does, line by line, on a small lake of its own."""

import shlex
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from ducklake_orch.cli.options import OutputOptions
from ducklake_orch.cli.output import print_json


def demo(
    options: OutputOptions,
    folder: Annotated[
        Path | None,
        typer.Option(help="Folder of the lake; by default a new temporary one.", show_default=False),
    ] = None,
) -> None:
    """Replace a partition, retry, merge, compact, travel in time, delete and roll back, on a small lake."""
    from ducklake_orch.cli.demo_story import tell
    from ducklake_orch.lake import DuckLake

    began = time.monotonic()
    home = (folder or Path(tempfile.mkdtemp(prefix="ducklake-demo-"))).resolve()
    lake = DuckLake.local(home / "demo")
    steps = []
    for step in tell(lake):
        steps.append(step)
        if not options.json:
            figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in step.figures.items())
            typer.echo(f"{len(steps):>2}  {step.title} — {step.call}\n    {figures}")
    page = home / "report.html"
    page.write_text(lake.report().to_html(), encoding="utf-8")
    # On one line, so that it can be copied.
    shown = f"{shlex.quote(sys.executable)} -m webbrowser {shlex.quote(page.as_uri())}"
    places = {"catalog": str(lake.config.catalog_file), "data": str(lake.config.data_path), "report": str(page)}
    if options.json:
        print_json({"steps": [step._asdict() for step in steps], "places": places, "open_report": shown})
        return
    typer.echo(f"\n{time.monotonic() - began:.1f} s. Catalog {places['catalog']}, files {places['data']}. The report:")
    typer.echo(shown)
