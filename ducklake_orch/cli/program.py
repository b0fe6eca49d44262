"""The command-line program and its list of commands."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ducklake_orch import __version__
from ducklake_orch.cli.add_files import add_files
from ducklake_orch.cli.changes import changes
from ducklake_orch.cli.command import command
from ducklake_orch.cli.config_schema import config_schema
from ducklake_orch.cli.delete import delete
from ducklake_orch.cli.demo import demo
from ducklake_orch.cli.doctor import doctor
from ducklake_orch.cli.drop_lake import drop_lake
from ducklake_orch.cli.explain import explain
from ducklake_orch.cli.failure import INTERRUPTED, WRONG_USAGE, is_usage_error, show_usage_error
from ducklake_orch.cli.fsck import fsck
from ducklake_orch.cli.health import health
from ducklake_orch.cli.index import index
from ducklake_orch.cli.init import init
from ducklake_orch.cli.listing import files, options, preview, snapshots, tables
from ducklake_orch.cli.maintain import maintain
from ducklake_orch.cli.quarantine import quarantine
from ducklake_orch.cli.report import report
from ducklake_orch.cli.rollback import rollback
from ducklake_orch.cli.sql import sql
from ducklake_orch.cli.stages import diff, discard, publish, stages
from ducklake_orch.cli.tags import tag, tags, untag
from ducklake_orch.cli.workload import workload
from ducklake_orch.cli.write import write


class Program(TyperGroup):
    """The group of all commands. It reports wrong usage like every other error, as one line or as JSON."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **extra: Any) -> Any:  # type: ignore[override]
        """Run the command that the arguments name; exit with its code, or return it without `standalone_mode`."""
        given = list(sys.argv[1:] if args is None else args)
        try:
            code = super().main(given, standalone_mode=False, **extra)
        except (typer.Abort, KeyboardInterrupt):
            code = INTERRUPTED
        except Exception as error:
            if not is_usage_error(error):
                raise
            show_usage_error(error, as_json="--json" in given)
            code = WRONG_USAGE
        if standalone_mode:
            sys.exit(code or 0)
        return code


app = typer.Typer(
    name="ducklake-orch",
    cls=Program,
    help="Query, write, check and maintain a DuckLake lakehouse.",
    epilog="Exit codes: 0 done, 1 the command or the lake failed, 2 wrong usage or configuration, 130 interrupted.",
    add_completion=True,
    # Typer's tracebacks show local variables, which can hold passwords.
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for function in (
    doctor,
    init,
    preview,
    sql,
    write,
    add_files,
    delete,
    tables,
    files,
    changes,
    rollback,
    snapshots,
    tag,
    tags,
    untag,
    stages,
    diff,
    publish,
    discard,
    options,
    maintain,
    health,
    fsck,
    quarantine,
    workload,
    index,
    drop_lake,
    report,
    config_schema,
    explain,
    demo,
):
    app.command(name=function.__name__.replace("_", "-"))(command(function))


@app.callback(invoke_without_command=True)
def _program(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"ducklake-orch {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit
