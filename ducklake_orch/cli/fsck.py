"""`ducklake-orch fsck`: finds and repairs broken states of the lake."""

from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.failure import FAILED
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import print_json, show, table

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ducklake_orch.results import Finding, FsckReport

_STYLES = {"error": "bold red", "warning": "yellow", "info": "dim"}


def fsck(
    options: LakeOptions,
    deep: Annotated[bool, typer.Option("--deep", help="Also read the files.")] = False,
    list_storage: Annotated[bool, typer.Option("--list-storage", help="Also list the storage.")] = False,
    repair: Annotated[bool, typer.Option("--repair", help="Repair what can be repaired without guessing.")] = False,
    only: Annotated[list[str] | None, typer.Option("--table", help="Only this table, by name or pattern.")] = None,
) -> None:
    """Find and explain broken states of the lake; repair them with --repair."""
    report = options.open().fsck(deep=deep, storage=list_storage, repair=repair, tables=only)
    if options.json:
        print_json(report)
    else:
        _show(report)
    if not report.ok:
        raise typer.Exit(FAILED)


def _show(report: "FsckReport") -> None:
    from rich.text import Text

    checked = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in report.checked.items())
    for code, count in report.counts.items():
        findings = [finding for finding in report.findings if finding.code == code]
        first = findings[0]
        head = Text.assemble((f"{first.severity} ", _STYLES[first.severity]), (code, "bold"), f" ({count})")
        show(head, f"  effect: {first.effect}", f"  remedy: {first.remedy}", _findings(findings))
        if count > len(findings):
            show(f"  … and {count - len(findings)} more")
        show("")
    if report.repaired:
        show(
            Text(f"repaired, with snapshot {report.repair_snapshot}:", style="bold green"),
            _findings(report.repaired),
            "",
        )
    total = sum(report.counts.values())
    style = "bold green" if report.ok else "bold red"
    show(Text(f"{total} found" if total else "Nothing found", style=style), f"Checked: {checked}")


def _findings(findings: "list[Finding]") -> "RenderableType":
    return table(
        ["table", "file", "detail"], [[finding.table or "", finding.file or "", finding.detail] for finding in findings]
    )
