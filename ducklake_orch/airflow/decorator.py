"""`@task.ducklake`: a function whose result becomes a table, and whose arguments are tables."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args

from airflow.providers.common.compat.sdk import DecoratedOperator, task_decorator_factory

from ducklake_orch.airflow.frames import resolved
from ducklake_orch.airflow.spark import TaskSpark
from ducklake_orch.airflow.write_operator import GIVEN, TableWriter
from ducklake_orch.errors import ConfigError
from ducklake_orch.slices.frames import check_kind, kind_of


class DuckLakeDecoratedOperator(DecoratedOperator, TableWriter):
    """Calls a function and writes what it returns; what other tasks have written comes in as frames.

    Args:
        python_callable: The function. Parameters called `spark` (the session), `partition_keys` (those it is to return
            rows of) and as the context's variables are given by the operator.
        op_args: Its arguments.
        op_kwargs: Its arguments by name.
        read: As what frames come in: a kind for all arguments, or by their names; by default as they are annotated,
            else `arrow`.
        **kwargs: Those of `TableWriter`.
    """

    template_fields = (*TableWriter.template_fields, "op_args", "op_kwargs")
    template_fields_renderers = {"op_args": "py", "op_kwargs": "py"}  # noqa: RUF012 - as Airflow has it
    custom_operator_name = "@task.ducklake"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Any = None,
        op_kwargs: Any = None,
        read: str | Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(python_callable=_with_given(python_callable), op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        self.read = read

    def frame(self, context: Mapping[str, Any], spark: TaskSpark) -> Any:
        """Return what the function returns."""
        bound = inspect.signature(self.python_callable).bind_partial(*self.op_args, **self.op_kwargs)
        for name, value in bound.arguments.items():
            bound.arguments[name] = resolved(value, functools.partial(self._kind, name), spark, self._read)
        for name in bound.signature.parameters.keys() - bound.arguments.keys():
            if name == "spark":
                bound.arguments[name] = spark.session()
            elif name in context:
                bound.arguments[name] = context[name]
        return self.python_callable(*bound.args, **bound.kwargs)

    def _kind(self, name: str) -> str:
        """Return as what the frame of a parameter comes in."""
        said = self.read if isinstance(self.read, str) else (self.read or {}).get(name)
        if said is not None:
            check_kind(said, "`read`")
            return said
        annotation = self._annotation(name)
        # That of a list of frames is what it is a list of.
        return next((kind for one in (annotation, *get_args(annotation)) if (kind := kind_of(one))), "arrow")

    def _annotation(self, name: str) -> Any:
        """Return how a parameter is annotated: under `from __future__ import annotations` that is a text."""
        function = inspect.unwrap(self.python_callable)
        annotation = inspect.get_annotations(function).get(name)
        if not isinstance(annotation, str):
            return annotation
        known = {**getattr(function, "__globals__", {}), **inspect.getclosurevars(function).nonlocals}
        try:
            return eval(annotation, known)  # noqa: S307 - the code of the DAG's author, as Python itself would run it
        except Exception as error:  # whatever a name that is only there for type checkers leads to
            failure = ConfigError(
                f"Task `{self.task_id}`: what `{name}: {annotation}` is cannot be found out: {error}.",
                remedy=f'Say it: @task.ducklake(…, read={{"{name}": "pandas"}}), say; or import it at run time.',
            )
        raise failure


def _with_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """Let a function have parameters that those who call it need not give, for the operator does."""
    signature = inspect.signature(function)
    given = [name for name in signature.parameters if name in GIVEN]
    if not given:
        return function
    others = [one for name, one in signature.parameters.items() if name not in GIVEN]
    names = [one.name for one in others]

    @functools.wraps(function)
    def wanting(*args: Any, **kwargs: Any) -> Any:
        return function(**dict(zip(names, args, strict=False)), **kwargs)

    wanting.__signature__ = signature.replace(  # type: ignore[attr-defined]  # what `inspect` looks for
        parameters=[*others, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in given)]
    )
    return wanting


def ducklake_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> Any:
    """Make tasks of a function whose result becomes a table, as `@task.ducklake(table=…)`."""
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=False,
        decorated_operator_class=DuckLakeDecoratedOperator,
        **kwargs,
    )
