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
    format_: Annotated[Format, typer.Option("--format", help="For people, or for Prometheus.")] = Format.TEXT,
) -> None:
    """Grade the lake and its tables against the thresholds of its policy; exit code 1 when something is bad."""
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
            Text(table_health.grade, style=_STYLES[table_health.grade]),
            table_health.table,
            table_health.metrics["files"],
            table_health.metrics["small_files"],
            in_bytes(table_health.metrics["bytes"]),
            table_health.metrics["rows"],
            f"{table_health.metrics['delete_share']:.0%}",
            table_health.metrics["inlined_rows"],
        ]
        for table_health in report.tables
    ]
    headings = ["", "table", "files", "small", "bytes", "rows", "deleted", "inlined"]
    show(heading("Tables"), table(headings, rows, right=headings[2:]))
    found = [(lake.name, finding) for finding in lake.findings]
    found += [(table_health.table, finding) for table_health in report.tables for finding in table_health.findings]
    if found:
        told = [[Text(one.grade, style=_STYLES[one.grade]), where, str(one).partition(": ")[2]] for where, one in found]
        show(heading("Findings"), table(["", "where", "what"], told))


def _shown(name: str, value: object) -> object:
    if isinstance(value, int) and name.endswith("bytes"):
        return in_bytes(value)
    return f"{value:.0f} s" if isinstance(value, float) and name.endswith("age") else value
