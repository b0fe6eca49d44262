"""What catalogs and storages share: each can be written as a model, a URL, or a table of fields."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, SecretStr

from ducklake_orch.config.model import Model, nearest
from ducklake_orch.errors import ConfigError


class UrlModel(Model):
    """A model that a URL can describe."""

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Return the fields that a URL gives: others may still stand beside it."""
        raise NotImplementedError

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Read the URL form."""
        return cls(**cls.url_fields(url))


def read_table(
    value: Any, what: str, types: Mapping[str, type[UrlModel]], url_table: Callable[[str], dict[str, Any]]
) -> Any:
    """Build the model that a URL, or a table's `type` or `url`, names; fields beside a `url` override what it says."""
    if isinstance(value, str):
        value = {"url": value}
    if not isinstance(value, Mapping):
        return value
    fields = dict(value)
    if url := fields.pop("url", None):
        table = url_table(str(url))
        if fields.get("type", table["type"]) != table["type"]:
            raise ConfigError(f"The `type` of a {what} is `{fields['type']}`, its `url` one of type `{table['type']}`.")
        if "parameters" in table and isinstance(parameters := fields.get("parameters"), Mapping):
            fields["parameters"] = table["parameters"] | dict(parameters)
        fields = table | fields
    kind = str(fields.get("type", ""))
    if kind not in types:
        shown = f"the unknown type `{kind}`" if kind else "no `type`"
        raise ConfigError(f"A {what} has {shown}.", remedy=nearest(kind, types))
    return types[kind](**fields)


def _as_texts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    texts = {key: str(item).lower() if isinstance(item, bool) else item for key, item in value.items()}
    return {key: str(item) if isinstance(item, int) else item for key, item in texts.items()}


# Parameters are texts for whoever reads them in the end; in TOML they may stand as numbers and booleans.
_Parameters = BeforeValidator(_as_texts, json_schema_input_type=dict[str, str | int | bool])
Parameters = Annotated[dict[str, str], _Parameters]
SecretParameters = Annotated[dict[str, SecretStr], _Parameters]
