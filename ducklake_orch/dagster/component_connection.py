"""Builds the resource of a lake from the YAML of a component, or from a TOML file in the folder of the component."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import dagster as dg

from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.model import is_secret
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.dagster.resource import DuckLakeFileResource

LAKE_FILE = "ducklake.toml"
_TOML = """# The environment variables DUCKLAKE_CATALOG and DUCKLAKE_STORAGE override this file.
[lakes.lake]
catalog = "sqlite:///lake.sqlite"
storage = "./files"
create_if_missing = true
"""
_VARIABLE = re.compile(r"\s*\{\{\s*env\.(\w+)\s*\}\}\s*")
_MODELS = (*CATALOGS.types.values(), *STORAGES.types.values())
# A URL can hold a password; `catalog` and `storage` can themselves be URLs.
_SECRET = {name for model in _MODELS for name, field in model.model_fields.items() if is_secret(field.annotation)}
_SECRET |= {"url", "catalog", "storage"}


def scaffold_file(folder: Path) -> None:
    """Write the TOML file that configures a lake, unless it exists."""
    file = folder / LAKE_FILE
    if not file.exists():
        file.write_text(_TOML)


def file_resource(folder: Path, file: str, profile: str | None, lake_name: str | None) -> DuckLakeFileResource:
    """Return the resource of a lake in a TOML file.

    Args:
        folder: The folder of the component.
        file: The file, relative to the folder.
        profile: The profile of the file to apply.
        lake_name: The lake's name in the file; needed if the file has several.
    """
    given = {"profile": profile, "lake": lake_name}
    chosen = {name: value for name, value in given.items() if value is not None}
    return DuckLakeFileResource(path=str(folder / file), **chosen)


def resolve_connection(context: dg.ResolutionContext, value: Any) -> Any:
    """Resolve the templates in the fields of a lake's resource.

    A secret that is one environment variable, `{{ env.NAME }}`, becomes an `EnvVar`: it is read when the lake is
    opened, and Dagster's pages show its name. Other templates are rendered when definitions load.
    """
    return {name: _resolved(context.at_path(name), name, item) for name, item in value.items()} if value else value


def _resolved(context: dg.ResolutionContext, name: str, value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _resolved(context.at_path(key), key, item) for key, item in value.items()}
    variable = _VARIABLE.fullmatch(value) if isinstance(value, str) and name in _SECRET else None
    return dg.EnvVar(variable[1]) if variable else context.resolve_value(value)
