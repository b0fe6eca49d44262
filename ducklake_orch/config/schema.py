"""Generate the JSON Schema of the TOML file, for editors and for checks in continuous integration."""

from typing import Any

from pydantic import BaseModel

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.model import Model
from ducklake_orch.config.shape import FAMILIES, GROUPS, KNOWN_KEYS, LAKE_KEYS, TYPES, models_in

Schema = dict[str, Any]

_REFERENCE = {"$ref": "#/$defs/reference"}


def config_schema() -> Schema:
    """Return the JSON Schema (draft 2020-12) of a `ducklake.toml`."""
    about = "A value from the environment: `${VAR}` or `${VAR:-default}`."
    definitions: Schema = {"reference": {"type": "string", "pattern": r"\$\{", "description": about}}
    definitions |= {model.__name__: _closed(_fields(model), str(model.__doc__)) for model in _groups()}
    for what, types in TYPES.items():
        named = {"type": "string", "description": f"A name in [{what}s], or a URL."}
        whole, partial = [named], [named]
        for kind, model in types.items():
            definitions[model.__name__] = _closed(_fields(model) | {"url": _url(what, kind)}, str(model.__doc__))
            partial.append({"$ref": f"#/$defs/{model.__name__}"})
            whole.append(partial[-1] | _required(model))
        definitions |= {what: {"anyOf": whole}, f"{what}_overlay": {"anyOf": partial}}
    fields = {key: field for key, field in _fields(LakeConfig).items() if key in LAKE_KEYS}
    for suffix in ("", "_overlay"):
        tables = {what: {"$ref": f"#/$defs/{what}{suffix}"} for what in TYPES}
        definitions[f"lake{suffix}"] = _closed(fields | tables, "Everything needed to open one lake, on any host.")
    profile = _closed(_sections("_overlay"), "Changes to lakes, catalogs and storages, by their names.")
    profiles = {"type": "object", "additionalProperties": profile, "description": "Overlays, chosen by name."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "ducklake.toml",
        **_closed(_sections("") | {"profiles": profiles}, "The lakes of ducklake-orch."),
        "$defs": definitions,
    }


def _sections(suffix: str) -> Schema:
    about = {
        "lake": "Lakes, by name.",
        "catalog": "Catalogs that lakes refer to by name; several lakes can share one.",
        "storage": "Storages that lakes refer to by name; each lake has its own folder in it.",
    }
    shared = {"maintenance": {"$ref": "#/$defs/MaintenancePolicy", "description": "How all lakes are maintained."}}
    return shared | {
        f"{what}s": {
            "type": "object",
            "description": text,
            "additionalProperties": {"$ref": f"#/$defs/{what}{suffix}"},
        }
        for what, text in about.items()
    }


def _groups() -> list[type[Model]]:
    """Return the models of groups of fields, including nested models."""
    groups = list(GROUPS.values())
    for model in groups:  # the list grows during the loop
        groups += [inner for key in model.model_fields for inner in models_in(model, key) if inner not in groups]
    return groups


def _required(model: type[BaseModel]) -> Schema:
    needed = [name for name, field in model.model_fields.items() if field.is_required()]
    return {"anyOf": [{"required": ["type", *needed]}, {"required": ["url"]}]}


def _url(what: str, kind: str) -> Schema:
    family = FAMILIES[what]
    driver = r"(\+\w+)?" if family.has_drivers else ""
    schemes = [scheme for scheme, model in family.schemes.items() if model is family.types[kind]]
    forms = [r".*\$\{", *(f"{scheme}{driver}:" for scheme in schemes)]
    forms += ["(?![A-Za-z][A-Za-z0-9+.-]+:)"] if kind == "local" else []
    return {
        "type": "string",
        "pattern": f"^({'|'.join(forms)})",
        "description": "URL form; the table's other fields override it.",
    }


def _closed(properties: Schema, description: str) -> Schema:
    return {"type": "object", "description": description, "properties": properties, "additionalProperties": False}


def _fields(model: type[BaseModel]) -> Schema:
    fields: Schema = {key: _in_toml(field) for key, field in model.model_json_schema()["properties"].items()}
    for key, known in KNOWN_KEYS.items():
        if fields.get(key, {}).get("type") == "object":
            fields[key]["propertyNames"] = {"enum": sorted(known)}
    return fields


def _in_toml(schema: Any) -> Any:
    """Adapt pydantic's schema to TOML, which has no null, and to values from the environment."""
    if isinstance(schema, list):
        return [_in_toml(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: item for key, item in schema.items() if key != "title" and not (key == "default" and item is None)}
    fitted = {key: _in_toml(item) for key, item in kept.items()}
    choices = [choice for choice in fitted.pop("anyOf", []) if choice != {"type": "null"}]
    texts = "enum" in fitted or fitted.get("format") == "date-time"
    if texts or fitted.get("type") in {"integer", "number", "boolean"}:
        about = {key: fitted.pop(key) for key in ("description", "default") if key in fitted}
        return about | {"anyOf": [fitted, _REFERENCE]}
    if len(choices) == 1:
        return fitted | choices[0]
    return fitted | ({"anyOf": choices} if choices else {})
