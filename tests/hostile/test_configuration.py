"""Hostile configuration: URLs, TOML files, environment variables, JSON, durations and sizes are read or refused."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.config.catalogs import CATALOGS
from ducklake_orch.config.loading import load
from ducklake_orch.config.storages import STORAGES
from ducklake_orch.config.template import starter_toml
from ducklake_orch.config.units import parse_duration, parse_size
from tests.hostile.cases import kinds_of, run_kind
from tests.hostile.damage import damaged, hostile_text

MEMORY_MB = 1000
SECRET = "canary-7f3a"
CATALOG_URLS = [
    "sqlite:///lake.sqlite?busy_timeout=100",
    "duckdb:////tmp/lake.ducklake",
    f"postgresql+psycopg://user:{SECRET}@db.example:5432/lakes?sslmode=require&application_name=x",
    f"postgresql://u:{SECRET}@[::1]:5432,h2:5433/lakes",
    f"mysql://user:{SECRET}@db:3306/lakes?ssl_mode=required",
    f"md:lake?motherduck_token={SECRET}",
]
STORAGE_URLS = [
    "data/files",
    "/abs/path with space/%20",
    f"s3://bucket/prefix?region=eu-west-1&access_key_id=x&secret_access_key={SECRET}&use_ssl=false",
    f"r2://bucket/p?account_id=a&access_key_id=k&secret_access_key={SECRET}",
    f"gcs://bucket/p?key_id=k&secret={SECRET}",
    f"az://container/p?account_name=a&account_key={SECRET}",
    "abfss://container@account.dfs.core.windows.net/p",
]
URL_PARTS = [
    "@",
    ":",
    "//",
    "?",
    "&",
    "=",
    "%",
    "%2",
    "%2F",
    "%00",
    "%ff",
    "[",
    "]",
    "#",
    "localhost",
    ":99999",
    "s3",
    "+",
]


def case_urls(seed: int, folder: Path) -> str:
    """A URL is refused, or means the same after it was written and read again."""
    pick = Random(seed)
    catalog, storage = pick.choice(CATALOG_URLS), pick.choice(STORAGE_URLS)
    if pick.random() < 0.6:
        catalog = hostile_text(catalog, pick, URL_PARTS)
    else:
        storage = hostile_text(storage, pick, URL_PARTS)
    lake = DuckLake.from_url("shop", catalog=catalog, storage=storage)
    config = lake.config
    if SECRET not in config.model_dump_json():  # else the damage has moved it to a field that is no secret
        assert SECRET not in f"{lake.preview_sql()} {config!r}"
    again = CATALOGS.read(config.catalog.to_url(reveal=True))
    assert again == config.catalog, f"{catalog!r} is {config.catalog!r}, then {again!r}"
    if config.storage is not None:
        again = STORAGES.read(config.storage.to_url(reveal=True))
        assert again == config.storage, f"{storage!r} is {config.storage!r}, then {again!r}"
    assert load(environ=lake.environment()).config == config
    return "read"


TOML = (
    starter_toml("shop", "sqlite:///shop.sqlite", "shop.files").replace("\n# ", "\n"),
    """
[lakes.sales]
catalog = "postgres"
storage = { type = "s3", bucket = "${BUCKET:-lake}", region = "eu-west-1" }
threads = 4
memory_limit = "2GB"
lock_timeout = "30 s"
settings = { preserve_insertion_order = false }
options = { target_file_size = "64MB" }
retry = { attempts = 3, max_seconds = 10 }
[lakes.sales.maintenance.expire]
older_than = "7 days"
[lakes.sales.maintenance.tables."main.*".merge]
min_files = 3
[catalogs.postgres]
type = "postgres"
host = "db"
password = "${PGPASSWORD:-x}"
[profiles.test.lakes.sales]
catalog = "sqlite:///test.sqlite"
""",
)
TOML_PARTS = ["[", "]", "[[", "]]", "=", '"', "'''", '"""', "{", "}", "${", "${A:-${B}}", "\n", "\r", "[lakes.x]\n"]
TOML_PARTS += [
    "a.b.c = 1\n",
    "inf",
    "nan",
    "1979-05-27",
    "0x_",
    "1e999",
    "true",
    "[lakes.sales]\n",
    "name = 'x'\n",
    "9" * 30,
]


