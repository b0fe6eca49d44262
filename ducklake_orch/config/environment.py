"""Read a lake's configuration from `DUCKLAKE_…` environment variables."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.model import Model
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.origins import URL_TABLES, Tree, expand_url, overlay, source
from ducklake_orch.config.shape import GROUPS, HOOKS, LAKE_KEYS, TYPES, is_free_table, is_list, keys_of, models_in
from ducklake_orch.errors import ConfigError

PREFIX = "DUCKLAKE_"
OTHERS = "DUCKLAKE_ORCH_"
NAME, CONFIG, PROFILE = "DUCKLAKE_NAME", "DUCKLAKE_CONFIG", "DUCKLAKE_PROFILE"


def read_environment(environ: Mapping[str, str]) -> Tree:
    """Read the fields of a lake from the environment; empty variables are ignored.

    Raises:
        ConfigError: When a variable is unknown or cannot be read.
    """
    tree: Tree = {}
    # Sorted, so that DUCKLAKE_CATALOG is read before the variables that override parts of it.
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or variable.startswith(OTHERS) or variable in (NAME, CONFIG, PROFILE):
            continue
        path = _field_path(variable)
        if text := environ[variable]:
            value = _value(variable, path, text)
            for key in reversed(path):
                value = {key: value}
            read = source(value, f"environment {variable}")
            for what in URL_TABLES:
                if isinstance(table := read.get(what), dict):
                    read[what] = expand_url(what, table)
            tree = overlay(tree, read)
    return tree


def environment_of(config: LakeConfig) -> dict[str, str]:
    """Return the variables that describe a lake, with its secrets but without its hooks, which are Python functions."""
    fields = (config.model_fields_set | {"catalog", "storage"}) - {*HOOKS, "name"}
    values = {field: _written(getattr(config, field)) for field in LAKE_KEYS if field in fields}
    variables = {
        f"{PREFIX}{field.upper()}": value if isinstance(value, str) else json.dumps(value)
        for field, value in values.items()
        if value is not None
    }
    return {NAME: config.name} | variables


def _written(value: Any) -> Any:
    """Return a value in a form that JSON can hold."""
    if isinstance(value, Model):
        names = [name for name in type(value).model_fields if name == "type" or name in value.model_fields_set]
        return {name: _written(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: _written(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, datetime):
        return value.isoformat()
    return str(value) if isinstance(value, Path) else value


def _field_path(variable: str) -> list[str]:
    field, *keys = variable.removeprefix(PREFIX).split("__")
    field, depth = field.lower(), len(keys)
    lowered = [key.lower() for key in keys]
    if field in HOOKS:
        raise ConfigError(f"environment {variable}: `{field}` is a Python function.", remedy="Pass it as an argument.")
    if field in LAKE_KEYS and all(keys):
        if depth == 0:
            return [field]
        models = [GROUPS[field]] if field in GROUPS else list(TYPES.get(field, {}).values())
        if depth == 2 and any(lowered[1] in inner.model_fields for inner in _parts_of(field, lowered[0])):
            return [field, *lowered]
        if lowered[0] in keys_of(models) and (depth == 1 or (depth == 2 and is_free_table(models, lowered[0]))):
            return [field, lowered[0], *map(_own_key, keys[1:])]
        if is_free_table([LakeConfig], field):
            return [field, *map(_own_key, keys)]
    raise ConfigError(f"The environment variable `{variable}` is unknown.", remedy=nearest(variable, _known()))


def _parts_of(field: str, key: str) -> list[type[Model]]:
    free = field not in GROUPS or is_free_table([GROUPS[field]], key)
    return [] if free else models_in(GROUPS[field], key)


def _own_key(key: str) -> str:
    # Variable names are upper-case by convention, so an upper-case key is lowered; mixed case is kept as chosen.
    return key.lower() if key.isupper() else key


def _known() -> list[str]:
    paths = [[field] for field in LAKE_KEYS]
    paths += [[field, key] for field, models in TYPES.items() for key in keys_of(models.values())]
    paths += [[field, key] for field, model in GROUPS.items() for key in model.model_fields]
    for field, model in GROUPS.items():
        parts = [(key, inner) for key in model.model_fields for inner in _parts_of(field, key)]
        paths += [[field, key, name] for key, inner in parts for name in inner.model_fields]
    return [NAME, CONFIG, PROFILE, *(PREFIX + "__".join(path).upper() for path in paths)]


def _value(variable: str, path: list[str], text: str) -> Any:
    field, whole = path[0], len(path) == 1
    if whole and field in URL_TABLES and not text.startswith("{"):
        return {"url": text}
    if whole and (field in URL_TABLES or field in GROUPS or is_free_table([LakeConfig], field)):
        remedy = f'Write \'{{"key": "value"}}\', or one variable per key: {variable}__KEY.'
        return _json(variable, text, dict, remedy)
    if whole and is_list(field):
        names = [part.strip() for part in text.split(",")]
        return _json(variable, text, list, "Write '[\"a\", \"b\"]' or 'a,b'.") if text.startswith("[") else names
    return _scalar(text) if is_free_table([LakeConfig], field) else text


def _json(variable: str, text: str, shape: type, remedy: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):  # also for thousands of digits or brackets
        value = None
    # Raised here, not in the handler: the decoder's error holds the text, including secrets.
    if not isinstance(value, shape):
        wanted = "object" if shape is dict else "list"
        raise ConfigError(f"environment {variable}: the value is not a JSON {wanted}.", remedy=remedy)
    return value


def _scalar(text: str) -> Any:
    """Read `true`, `4` and `0.5` as a boolean or number, so that they compare equal to TOML's values."""
    try:
        value = json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, bool | int | float) else text
