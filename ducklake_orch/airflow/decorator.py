"""The `@task.ducklake` decorator: the function's result becomes a table, and tables become its arguments."""

import functools
import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, get_args

from airflow.providers.common.compat.sdk import DecoratedOperator
from airflow.sdk.bases.decorator import _TaskDecorator

from ducklake_orch.airflow.frame_references import resolved
from ducklake_orch.airflow.run_partition import Keys, given_keys
from ducklake_orch.airflow.table_assets import assets_of_arguments, with_outlet
from ducklake_orch.airflow.task_spark import TaskSpark
from ducklake_orch.airflow.write_operator import GIVEN, TableWriter
from ducklake_orch.errors import ConfigError
from ducklake_orch.host_partitions.frame_kinds import check_kind, kind_of

_KEYS = "partition_keys"


class DuckLakeDecoratedOperator(DecoratedOperator, TableWriter):
    """Calls a function and writes its result. Arguments that other tasks have written are passed as frames.

    Args:
        python_callable: The function. The operator passes parameters named `spark` (the session), `partition_keys` (the
            partitions whose rows it must return), and those named like a variable of the context. A call with
            `partition_keys` chooses the partitions of the task: `orders.expand(partition_keys=days)` makes a task for
            each day.
        op_args: Positional arguments of the function.
        op_kwargs: Keyword arguments of the function.
        read: The kind of frame for all arguments, or a mapping from arguments to kinds; by default the kind of the
            annotation, else `arrow`.
        **kwargs: Arguments of `TableWriter`. By default, `inlets` are the assets of the tables that are arguments.
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
        if "inlets" not in kwargs and not self.is_mapped_copy():
            self.inlets = assets_of_arguments([op_args, op_kwargs])

    def frame(self, context: Mapping[str, Any], spark: TaskSpark) -> Any:
        """Return the result of the function."""
        bound = inspect.signature(self.python_callable).bind_partial(*self.op_args, **self.op_kwargs)
        bound.arguments.pop(_KEYS, None)  # those of the context are the same, as a list
        for name, value in bound.arguments.items():
            bound.arguments[name] = resolved(
                value, functools.partial(self._kind, name), spark, self._read, reads_staged=self.stage is not None
            )
        for name in bound.signature.parameters.keys() - bound.arguments.keys():
            if name == "spark":
                bound.arguments[name] = spark.session()
            elif name in context:
                bound.arguments[name] = context[name]
        return self.python_callable(*bound.args, **bound.kwargs)

    def _keys(self) -> Keys:
        if _KEYS not in self.op_kwargs:
            return super()._keys()
        if self._has_key:
            raise ConfigError(
                f"Task `{self.task_id}` has both a `partition_key` and an argument `{_KEYS}`.",
                remedy="Give one of them.",
            )
        return given_keys(self.op_kwargs[_KEYS], is_given=True)

    def _kind(self, name: str) -> str:
        """Return the kind of frame that a parameter takes."""
        kind = self.read if isinstance(self.read, str) else (self.read or {}).get(name)
        if kind is not None:
            check_kind(kind, "`read`")
            return kind
        annotation = self._annotation(name)
        # The kind of a list of frames is that of its elements.
        return next((kind for hint in (annotation, *get_args(annotation)) if (kind := kind_of(hint))), "arrow")

    def _annotation(self, name: str) -> Any:
        """Return the annotation of a parameter. Under `from __future__ import annotations` it is a text to evaluate."""
        function = inspect.unwrap(self.python_callable)
        annotation = inspect.get_annotations(function).get(name)
        if not isinstance(annotation, str):
            return annotation
        known = {**getattr(function, "__globals__", {}), **inspect.getclosurevars(function).nonlocals}
        try:
            return eval(annotation, known)  # noqa: S307 - the code of the DAG's author, as Python itself would run it
        except Exception as error:  # a name that is imported only for type checkers can raise anything
            failure = ConfigError(
                f"Task `{self.task_id}`: the annotation `{name}: {annotation}` cannot be resolved: {error}.",
                remedy=f'Name the kind, for example @task.ducklake(…, read={{"{name}": "pandas"}}), or import the type'
                " at run time.",
            )
        raise failure


class _TableTask(_TaskDecorator[Any, Any, DuckLakeDecoratedOperator]):
    """The decorated function. Its mapped tasks, too, have assets of their tables as outlets and inlets."""

    def _expand(self, expand_input: Any, *, strict: bool) -> Any:
        read = assets_of_arguments([self.kwargs.get("op_kwargs"), expand_input.value])
        mapped = copy(self)
        mapped.kwargs = {"inlets": read} | with_outlet(self.kwargs)
        return super(_TableTask, mapped)._expand(expand_input, strict=strict)


def _with_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make the parameters in `GIVEN` optional, because the operator passes them and not the caller."""
    signature = inspect.signature(function)
    given = [name for name in signature.parameters if name in GIVEN]
    if not given:
        return function
    others = [parameter for name, parameter in signature.parameters.items() if name not in GIVEN]
    names = [other.name for other in others]

    @functools.wraps(function)
    def wanting(*args: Any, **kwargs: Any) -> Any:
        return function(**dict(zip(names, args, strict=False)), **kwargs)

    wanting.__signature__ = signature.replace(  # type: ignore[attr-defined]  # `inspect` reads this attribute
        parameters=[*others, *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in given)]
    )
    return wanting


def ducklake_task(
    python_callable: Callable[..., Any] | None = None, multiple_outputs: bool | None = None, **kwargs: Any
) -> Any:
    """Return the decorator `@task.ducklake(table=…)`, which makes a task of a function whose result becomes a table."""

    def decorate(function: Callable[..., Any]) -> Any:
        operator = DuckLakeDecoratedOperator
        return _TableTask(function=function, operator_class=operator, multiple_outputs=False, kwargs=kwargs)

    return decorate if python_callable is None else decorate(python_callable)
