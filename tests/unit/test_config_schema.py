"""The JSON Schema accepts and refuses the same files as the loader."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from ducklake_orch.config.loading import load
from ducklake_orch.config.schema import config_schema
from ducklake_orch.config.shape import LAKE_KEYS, TYPES
from ducklake_orch.config.template import starter_toml
from ducklake_orch.errors import ConfigError

VALIDATOR = jsonschema.Draft202012Validator(config_schema())

GOOD = {
    "nothing but a name": "[lakes.a]",
    "names": """
        [lakes.a]
        catalog = 'pg'
        storage = 'b'
        [catalogs.pg]
        url = 'postgresql://h'
        [storages.b]
        url = 's3://b'
    """,
    "inline tables": """
        [lakes.a]
        catalog = { type = 'mysql', host = 'h', port = 3306 }
        storage = { type = 'local', path = './x' }
    """,
    "variables for numbers": """
        [lakes.a]
        threads = '${T}'
        catalog = { type = 'postgres', host = 'h', port = '${P:-5432}' }
    """,
    "variables for words": "[lakes.a]\ncatalog = { type = 'postgres', host = 'h', sslmode = '${M}' }",
    "a url with keys": "[lakes.a]\ncatalog = { url = 'postgresql://u@h/db', password = '${P}' }",
    "a url that is a variable": "[lakes.a]\ncatalog = { url = '${U}', password = 'x' }",
    "durations and sizes": """
        [lakes.a]
        lock_timeout = '5 min'
        memory_limit = '2GB'
        task_memory_limit = 1000000
        pool = { idle = 5 }
    """,
    "free tables": "[lakes.a]\nsettings = { TimeZone = 'UTC', threads = 4 }\noptions = { auto_compact = false }",
    "secret parameters": """
        [lakes.a]
        storage = { type = 's3', bucket = 'b', secret_parameters = { kms_key_id = 'x', n = 5 } }
    """,
    "profiles": """
        [lakes.a]
        storage = 'b'
        [storages.b]
        url = 's3://b'
        [profiles.dev.storages.b]
        region = 'eu'
        [profiles.dev.lakes.a]
        read_only = true
    """,
}

BAD = {
    "a section": "[lake.a]",
    "a later section": "[schedules]",
    "a key": "[lakes.a]\nread_onyl = true",
    "the name": "[lakes.a]\nname = 'b'",
    "a hook": "[lakes.a]\non_connect = 'f'",
    "a nested key": "[lakes.a.retry]\nmax_atempts = 3",
    "a key of a catalog": "[catalogs.pg]\ntype = 'postgres'\npasword = 'x'\n[lakes.a]",
    "a key of another type": "[storages.b]\ntype = 'local'\npath = 'x'\nregion = 'eu'\n[lakes.a]",
    "an unknown type": "[catalogs.pg]\ntype = 'postgre'\n[lakes.a]",
    "no type": "[lakes.a.catalog]\nhost = 'h'",
    "a missing key": "[lakes.a.storage]\ntype = 's3'",
    "a text for a number": "[lakes.a]\nthreads = 'many'",
    "a number out of range": "[lakes.a.catalog]\ntype = 'postgres'\nport = 0",
    "an unknown word": "[lakes.a.catalog]\ntype = 'postgres'\nsslmode = 'sometimes'",
    "an unknown option": "[lakes.a.options]\ntarget_size = '1GB'",
    "an unknown libpq parameter": "[lakes.a.catalog]\ntype = 'postgres'\nparameters = { sslrootcrt = 'x' }",
    "a number for a catalog": "[lakes.a]\ncatalog = 5",
    "a key in a profile": "[lakes.a]\n[profiles.dev.lakes.a]\nread_onyl = true",
}


def test_the_schema_is_valid_json_schema() -> None:
    schema = config_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert json.loads(json.dumps(schema)) == schema
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("text", GOOD.values(), ids=GOOD)
def test_a_good_file_passes(text: str, toml: Callable[[str], Path]) -> None:
    VALIDATOR.validate(tomllib.loads(text))
    load(path=toml(text), lake="a", environ={"T": "4", "P": "5432", "M": "require", "U": "mysql://h"})


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_a_bad_file_fails(text: str, toml: Callable[[str], Path]) -> None:
    assert not VALIDATOR.is_valid(tomllib.loads(text))
    with pytest.raises(ConfigError):
        load(path=toml(text), lake="a", environ={})


def test_the_starter_file_passes() -> None:
    VALIDATOR.validate(tomllib.loads(starter_toml("a", "postgresql://u:p@h/db", "s3://b/p")))


def test_the_schema_has_every_field_with_its_description() -> None:
    definitions = config_schema()["$defs"]
    assert set(definitions["lake"]["properties"]) == LAKE_KEYS
    fields: dict[str, Any] = {}
    for types in TYPES.values():
        for model in types.values():
            properties = definitions[model.__name__]["properties"]
            assert set(properties) == {"url", *model.model_fields}
            fields |= properties
    fields |= {key: field for key, field in definitions["lake"]["properties"].items() if "$ref" not in field}
    assert [key for key, field in fields.items() if not field.get("description")] == []
