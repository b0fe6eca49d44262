"""Turn a function into a command: options that many commands share are fields of one object."""

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from ducklake_orch.cli.failure import reporting


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Return what typer takes: the fields of the function's first parameter become options of the command.

    Args:
        function: Its first parameter is a dataclass of options, `LakeOptions` say; the others are the command's own.
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
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # typer asks `inspect`
    run.__doc__ = function.__doc__
    return run
