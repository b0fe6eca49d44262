"""The base of lake configuration in Dagster: strict fields, environment variables and hidden secrets."""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import BaseModel

from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.errors import ConfigError

# The launchpad shows this text in place of a secret. A run launched with it would connect with it as the password.
HIDDEN = "********"


class Strict(BaseModel):
    """A Dagster model that refuses unknown arguments, which Dagster would ignore."""

    def __init__(self, **data: Any) -> None:
        fields = type(self).model_fields
        # Dagster passes names of fields, users pass their aliases.
        given = [name for name in data if name not in fields]
        refuse_unknown(type(self).__name__, given, (field.alias or name for name, field in fields.items()))
        super().__init__(**data)


class Part(Strict, dg.Config):
    """A part of a lake's configuration.

    Its fields are those of the model of the same name in `ducklake_orch`. That model checks them once the values are
    known: while definitions load, a field can still be the name of an environment variable.
    """

    def fields(self) -> dict[str, Any]:
        """Return the given fields in the form that the `ducklake_orch` models take."""
        return given(self)


def given(model: dg.Config, *skipped: str) -> dict[str, Any]:
    """Return the fields of a model that have a value."""
    names = [name for name in type(model).model_fields if name not in skipped]
    found = {name: value for name in names if (value := getattr(model, name)) is not None}
    return {name: _known(name, value) for name, value in found.items()}


def _known(place: str, value: Any) -> Any:
    if isinstance(value, Part):
        return value.fields()
    if isinstance(value, Mapping) and set(value) == {"env"}:
        # Dagster resolves variables only in fields whose type it knows, not inside a `dict[str, Any]`.
        if (found := os.environ.get(value["env"])) is None:
            raise ConfigError(f"`{place}`: the environment variable `{value['env']}` is not set.")
        return found
    if isinstance(value, Mapping):
        return {key: _known(f"{place}.{key}", item) for key, item in value.items()}
    if value == HIDDEN:
        raise ConfigError(
            f"`{place}` is {HIDDEN}, which a form shows in place of a secret.",
            remedy="Write the secret as an EnvVar, in run config as {env: NAME}.",
        )
    return value
