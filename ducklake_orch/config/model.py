"""The base of every configuration model: frozen, strict about keys, and readable when something is wrong."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationError

from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.redaction import redact_url
from ducklake_orch.errors import ConfigError


class Model(BaseModel):
    """A frozen model whose validation errors are `ConfigError`s that name value, place and remedy."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, validate_default=True)

    def __init__(self, **data: Any) -> None:
        failure = _refuse_halves(type(self), data)
        if failure is None:
            try:
                super().__init__(**data)
            except ValidationError as error:
                failure = explain(type(self), error)
        # Raised outside the handler: pydantic's error keeps the raw input, including secrets, and would be chained.
        if failure:
            raise failure

    def secret_values(self) -> list[str]:
        """Return every secret in this model and its nested models."""
        return list(_secrets(self))


def _secrets(value: Any) -> Iterable[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for name in type(value).model_fields:
            yield from _secrets(getattr(value, name))
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secrets(item)


def _refuse_halves(model: type[BaseModel], data: Mapping[str, Any]) -> ConfigError | None:
    """Return the error for a text that is not Unicode, as Python reads bytes of another encoding from variables."""
    for key, value in data.items():
        if not _is_unicode(key) or not _is_unicode(value):
            shown = key.encode("ascii", "backslashreplace").decode()
            text = f"{_place(model)}: `{shown}` has bytes or characters that are not Unicode."
            return ConfigError(text, remedy="Write it in UTF-8.")
    return None


def _is_unicode(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(_is_unicode(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(_is_unicode, value))
    return not isinstance(value, str | Path) or str(value).encode(errors="replace").decode() == str(value)


def _place(model: type[BaseModel]) -> str:
    return str(model.model_fields["type"].default if "type" in model.model_fields else model.__name__)


def explain(model: type[BaseModel], error: ValidationError) -> ConfigError:
    """Convert pydantic's error to one sentence per problem, without secrets."""
    place = _place(model)
    problems, remedies = [], []
    for problem in error.errors(include_url=False):
        loc = [str(part) for part in problem["loc"]]
        key = ".".join(loc)
        if problem["type"] == "default_factory_not_called":
            continue  # a consequence of another wrong field, which is reported itself
        if problem["type"] == "extra_forbidden":
            problems.append(f"unknown key `{key}`")
            remedies.append(nearest(loc[-1], model.model_fields))
        elif problem["type"] == "missing":
            problems.append(f"`{key}` is missing")
        else:
            message = problem["msg"].removeprefix("Value error, ")
            problems.append(f"`{key}`{_shown(model, loc, problem['input'])}: {message}" if key else message)
    text = "; ".join(problems)
    return ConfigError(f"{place}: {text}{'' if text.endswith(('.', '?')) else '.'}", remedy=" ".join(remedies) or None)


def _shown(model: type[BaseModel], loc: list[str], value: Any) -> str:
    field = model.model_fields.get(loc[0])
    if field is None or is_secret(field.annotation) or not isinstance(value, str | int | float | bool):
        return ""
    return f" = {redact_url(repr(value))}"


def is_secret(annotation: Any) -> bool:
    """Return whether a field of this type holds secrets."""
    return annotation is SecretStr or any(is_secret(arg) for arg in get_args(annotation))
