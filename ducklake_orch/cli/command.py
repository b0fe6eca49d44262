"""RowChangeAttempts functions into commands. The options that commands share are fields of one dataclass."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ducklake_orch.cli.failure import reporting


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return a function for typer, in which the fields of the first parameter are options of the command.

    Args:
        function: Its first parameter is a dataclass of options, such as `LakeOptions`. The others are its own options.
    """
    first, *own = inspect.signature(function).parameters.values()
    shared = fields(first.annotation)

    def run(**given: Any) -> None:
        options = first.annotation(**{field.name: given.pop(field.name) for field in shared})
        with reporting(options):
            function(options, **given)

    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [parameter.replace(kind=keyword) for parameter in own]
    parameters += [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=field.type) for field in shared
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer reads it by `inspect`
    run.__doc__ = function.__doc__
    return run
