"""The base of catalogs and storages, each of which is a model, a URL, or a table of fields."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, SecretStr

from ducklake_orch.config.model import Model
from ducklake_orch.config.nearest import nearest
from ducklake_orch.config.urls import refuse_scheme, scheme_of
from ducklake_orch.errors import ConfigError


class UrlModel(Model):
    """A model that a URL can describe."""

    @classmethod
    @abstractmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Return the fields that a URL sets; the table may hold further ones."""

    @classmethod
    def from_url(cls, url: str) -> Self:
        """Parse the URL form."""
        return cls(**cls.url_fields(url))


@dataclass(frozen=True)
class Family:
    """All catalogs, or all storages.

    Attributes:
        what: The name of one of them in messages.
        types: The models, by `type`.
        schemes: The models, by URL scheme.
        plain: The scheme of a text that is not a URL; empty if such texts are refused.
        has_drivers: Whether a scheme may name a driver, as SQLAlchemy's do (`postgresql+psycopg`); it is ignored.
    """

    what: str
    types: Mapping[str, type[UrlModel]]
    schemes: Mapping[str, type[UrlModel]]
    plain: str = ""
    has_drivers: bool = False

    def model(self, url: str) -> type[UrlModel] | None:
        """Return the model of a URL; None if its scheme is not known."""
        scheme = scheme_of(url) or ("" if "://" in url else self.plain)  # a misspelt URL is no path
        return self.schemes.get(scheme.partition("+")[0] if self.has_drivers else scheme)

    def table(self, url: str) -> dict[str, Any]:
        """Return the table of fields that a URL means, or the name of a type."""
        if url in self.types and not self.plain:
            return {"type": url}
        model = self.model(url)
        if model is None:
            raise refuse_scheme(url, self.what, self.schemes)
        return {"type": model.model_fields["type"].default, **model.url_fields(url)}

    def read(self, value: Any) -> Any:
        """Build the model for a URL or a table with `type` or `url`; fields next to a `url` override it.

        A URL may also be an object of SQLAlchemy.
        """
        if callable(render := getattr(value, "render_as_string", None)):
            value = render(hide_password=False)
        if isinstance(value, str | Path):
            value = {"url": str(value)}
        if not isinstance(value, Mapping):
            return value
        fields = dict(value)
        if url := fields.pop("url", None):
            table = self.table(str(url))
            if fields.get("type", table["type"]) != table["type"]:
                mismatch = f"`{fields['type']}`, but its `url` is of type `{table['type']}`"
                raise ConfigError(f"The `type` of a {self.what} is {mismatch}.")
            if "parameters" in table and isinstance(parameters := fields.get("parameters"), Mapping):
                fields["parameters"] = table["parameters"] | dict(parameters)
            fields = table | fields
        kind = str(fields.get("type", ""))
        if kind not in self.types:
            shown = f"the unknown type `{kind}`" if kind else "no `type`"
            raise ConfigError(f"A {self.what} has {shown}.", remedy=nearest(kind, self.types))
        return self.types[kind](**fields)


def _as_texts(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    texts = {key: str(item).lower() if isinstance(item, bool) else item for key, item in value.items()}
    return {key: str(item) if isinstance(item, int) else item for key, item in texts.items()}


# The programs that receive parameters expect texts; TOML may give numbers and booleans.
_Parameters = BeforeValidator(_as_texts, json_schema_input_type=dict[str, str | int | bool])
Parameters = Annotated[dict[str, str], _Parameters]
SecretParameters = Annotated[dict[str, SecretStr], _Parameters]
