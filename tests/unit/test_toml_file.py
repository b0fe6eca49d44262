"""The error for a mistake anywhere in a TOML file names the file, the key and a remedy."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.loading import Loaded, load
from ducklake_orch.config.origins import toml_string
from ducklake_orch.config.shape import LAKE_KEYS, TYPES, keys_of
from ducklake_orch.errors import ConfigError, ConfigFileError

WriteToml = Callable[[str], Path]


def config(path: Path, lake: str | None = None) -> LakeConfig:
    return load(path=path, lake=lake, environ={}).config


class TestMistakes:
    @pytest.mark.parametrize(
        ("text", "key", "nearest"),
        [
            ("[lake.a]", "lake", "lakes"),
            ("[lakes.a]\nread_onyl = true", "lakes.a.read_onyl", "read_only"),
            ("[lakes.b]\nstorag = 'x'", "lakes.b.storag", "storage"),
            ("[lakes.'my lake']\nstorag = 'x'", 'lakes."my lake".storag', "storage"),
            ("[lakes.b.retry]\nmax_atempts = 1", "lakes.b.retry.max_atempts", "max_attempts"),
            ("[lakes.b.options]\ntarget_size = 1", "lakes.b.options.target_size", "target_file_size"),
            ("[lakes.b.attach_options]\nbusy_time = 1", "lakes.b.attach_options.busy_time", "busy_timeout"),
            ("[lakes.b.catalog]\ntype = 'postgres'\npasword = 'x'", "lakes.b.catalog.pasword", "password"),
            ("[catalogs.x]\nurl = 'postgresql://h'\npasword = 'x'", "catalogs.x.pasword", "password"),
            ("[catalogs.x]\nurl = '${URL}'\npasword = 'x'", "catalogs.x.pasword", "password"),
            (
                "[catalogs.x]\ntype = 'postgres'\nparameters = { sslrootcrt = 'x' }",
                "catalogs.x.parameters.sslrootcrt",
                "sslrootcert",
            ),
            ("[storages.x]\ntype = 's3'\nacess_key_id = 'x'", "storages.x.acess_key_id", "access_key_id"),
            ("[storages.x]\ntype = 'gcs'\nacount_name = 'x'\nkeyid = 'x'", "storages.x.acount_name", ""),
            ("[profiles.dev.lake.a]", "profiles.dev.lake", "lakes"),
            ("[profiles.dev.lakes.a]\nread_onyl = true", "profiles.dev.lakes.a.read_onyl", "read_only"),
            (
                "[storages.x]\nurl = 's3://b'\n[profiles.dev.storages.x]\nregoin = 'x'",
                "profiles.dev.storages.x.regoin",
                "region",
            ),
            ("[maintenance.exire]", "maintenance.exire", "expire"),
            ("[maintenance.overrides.x.merg]", "maintenance.overrides.x.merg", "merge"),
            ("[schedules]", "schedules", ""),
        ],
    )
    def test_the_error_for_an_unknown_key_suggests_the_nearest(
        self, toml: WriteToml, text: str, key: str, nearest: str
    ) -> None:
        path = toml(f"{text}\n" + ("" if "[lakes.a]" in text else "[lakes.a]\n"))
        with pytest.raises(ConfigFileError) as caught:
            config(path, "a")
        assert f"{path}: " in caught.value.message
        assert f"`{key}`" in caught.value.message
        assert nearest in str(caught.value)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            (
                "[lakes.a]\nname = 'b'",
                r"`lakes\.a\.name` cannot be set in a file\. The name of the table",
            ),
            ("[lakes.a]\non_connect = 'f'", r"`lakes\.a\.on_connect` cannot be set in a file.*arguments"),
            ("[lakes.a.catalog]\ntype = 'postgre'", r"`lakes\.a\.catalog\.type` = `postgre`.*Did you mean `postgres`"),
            ("lakes = 5", r"`lakes` is not a table.*\[lakes"),
            ("[[lakes.a]]", r"`lakes\.a` is not a table"),
            ("[lakes]\na = 'x'", r"`lakes\.a` is not a table"),
            ("[lakes.a]\ncatalog = 5", r"`lakes\.a\.catalog` is not a table"),
            ("[lakes.a]\nretry = 5", r"`lakes\.a\.retry` is not a table"),
            ("[lakes.a]\nsettings = 5", r"lakes\.a\.settings: "),
            ("[lakes.a.attach_options]\nDATA_PATH = 'x'", r"attach_options\.DATA_PATH`: .*field of its own: `storage`"),
            ("profiles = 5", r"`profiles` is not a table"),
        ],
    )
    def test_an_invalid_value_is_refused(self, toml: WriteToml, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            config(toml(text), "a")

    def test_invalid_toml_is_reported_with_its_line(self, toml: WriteToml) -> None:
        path = toml('[lakes.a]\ncatalog = "unclosed\n')
        with pytest.raises(ConfigFileError, match=rf"{re.escape(str(path))}: invalid TOML: .*line 2, column \d+"):
            config(path)

    def test_a_file_in_another_encoding_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "ducklake.toml"
        path.write_bytes("[lakes.größe]".encode("latin-1"))
        with pytest.raises(ConfigFileError, match="byte 9 is not UTF-8"):
            config(path)

    def test_a_missing_file_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigFileError, match=r"nowhere\.toml: there is no such file.*ducklake-orch init"):
            config(tmp_path / "nowhere.toml")

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigFileError, match="it is a folder"):
            config(tmp_path)

    def test_an_unreadable_file_is_named(self, toml: WriteToml, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(_: Path) -> bytes:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(Path, "read_bytes", refuse)
        with pytest.raises(ConfigFileError, match=r"cannot be read \(Permission denied\)"):
            config(toml("[lakes.a]"))


words = st.sampled_from(["", "a", "pg", "postgres", "s3", "s3://b", "sqlite:///x", "md:db", "${X}", "${", "./x", "5"])
values = words | st.integers() | st.booleans() | st.floats(allow_nan=False) | st.lists(words, max_size=2)
tables = {
    kind: values
    | st.dictionaries(
        st.sampled_from(sorted({"url", "nonsense", *keys_of(types.values())})),
        values | st.dictionaries(words, values, max_size=2),
        max_size=3,
    )
    for kind, types in TYPES.items()
}
lakes = st.fixed_dictionaries({}, optional=tables | dict.fromkeys(sorted(LAKE_KEYS - set(TYPES)), values))
sections = st.fixed_dictionaries(
    {"lakes": st.dictionaries(st.sampled_from(["a", "b"]), values | lakes, max_size=2)},
    optional={f"{kind}s": st.dictionaries(words, tables[kind], max_size=2) for kind in TYPES},
)
files = st.builds(lambda file, profile: file | {"profiles": {"dev": profile}}, sections, values | sections)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(file=files, profile=st.sampled_from([None, "dev"]))
def test_any_value_is_accepted_or_refused_with_a_config_error(
    file: dict[str, Any], profile: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "anything.toml"
    path.write_text("\n".join(f"{key} = {written(value)}" for key, value in file.items()))
    assert isinstance(attempt(path, profile), Loaded | ConfigError)


def attempt(path: Path, profile: str | None) -> Loaded | ConfigError:
    try:
        return load(path=path, lake="a", profile=profile, environ={"X": "x"})
    except ConfigError as error:
        return error


def written(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_string(key)} = {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(written, value)) + "]"
    return toml_string(value) if isinstance(value, str) else str(value).lower()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"[lakes.x]\noptions = {'[' * 20_000}{']' * 20_000}", "nested too deeply"),
        (f"[lakes.x]\nthreads = {'9' * 5_000}", "a number has too many digits"),
    ],
    ids=["nesting", "digits"],
)
def test_a_file_that_overflows_the_parser_is_a_config_error(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "ducklake.toml"
    path.write_text(text)
    with pytest.raises(ConfigFileError, match=words) as refusal:
        load(path=path)
    assert str(path) in str(refusal.value)
    assert refusal.value.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"storage": {"type": "s3", "bucket": "b", "endpoint": "https://me:canary@host:9000"}},
        {"storage": "s3://b?endpoint=me:canary@host:9000"},
        {"catalog": {"type": "postgres", "host": "h", "options": "-c my.password=canary"}, "storage": "/files"},
        {"catalog": "postgresql://h/d?options=-c%20my.token%3Dcanary", "storage": "/files"},
    ],
    ids=str,
)
def test_credentials_in_visible_fields_are_refused_and_not_shown(fields: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, ValueError)) as refusal:
        LakeConfig(name="x", **fields)
    assert "canary" not in str(refusal.value)
    assert "would be shown" in str(refusal.value)
