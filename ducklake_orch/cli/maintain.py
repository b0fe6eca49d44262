"""`ducklake-orch maintain`: maintains a lake, or shows the plan."""

from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.completion import OPERATIONS, listed, one_of
from ducklake_orch.cli.failure import FAILED, INTERRUPTED
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import console, print_json, print_problem, show, table
from ducklake_orch.cli.still_running import still_running
from ducklake_orch.config.units import in_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession
    from rich.status import Status

    from ducklake_orch.maintenance.results import PlannedStep, StepReport

_STYLES = {"run": "bold", "skip": "dim", "done": "green", "failed": "bold red", "stopped": "yellow", "skipped": "dim"}


def maintain(
    options: LakeOptions,
    plan: Annotated[bool, typer.Option("--plan", help="Only show what would run, and what is skipped.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Only show in which order steps would run, and how they are ranked.")
    ] = False,
    operation: Annotated[
        list[str] | None,
        typer.Option(help=f"{listed(OPERATIONS)}; repeat for more.", autocompletion=one_of(OPERATIONS)),
    ] = None,
    schema: Annotated[list[str] | None, typer.Option(help="Only tables in this schema, by name or pattern.")] = None,
    table: Annotated[list[str] | None, typer.Option(help="Only this table, by name or pattern.")] = None,
    with_spark: Annotated[
        bool,
        typer.Option("--spark", help="Let Spark run large steps, in the submitted session or a new local one."),
    ] = False,
) -> None:
    """Flush, rewrite, merge, expire, clean up and find orphans, as the lake's `maintenance` policy says."""
    lake = options.open()
    spark = _session() if with_spark else None
    if spark is not None:
        still_running.stop()  # Spark shows its own progress
    planned = lake.plan_maintenance(operations=operation, schemas=schema, tables=table, spark=spark)
    if not options.json:
        for warning in planned.warnings:
            print_problem("warning", warning)
    if plan or explain:
        show_plan = _explain if explain else _show
        print_json(planned.to_dict()) if options.json else show_plan(planned.operations)
        return
    still_running.stop()
    with console(stderr=True).status("Starting maintenance", spinner="line") as status:
        report = lake.maintain(planned, spark=spark, progress=None if options.json else _progress(status))
    print_json(report.to_dict()) if options.json else _show(report.operations)
    if not options.json:
        show(f"{report.status}: {report.duration_s:.1f} s, {in_bytes(report.totals['bytes_freed'])} freed")
    if report.signal is not None:
        done, left = _steps(report.totals["done"]), _steps(report.totals["stopped"])
        text = f"{report.signal} stopped the run: {done} done, {left} left; the same command does the rest."
        print_problem("interrupted", text)
        raise typer.Exit(INTERRUPTED)
    if report.status == "error":
        raise typer.Exit(FAILED)


def _session() -> "SparkSession":
    from ducklake_orch.spark import local_session

    return local_session("ducklake-orch maintain")


def _progress(status: "Status") -> "Callable[[PlannedStep], None]":
    from ducklake_orch.maintenance.results import StepReport

    def show_step(step: "PlannedStep") -> None:
        if isinstance(step, StepReport):
            status.console.print(str(step))
        else:
            status.update(f"{step.operation} of {step.where}: {step.reason}")

    return show_step


def _show(steps: "Sequence[PlannedStep | StepReport]") -> None:
    from rich.text import Text

    rows = []
    for step in steps:
        word = getattr(step, "status", step.action)
        error = getattr(step, "error", None)
        size = "?" if step.bytes is None else in_bytes(step.bytes)
        files = "" if not (step.files_in or step.files_out) else f"{step.files_in} → {_known(step.files_out)}"
        figures = [files, step.rows or "", size if step.files_in else "", step.snapshots or ""]
        reason = str(error) if error else step.reason
        rows.append([Text(word, style=_STYLES.get(word, "")), step.operation, step.where, *figures, reason])
    headings = ["", "operation", "table", "files", "rows", "bytes", "snapshots", "why"]
    show(table(headings, rows, right=["files", "rows", "bytes", "snapshots"]))


def _explain(steps: "Sequence[PlannedStep]") -> None:
    """Show the arithmetic of the steps of tables."""
    rows = []
    for step in steps:
        if step.action == "run" and step.table is not None:
            seconds = "?" if step.seconds is None else f"{step.seconds:.1f}"
            bytes_ = [in_bytes(step.saves), f"{step.reads:.2g}", in_bytes(int(step.benefit)), in_bytes(step.cost)]
            rows.append([step.operation, step.where, *bytes_, f"{step.score:.3g}", seconds, step.reason])
    figures = ["saves a read", "reads a day", "saves a day", "costs", "score", "seconds"]
    show(table(["operation", "table", *figures, "why"], rows, right=figures))
    show("score = saves a read x reads a day / costs; the weights are `rank` of the policy")


def _steps(count: int) -> str:
    return f"{count} step{'' if count == 1 else 's'}"


def _known(files: int | None) -> str:
    return "?" if files is None else str(files)
