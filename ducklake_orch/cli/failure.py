"""Reports errors of a command as one line and a remedy, or as JSON, without secrets."""

import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from ducklake_orch.cli.output import print_json, print_problem
from ducklake_orch.cli.still_running import still_running
from ducklake_orch.config.redaction import Scrubber
from ducklake_orch.errors import ConfigError, DuckLakeOrchError

if TYPE_CHECKING:
    from ducklake_orch.cli.options import OutputOptions

FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130


@contextmanager
def reporting(options: "OutputOptions") -> Iterator[None]:
    """Report the error that a command raises, and exit with its code."""
    code = FAILED
    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = _show_warning
        try:
            yield
            return
        except (typer.Exit, typer.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            show_interruption()
            code = INTERRUPTED
        except Exception as error:
            if is_usage_error(error):
                raise
            if _is_interrupt(error):
                show_interruption()
                raise typer.Exit(INTERRUPTED) from None
            if options.debug:
                still_running.stop()
                text = "".join(traceback.format_exception(error))
                typer.echo(options.scrubber(text), err=True)
            failure = as_orch_error(error, options)
            show_error(failure, as_json=options.json)
            code = exit_code(failure)
        finally:
            still_running.stop()
    raise typer.Exit(code)


def show_interruption() -> None:
    """Say after Ctrl-C what became of the work."""
    text = "What had not finished is rolled back; `ducklake-orch snapshots --limit 5` shows what was committed."
    print_problem("interrupted", text)


def exit_code(error: DuckLakeOrchError) -> int:
    """Return the exit code of a command that ended with an error."""
    return WRONG_USAGE if isinstance(error, ConfigError) else FAILED


def as_orch_error(error: Exception, options: "OutputOptions") -> DuckLakeOrchError:
    """Return any error as a `DuckLakeOrchError` without secrets."""
    if isinstance(error, DuckLakeOrchError):
        return error
    if type(error).__module__.lstrip("_").startswith("duckdb") and options.known_config:
        from ducklake_orch.engine.error_classes import classify

        return classify(error, options.known_config, "The command failed")
    message = f"{type(error).__name__}: {options.scrubber(str(error))}"
    return DuckLakeOrchError(message, remedy=None if options.debug else "Run it with `--debug` to see where.")


def show_error(error: DuckLakeOrchError, *, as_json: bool) -> None:
    """Report an error on stdout as JSON, else on stderr as text."""
    if as_json:
        print_json({"error": error.to_dict()})
        return
    notes = getattr(error, "__notes__", [])
    # On a line of its own, because some remedies are commands that users copy.
    print_problem("error", " ".join([one_line(error.message), *notes]), error.remedy, error.explain)


def is_usage_error(error: BaseException) -> bool:
    """Return whether the command line was wrong. Versions of typer have different classes for it."""
    return hasattr(error, "format_message") and hasattr(error, "exit_code")


def show_usage_error(error: Any, *, as_json: bool) -> None:
    """Report a wrong command line."""
    # The parser repeats the argument, which can be a URL with a password.
    message = Scrubber()(str(error.format_message()))
    context = getattr(error, "ctx", None)
    remedy = f"See `{context.command_path} --help`." if context is not None else None
    show_error(ConfigError(message, remedy=remedy), as_json=as_json)


def _is_interrupt(error: Exception) -> bool:
    """Return whether the error is the engine's form of Ctrl-C during a statement."""
    return type(error) is RuntimeError and "interrupted" in str(error)


def one_line(message: str) -> str:
    """Return a message on one line, without the engine's excerpt of the statement with a caret."""
    head, *excerpt = re.split(r"\n\s*LINE (\d+):", message, maxsplit=1)
    where = f" (line {excerpt[0]})" if excerpt and excerpt[0] != "1" else ""
    return " ".join(head.split()) + where


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    print_problem("warning", one_line(str(message)))
