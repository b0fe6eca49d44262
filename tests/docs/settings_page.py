"""Generates docs/settings.md, a list of every field of the configuration, from the models.

Run `python -m tests.docs.settings_page` to write it; a test compares the page with the models.
"""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo

from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.environment import CONFIG, NAME, PREFIX, PROFILE
from ducklake_orch.config.lake import ATTACH_OPTIONS, PERSISTED_OPTIONS, LakeConfig
from ducklake_orch.config.maintenance import TablePolicy
from ducklake_orch.config.model import Model
from ducklake_orch.config.shape import GROUPS, HOOKS, models_in
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.tables import Family, UrlModel
from ducklake_orch.config.units import in_words
from ducklake_orch.errors import ConfigError
from tests.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "settings.md"
_HEAD = f"""\
# Every setting

This page is generated from the configuration models. [Configuration](configuration.md) explains how to set values and
which source takes precedence. [Catalogs](catalogs.md) and [Storages](storages.md) have blocks to copy.

Durations are written as `7 days`, `36h`, `90s` or `PT36H`, sizes as `512 MiB` or `2GB`.
A setting without a default is not set; the engine's own default then applies.
`{NAME}`, `{CONFIG}` and `{PROFILE}` name the lake (`lake` if no source names it), the TOML file and its profile.
"""
_READ_AS = {
    "parse_duration": "duration",
    "parse_size": "size",
    "_memory": "size",
    "_milliseconds": "milliseconds, or a duration",
    "_at_home": "path",
    "_as_tuple": "text, or a list of texts",
    "_as_texts": "table",
}
_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", SecretStr: "secret text"}
# Placeholders for values in a URL with all its parts.
_WHOLE = {
    "sqlite": "sqlite:///path",
    "duckdb": "duckdb:///path",
    "postgres": "postgresql://user:password@host:1/database",
    "mysql": "mysql://user:password@host:1/database",
    "motherduck": "md:database",
    "local": "path",
    "s3": "s3://bucket/prefix",
    "r2": "r2://bucket/prefix",
    "gcs": "gs://bucket/prefix",
    "azure": "az://container/prefix",
}


def page() -> str:
    """Return the page generated from the models."""
    return "\n".join([_HEAD, *_lake(), *_family(CATALOGS, "Catalogs"), *_family(STORAGES, "Storages"), *_options()])


def _lake() -> Iterator[str]:
    yield "## The lake\n"
    yield "Fields of `LakeConfig`, of a table `[lakes.<name>]`, and arguments of `DuckLake.from_url`.\n"
    yield from _table(LakeConfig, PREFIX)
    for key, model in GROUPS.items():
        yield from _group(key, model)


def _group(key: str, model: type[Model], level: int = 3) -> Iterator[str]:
    variable = f"{PREFIX}{key.replace('.', '__').upper()}__"
    yield f"{'#' * level} {key}\n"
    yield f"{_first_line(model)}\n"
    flat = {name for name in model.model_fields if not models_in(model, name)}
    yield from _table(model, variable, only=flat)
    for name in model.model_fields:
        for inner in models_in(model, name):
            if inner is TablePolicy:
                yield f"{'#' * (level + 1)} {key}.{name}\n"
                own = [part for part in inner.model_fields if models_in(inner, part) != models_in(model, part)]
                parts = _in_code(part for part in inner.model_fields if part not in own)
                fields = _in_code(f"{part}.{field}" for part in own for field in models_in(inner, part)[0].model_fields)
                yield f"{_about(model.model_fields[name])} Each has any of {parts}, as above, and {fields}.\n"
            else:
                yield from _group(f"{key}.{name}", inner, level + 1)


def _family(family: Family, heading: str) -> Iterator[str]:
    yield f"## {heading}\n"
    yield (
        f"One of these is the `{family.what}` of a lake."
        " In a TOML table `url` gives the URL; the table's other fields override it.\n"
    )
    for kind, model in family.types.items():
        schemes = [f"`{scheme}:`" for scheme, of in family.schemes.items() if of is model]
        yield f"### {kind}\n"
        yield f"{_first_line(model)} `{model.__name__}` in Python; URLs begin with {', '.join(schemes)}.\n"
        yield from _table(model, f"{PREFIX}{family.what.upper()}__", url=_url_keys(model, kind))