def case_toml(seed: int, folder: Path) -> str:
    """A file is read or refused, whatever its bytes are."""
    pick, path = Random(seed), folder / "ducklake.toml"
    text = pick.choice(TOML)
    if pick.random() < 0.7:
        text = _without_halves(hostile_text(text, pick, TOML_PARTS))
        content = text.encode()
    else:
        content = damaged(text.encode(), pick)
    path.write_bytes(content)
    profile = pick.choice([None, None, "test", "x"])
    lake = pick.choice([None, "sales", "shop", "x"])
    loaded = load(path=path, profile=profile, lake=lake, environ={"PGUSER": "u", "PGPASSWORD": "p"})
    DuckLake(loaded.config).preview_sql()
    assert loaded.origins
    return "read"


def _without_halves(text: str) -> str:
    return text.encode(errors="replace").decode()


VARIABLES = {
    "DUCKLAKE_CATALOG": "sqlite:///lake.sqlite",
    "DUCKLAKE_STORAGE": '{"type": "s3", "bucket": "b", "secret_parameters": {"x": "1"}}',
    "DUCKLAKE_CATALOG__PATH": "other.sqlite",
    "DUCKLAKE_EXTENSIONS": '["spatial", "icu"]',
    "DUCKLAKE_SETTINGS": '{"threads": 4}',
    "DUCKLAKE_SETTINGS__x": "true",
    "DUCKLAKE_THREADS": "4",
    "DUCKLAKE_LOCK_TIMEOUT": "1h 30m",
    "DUCKLAKE_MEMORY_LIMIT": "2 GiB",
    "DUCKLAKE_AS_OF": "2024-01-01T00:00:00+00:00",
    "DUCKLAKE_SNAPSHOT": "5",
    "DUCKLAKE_RETRY__ATTEMPTS": "3",
    "DUCKLAKE_MAINTENANCE__EXPIRE__OLDER_THAN": "7 days",
    "DUCKLAKE_OPTIONS": '{"target_file_size": "1MB"}',
    "DUCKLAKE_READ_ONLY": "false",
}
VALUES = [
    "{",
    "}",
    "[",
    "]",
    '"',
    ":",
    ",",
    "null",
    "1e999",
    "9" * 5000,
    "-",
    "NaN",
    "[" * 20_000,
    '{"a":' * 20_000,
    "\\u0000",
]


def case_environment(seed: int, folder: Path) -> str:
    """Variables are read or refused."""
    pick = Random(seed)
    environ = dict(pick.sample(sorted(VARIABLES.items()), pick.randrange(1, 5)))
    name = pick.choice(sorted(environ))
    if pick.random() < 0.8:
        environ[name] = hostile_text(environ[name], pick, VALUES)
    else:
        environ[hostile_text(name, pick, ["__", "_", "DUCKLAKE_"])] = environ.pop(name)
    lake = DuckLake(load(environ=environ).config)
    lake.preview_sql()
    again = load(environ=lake.environment()).config
    assert again == lake.config, f"{lake.config!r}, then {again!r}"
    return "read"


UNITS = ["7 days", "1h 30m", "PT36H", "90", "1.5 GB", "512 MiB", "-3 s", "P1DT2H", "1e3"]


def case_fields(seed: int, folder: Path) -> str:
    """Arguments of other types and extreme values are refused, or used; durations and sizes raise only ValueError."""
    pick = Random(seed)
    text = hostile_text(pick.choice(UNITS), pick, ["9" * 400, "e", "days", "inf", "nan", "P", "T", "weeks", "1e400"])
    value: Any = pick.choice(
        [text, text, float("inf"), float("nan"), -1, 10**400, [], {}, None, b"x", True, {"a": [text]}]
    )
    for parse in (parse_duration, parse_size):
        try:
            parse(value)
        except ValueError:
            pass
    field = pick.choice(["lock_timeout", "memory_limit", "threads", "retry", "pool", "snapshot", "as_of", "settings"])
    field = pick.choice([field, "options", "extensions", "maintenance", "alias", "metadata_schema", "attach_options"])
    nested = pick.choice([value, {"max_seconds": value}, {"expire": {"older_than": value}}, {text: value}, [value]])
    name = pick.choice(["shop", text])
    DuckLake.from_url(name, catalog="sqlite:///x", storage="y", **{field: nested}).preview_sql()
    return "used"


CASES = {
    "urls": (case_urls, 200, 3000),
    "toml": (case_toml, 200, 3000),
    "environment": (case_environment, 200, 3000),
    "fields": (case_fields, 200, 3000),
}


@pytest.mark.parametrize("kind", kinds_of(CASES))
def test_configuration_is_read_or_refused(kind: str, tmp_path: Path) -> None:
    run_kind(kind, CASES, tmp_path, memory_mb=MEMORY_MB)
