"""What all parts of a lake's configuration share in Dagster: fields that may come from the environment, and secrets."""

import os
from collections.abc import Mapping
from typing import Any

import dagster as dg
from pydantic import BaseModel

from ducklake_orch.config.arguments import refuse_unknown
from ducklake_orch.errors import ConfigError

# What the launchpad writes where it hides a value; run with it, a lake would be asked for with this password.
HIDDEN = "********"


class Strict(BaseModel):
    """A model of Dagster's that refuses arguments which it has no field for; by itself Dagster ignores them."""

    def __init__(self, **data: Any) -> None:
        fields = type(self).model_fields
        # Dagster gives the names of fields, and people their aliases.
        given = [name for name in data if name not in fields]
        refuse_unknown(type(self).__name__, given, (field.alias or name for name, field in fields.items()))
        super().__init__(**data)


class Part(Strict, dg.Config):
    """A part of a lake's configuration.

    Its fields are those of the model of the same name in `ducklake_orch`, checked there once values are known: while
    definitions load, a field can still be the name of an environment variable.
    """

    def fields(self) -> dict[str, Any]:
        """Return what is given, as the core's models take it."""
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
        # Dagster looks variables up wherever it knows a field's type, and not in mappings of anything.
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
