"""Keeps the values of unions in resources that run config completes."""

from collections.abc import Sequence
from typing import Any, TypeVar

import dagster as dg
from dagster._config.field_utils import config_dictionary_from_values
from dagster._config.pythonic_config.resource import PartialResource

from ducklake_orch.dagster.configuration import Part

Resource = TypeVar("Resource")


def as_selector(value: Any) -> Any:
    """Return a member of a union in the form that run config has: `{"sqlite": {"path": …}}`."""
    if not isinstance(value, Part):
        return value
    fields = {name: getattr(value, name) for name in type(value).model_fields}
    kind = fields.pop("type")
    return {kind: {name: field for name, field in fields.items() if field is not None}}


def with_union_defaults(partial: PartialResource[Resource], unions: Sequence[str]) -> PartialResource[Resource]:
    """Return a resource whose unions have their given values as defaults in run config.

    Dagster makes the given values of all other fields defaults, but those of unions with a discriminator remain
    required.

    Args:
        partial: The resource, of `configure_at_launch`.
        unions: The names of the given unions.
    """
    state = partial._state__internal__
    shape: Any = state.config_schema.config_type
    given = config_dictionary_from_values({name: partial.data[name] for name in unions}, state.config_schema)
    fields = {
        name: dg.Field(field.config_type, default_value=given[name], is_required=False, description=field.description)
        if name in given
        else field
        for name, field in shape.fields.items()
    }
    partial._state__internal__ = state._replace(config_schema=dg.Field(fields))
    return partial
