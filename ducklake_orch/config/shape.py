"""The keys of a lake's configuration, shared by files and environment variables."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args, get_origin

from ducklake_orch.config.catalogs import CATALOGS, LIBPQ_PARAMETERS
from ducklake_orch.config.lake import PERSISTED_OPTIONS, LakeConfig, PoolPolicy, RetryPolicy
from ducklake_orch.config.maintenance import MaintenancePolicy
from ducklake_orch.config.model import Model
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.tables import UrlModel
from ducklake_orch.config.urls import scheme_of

FAMILIES = {"catalog": CATALOGS, "storage": STORAGES}
TYPES: dict[str, Mapping[str, type[UrlModel]]] = {what: family.types for what, family in FAMILIES.items()}
GROUPS: dict[str, type[Model]] = {"retry": RetryPolicy, "pool": PoolPolicy, "maintenance": MaintenancePolicy}
HOOKS = frozenset({"on_connect", "on_attach"})
LAKE_KEYS = frozenset(LakeConfig.model_fields) - HOOKS - {"name"}
# The known keys of tables that otherwise accept any key.
KNOWN_KEYS: dict[str, Iterable[str]] = {"options": PERSISTED_OPTIONS, "parameters": LIBPQ_PARAMETERS}


def models_of(what: str, table: Any) -> list[type[UrlModel]]:
    """Return the possible models of a catalog's or storage's table: one if it gives its type, else all."""
    given = table if isinstance(table, dict) else {"url": table}
    if (kind := str(given.get("type", ""))) in TYPES[what]:
        return [TYPES[what][kind]]
    url = str(given.get("url", ""))
    model = FAMILIES[what].model(url) if scheme_of(url) else None  # a text without a scheme may be a name
    return list(TYPES[what].values()) if model is None else [model]


def keys_of(models: Iterable[type[Model]]) -> set[str]:
    """Return the keys that any of the models has."""
    return {key for model in models for key in model.model_fields}


def models_in(model: type[Model], key: str) -> list[type[Model]]:
    """Return the models in a field: as its value, or as the values of a table with user-defined keys."""
    field = model.model_fields.get(key)
    return [] if field is None else [part for part in _parts(field.annotation) if issubclass(part, Model)]


def _parts(annotation: Any) -> Iterable[type]:
    inside = get_args(annotation)
    return [kind for part in inside for kind in _parts(part)] if inside else [annotation] * isinstance(annotation, type)


def is_free_table(models: Iterable[type[Model]], key: str) -> bool:
    """Return whether a field is a table with user-defined keys."""
    return any(_container(model, key) is dict for model in models)


def is_list(key: str) -> bool:
    """Return whether a lake's field is a list."""
    return _container(LakeConfig, key) is list


def _container(model: type[Model], key: str) -> Any:
    return get_origin(model.model_fields[key].annotation) if key in model.model_fields else None
