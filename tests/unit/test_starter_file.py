"""The starter file defines the requested lake, has no secret, and its alternatives work when uncommented."""

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.loading import load
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.template import starter_toml

WriteToml = Callable[[str], Path]
STARTER = starter_toml("analytics", "sqlite:///lake.sqlite", "./files")
# Values of all variables in the file.
EVERYTHING = dict.fromkeys(re.findall(r"\$\{(\w+)\}", STARTER), "5432")
# A block is a commented table header with its commented lines.
BLOCKS = {f"{kind}.{name}": body for body, kind, name in re.findall(r"(# \[(\w+)\.([\w.]+)\]\n(?:# .*\n)*)", STARTER)}


def uncommented(text: str, *names: str) -> str:
    for name in names:
        text = text.replace(BLOCKS[name], re.sub(r"(?m)^# ", "", BLOCKS[name]))
    return text


def with_lines(text: str, catalog: str, storage: str) -> str:
    text = re.sub(r"(?m)^catalog = .*$", f'catalog = "{catalog}"', text)
    return re.sub(r"(?m)^storage = .*$", f'storage = "{storage}"', text)


def config(path: Path, environ: Mapping[str, str], profile: str | None = None) -> LakeConfig:
    return load(path=path, profile=profile, environ=environ).config


def test_the_file_defines_the_requested_lake(toml: WriteToml, tmp_path: Path) -> None:
    loaded = config(toml(STARTER), {})
    assert loaded.name == "analytics"
    assert loaded.catalog.to_url() == f"sqlite:///{tmp_path}/lake.sqlite"
    assert loaded.data_path == f"{tmp_path}/files/"


def test_every_catalog_and_storage_has_an_alternative() -> None:
    assert {f"catalogs.{kind}" for kind in CATALOGS.types} <= set(BLOCKS)
    assert {f"storages.{kind}" for kind in STORAGES.types} <= set(BLOCKS)


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.startswith("catalogs.")])
def test_each_catalog_works_when_uncommented(name: str, toml: WriteToml) -> None:
    text = with_lines(uncommented(STARTER, name, "storages.s3"), name.partition(".")[2], "s3")
    assert config(toml(text), EVERYTHING).catalog.type == name.partition(".")[2]


@pytest.mark.parametrize("name", [name for name in BLOCKS if name.startswith("storages.")])
def test_each_storage_works_when_uncommented(name: str, toml: WriteToml) -> None:
    text = with_lines(uncommented(STARTER, name, "catalogs.postgres"), "postgres", name.partition(".")[2])
    storage = config(toml(text), EVERYTHING).storage
    assert storage is not None
    assert storage.type == name.partition(".")[2].removesuffix("_chain")


def test_all_alternatives_work_together(toml: WriteToml) -> None:
    text = re.sub(r"(?m)^# (?!metadata_schema)", "", STARTER)  # an option of a catalog that is not active
    assert config(toml(text), EVERYTHING).create_if_missing
    assert config(toml(text), EVERYTHING, "dev").catalog.type == "sqlite"


SECRETS = [
    ("postgresql://u:canary@h/db?sslmode=require", "s3://b/p?access_key_id=k&secret_access_key=canary"),
    ("mysql://u:canary@h/db", "s3://b?access_key_id=k&secret_access_key=canary&session_token=canary"),
    ("md:db?token=canary&mode=own_bucket", "r2://b?account_id=a&access_key_id=k&secret_access_key=canary"),
    ("sqlite:///x.sqlite", "gs://b?key_id=k&secret=canary"),
    ("duckdb:////x.ducklake", "az://c?account_name=a&account_key=canary"),
    ("duckdb:////x.ducklake", "az://c?connection_string=AccountName%3Dcanary"),
    ("duckdb:////x.ducklake", "az://c?account_name=a&tenant_id=t&client_id=c&client_secret=canary"),
]


@pytest.mark.parametrize(("catalog", "storage"), SECRETS)
def test_secrets_become_variables(catalog: str, storage: str, toml: WriteToml) -> None:
    text = starter_toml("a", catalog, storage)
    assert "canary" not in text
    lake = tomllib.loads(text)["lakes"]["a"]
    names = re.findall(r"\$\{(\w+)\}", f"{lake['catalog']} {lake['storage']}")
    environ = dict.fromkeys(names, "canary") | {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=canary"}
    loaded = config(toml(text), environ)
    assert loaded.storage == STORAGES.read(storage)
    if not loaded.catalog.is_file:
        assert loaded.catalog == CATALOGS.read(catalog)


def test_a_managed_lake_has_no_storage(toml: WriteToml) -> None:
    assert config(toml(starter_toml("a", "md:db")), {}).storage is None


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(name=st.text(min_size=1), folder=st.text(min_size=1).filter(lambda t: "\x00" not in t and t.strip("./")))
def test_any_name_and_folder_is_read_back(name: str, folder: str) -> None:
    text = starter_toml(name, "sqlite:///lake.sqlite", f"/{folder}")
    lake = tomllib.loads(text)["lakes"][name]
    assert lake["storage"].replace("$${", "${") == str(Path(f"/{folder}"))


@pytest.mark.parametrize("folder", ["files", "./files", "../files", "/files", ".files"])
def test_a_folder_is_never_read_as_a_name(folder: str) -> None:
    storage = tomllib.loads(starter_toml("a", "sqlite:///x.sqlite", folder))["lakes"]["a"]["storage"]
    assert Path(storage) == Path(folder)
    assert "/" in storage
