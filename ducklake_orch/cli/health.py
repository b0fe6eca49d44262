"""`ducklake-orch health`: grades the lake and its tables, and names remedies."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.failure import FAILED
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import heading, print_json, show, table
from ducklake_orch.config.units import in_bytes

if TYPE_CHECKING:
    from ducklake_orch.maintenance.health_report import HealthReport

_STYLES = {"ok": "green", "warn": "yellow", "bad": "bold red"}


class Format(StrEnum):
    """The output format of the report."""

    TEXT = "text"
    PROMETHEUS = "prometheus"


def health(
    options: LakeOptions,
    format_: Annotated[
        Format, typer.Option("--format", help="Text for people, or metrics for Prometheus.")
    ] = Format.TEXT,
) -> None:
    """Grade the lake and its tables against the thresholds of its policy; exit code 1 if a grade is `bad`."""
    report = options.open().health()
    if format_ is Format.PROMETHEUS:
        typer.echo(report.to_prometheus(), nl=False)
        return
    print_json(report.to_dict()) if options.json else _show(report)
    if not report.ok:
        raise typer.Exit(FAILED)


def _show(report: "HealthReport") -> None:
    from rich.text import Text

    lake = report.lake
    show(Text.assemble(f"Lake {lake.name}: ", (report.grade, _STYLES[report.grade])))
    metrics = [(name, value) for name, value in lake.metrics.items() if not isinstance(value, dict)]
    show(table(["figure", "value"], [[name.replace("_", " "), _shown(name, value)] for name, value in metrics]))
    rows = [
        [
            Text(entry.grade, style=_STYLES[entry.grade]),
            entry.table,
            entry.metrics["files"],
            entry.metrics["small_files"],
            in_bytes(entry.metrics["bytes"]),
            entry.metrics["rows"],
            f"{entry.metrics['delete_share']:.0%}",
            entry.metrics["inlined_rows"],
        ]
        for entry in report.tables
    ]
    headings = ["", "table", "files", "small", "bytes", "rows", "deleted", "inlined"]
    show(heading("Tables"), table(headings, rows, right=headings[2:]))
    findings = [(lake.name, finding) for finding in lake.findings]
    findings += [(entry.table, finding) for entry in report.tables for finding in entry.findings]
    if findings:
        rows = [
            [Text(finding.grade, style=_STYLES[finding.grade]), where, str(finding).partition(": ")[2]]
            for where, finding in findings
        ]
        show(heading("Findings"), table(["", "where", "what"], rows))


def _shown(name: str, value: object) -> object:
    if value is None:
        return "never" if name == "last_maintenance" else "not counted yet"  # the operation `orphans` counts them
    if isinstance(value, int) and name.endswith("bytes"):
        return in_bytes(value)
    return f"{value:.0f} s" if isinstance(value, float) and name.endswith("age") else value