def _options() -> Iterator[str]:
    yield "## Options of the lake\n"
    yield "Keys of `options` and of `lake.set_option`, which the catalog stores for a lake, a schema or a table.\n"
    yield f"{_in_code(sorted(PERSISTED_OPTIONS))}\n"
    yield "## Options of ATTACH\n"
    yield f"Keys of `attach_options`: {_in_code(sorted(ATTACH_OPTIONS))}, and `meta_…` for the catalog's own ATTACH.\n"


def _table(
    model: type[Model], variable: str, *, url: dict[str, str] | None = None, only: set[str] | None = None
) -> Iterator[str]:
    heads = ["Field", "Type", "Default", *(["In a URL"] if url is not None else []), "Meaning, and variable"]
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---|' * len(heads)}"
    for name, field in model.model_fields.items():
        if only is not None and name not in only:
            continue
        named = NAME if model is LakeConfig and name == "name" else f"{variable}{name.upper()}"
        cells = [f"`{name}`", _type(model, name), _default(model, name)]
        cells += [url.get(name, "")] if url is not None else []
        about = _about(field) + ("" if name in HOOKS else f"<br>`{named}`")
        yield f"| {' | '.join([*cells, about])} |"
    yield ""


def _about(field: FieldInfo) -> str:
    return (field.description or "").replace("|", "\\|")


def _first_line(model: type[BaseModel]) -> str:
    return str(model.__doc__).strip().splitlines()[0]


def _in_code(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _type(model: type[Model], name: str) -> str:
    field = model.model_fields[name]
    if name in ("catalog", "storage"):
        return "table or URL"
    if name in HOOKS:
        return "Python function"
    for constraint in field.metadata:
        if read := _READ_AS.get(getattr(getattr(constraint, "func", None), "__name__", "")):
            return read
    return _type_of(field.annotation)


def _type_of(annotation: Any) -> str:
    for constraint in getattr(annotation, "__metadata__", ()):
        if read := _READ_AS.get(getattr(getattr(constraint, "func", None), "__name__", "")):
            return read
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in inside)
    if origin in (Union, UnionType):
        return " or ".join(_type_of(argument) for argument in inside if argument is not type(None))
    if origin is dict:
        return "table"
    if origin is list or (origin is tuple and inside[-1] is Ellipsis):
        return f"list of {_type_of(inside[0])}s" if inside else "list"
    if origin is tuple:
        return f"{_type_of(inside[0])}: warn, bad"
    if hasattr(annotation, "__metadata__"):
        return _type_of(inside[0])
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return f"[table](#{annotation.__name__.lower().removesuffix('policy')})"
    return _WORDS.get(annotation, "time" if annotation.__name__ == "datetime" else annotation.__name__)


def _default(model: type[Model], name: str) -> str:
    special = {"catalog": "`sqlite:///<name>.sqlite`", "storage": "`./<name>.files`", "alias": "made from `name`"}
    if model is LakeConfig and name in special:
        return special[name]
    field = model.model_fields[name]
    if field.is_required():
        return "needed"
    value = field.get_default(call_default_factory=True, validated_data={})
    if name == "type":
        return f"`{value}`"
    if isinstance(value, Model):
        return "see below"
    return "" if value is None or value in ("", {}, [], ()) else f"`{_shown(value, model, name)}`"


def _shown(value: Any, model: type[Model], name: str) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, timedelta):
        return in_words(value) if value else "0 s"
    if isinstance(value, tuple):
        sizes = "_bytes" in name
        return ", ".join(f"{item // 1024**3} GiB" if sizes else _shown(item, model, name) for item in value)
    # A size is stored as a number of bytes.
    if match := re.fullmatch(r"(\d+)B", str(value)):
        return f"{int(match[1]) // 1024**2} MiB"
    return str(value)


def _url_keys(model: type[UrlModel], kind: str) -> dict[str, str]:
    """Return the part of a URL that sets each field, as the model parses it."""
    whole = _WHOLE[kind]
    places = dict.fromkeys(model.url_fields(whole), "itself")
    for name in model.model_fields:
        for key in (name, {"database": "dbname", "token": "motherduck_token"}.get(name, name)):
            if name not in places and _reads(model, f"{whole}?{key}=1", name):
                places[name] = f"`?{key}=`"
    if kind == "postgres":
        places["parameters"] = "`?<parameter>=`"
    return places


def _reads(model: type[UrlModel], url: str, name: str) -> bool:
    if url.startswith("path"):
        return False  # a plain path sets only the path
    try:
        return name in model.url_fields(url)
    except ConfigError:
        return False


def main(place: Path = PAGE) -> None:
    """Write the page."""
    place.write_text(page(), "utf-8")


if __name__ == "__main__":
    main()
