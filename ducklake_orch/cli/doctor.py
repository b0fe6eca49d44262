"""`ducklake-orch doctor`: checks the machine, the configuration and the lake."""

from collections.abc import Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from ducklake_orch.cli.checks.check import Check
from ducklake_orch.cli.failure import FAILED, WRONG_USAGE, one_line
from ducklake_orch.cli.options import LakeOptions
from ducklake_orch.cli.output import console, print_json, show, table
from ducklake_orch.errors import ConfigError

if TYPE_CHECKING:
    from ducklake_orch.config.loading import Loaded

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "skip": "dim"}
_SETTING = "setting "


def doctor(
    options: LakeOptions,
    write: Annotated[bool, typer.Option("--write", help="Write a probe to the storage and delete it.")] = False,
    every: Annotated[bool, typer.Option("--all", help="Also show settings that have their default.")] = False,
) -> None:
    """Check this machine, the configuration and the lake; exits with 1 when a check fails."""
    problem: ConfigError | None = None
    try:
        loaded = options.loaded if options.any_lake_given else None
    except ConfigError as error:
        loaded, problem = None, error
    checks: list[Check] = []
    with console(stderr=True).status("Checking…") if not options.json else nullcontext():
        for check in _checks(options, loaded, problem, write=write, every=every):
            checks.append(check)
    if options.json:
        print_json(checks)
    else:
        _show(checks)
    if problem:
        raise typer.Exit(WRONG_USAGE)
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(FAILED)


def _checks(
    options: LakeOptions, loaded: "Loaded | None", problem: ConfigError | None, *, write: bool, every: bool
) -> Iterator[Check]:
    from ducklake_orch.cli.checks.lake_access import Seen, catalog_checks, storage_check
    from ducklake_orch.cli.checks.probe import write_check
    from ducklake_orch.cli.checks.settings import setting_checks
    from ducklake_orch.cli.checks.spark_session import spark_checks
    from ducklake_orch.cli.checks.this_machine import BASIC_EXTENSIONS, machine_checks

    yield from machine_checks(loaded.config.required_extensions if loaded else BASIC_EXTENSIONS)
    yield from spark_checks()
    if problem:
        yield Check.failed("configuration", problem)
        return
    if loaded is None:
        remedy = "Name one with --catalog or --config, set DUCKLAKE_CATALOG, or run `ducklake-orch init`."
        yield Check("configuration", "skip", "no lake is given", remedy)
        return
    yield Check("configuration", "ok", repr(options.open()))
    yield from setting_checks(loaded, every=every)
    seen = Seen()
    yield from catalog_checks(loaded.config, seen)
    yield storage_check(loaded.config, seen)
    yield (
        write_check(loaded.config)
        if write
        else Check("storage writable", "skip", "not tried", "Pass --write to write a probe there and delete it.")
    )


def _show(checks: list[Check]) -> None:
    from rich.text import Text

    rows = []
    for check in checks:
        detail = Text(one_line(check.detail))
        if check.remedy and check.status != "ok":
            detail.append(f"\n→ {check.remedy}", style=_STYLES[check.status])
        if not check.name.startswith(_SETTING):
            rows.append([Text(check.status, style=_STYLES[check.status]), check.name, detail])
    show(table(["", "check", "detail"], rows))
    settings = [
        [check.name.removeprefix(_SETTING), check.detail] for check in checks if check.name.startswith(_SETTING)
    ]
    if settings:
        show("", table(["setting", "value (origin)"], settings), "")
    failed = sum(check.status == "fail" for check in checks)
    warned = sum(check.status == "warn" for check in checks)
    show(Text(f"{failed} failed, {warned} with a warning.", style="bold red" if failed else "bold green"))
