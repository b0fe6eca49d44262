"""Storage models: accepted values, one spelling of every path, and one source of credentials."""

from pathlib import Path
from typing import Any

import pytest

from ducklake_orch.config.storages import (
    STORAGES,
    AzureStorage,
    GCSStorage,
    LocalStorage,
    R2Storage,
    S3Storage,
)
from ducklake_orch.errors import ConfigError

MINIMAL: dict[str, dict[str, Any]] = {
    "local": {"path": "files"},
    "s3": {"bucket": "b"},
    "r2": {"bucket": "b", "account_id": "a"},
    "gcs": {"bucket": "b"},
    "azure": {"container": "b", "account_name": "a"},
}
BUCKETS = ["s3", "r2", "gcs", "azure"]
INLINE: dict[str, dict[str, Any]] = {
    "s3": {"access_key_id": "k", "secret_access_key": "s"},
    "r2": {"access_key_id": "k", "secret_access_key": "s"},
    "gcs": {"key_id": "k", "secret": "s"},
    "azure": {"account_key": "k"},
}


def storage(kind: str, **fields: Any) -> Any:
    return STORAGES.read({"type": kind, **MINIMAL[kind], **fields})


@pytest.mark.parametrize("kind", STORAGES.types)
class TestEveryStorage:
    def test_every_field_has_a_description_and_unknown_fields_are_refused(self, kind: str) -> None:
        assert all(field.description for field in STORAGES.types[kind].model_fields.values())
        with pytest.raises(ConfigError, match="unknown key `nonsense`"):
            storage(kind, nonsense=1)

    def test_a_storage_needs_its_location(self, kind: str) -> None:
        with pytest.raises(ConfigError, match="is missing"):
            STORAGES.read({"type": kind})

    def test_a_data_path_ends_in_one_slash(self, kind: str) -> None:
        path = storage(kind).data_path
        assert path.endswith("/")
        assert not path.endswith("//")


@pytest.mark.parametrize("kind", BUCKETS)
class TestEveryBucket:
    @pytest.mark.parametrize("prefix", ["a/b", "/a/b/", "a//b", "//a/b//"])
    def test_a_prefix_has_one_spelling(self, kind: str, prefix: str) -> None:
        model = storage(kind, prefix=prefix)
        assert model.data_path == model.root_path + "a/b/"

    @pytest.mark.parametrize("prefix", ["..", "a/../b", "./a"])
    def test_dots_in_a_prefix_are_refused(self, kind: str, prefix: str) -> None:
        with pytest.raises(ConfigError, match="no meaning in an object store"):
            storage(kind, prefix=prefix)

    @pytest.mark.parametrize("name", ["", "a/b"])
    def test_an_invalid_bucket_name_is_refused(self, kind: str, name: str) -> None:
        field = "container" if kind == "azure" else "bucket"
        with pytest.raises(ConfigError, match="is not the name of a"):
            storage(kind, **{field: name})

    def test_a_bucket_takes_a_secret_name_or_credentials_but_not_both(self, kind: str) -> None:
        assert storage(kind, secret_name="there").secret_name == "there"
        with pytest.raises(ConfigError, match=r"`secret_name` and .* exclude each other"):
            storage(kind, secret_name="there", **INLINE[kind])
        with pytest.raises(ConfigError, match="`secret_name` and `secret_parameters` exclude each other"):
            storage(kind, secret_name="there", secret_parameters={"x": "y"})

    def test_additional_secret_parameters_stay_secret(self, kind: str) -> None:
        model = storage(kind, secret_parameters={"kms_key_id": "canary", "flag": True, "number": 5})
        assert "canary" not in repr(model)
        assert model.secret_values() == ["canary", "true", "5"]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("s3", {"access_key_id": "k"}),
        ("s3", {"secret_access_key": "s"}),
        ("r2", {"access_key_id": "k"}),
        ("gcs", {"secret": "s"}),
        ("azure", {"tenant_id": "t", "client_id": "c"}),
    ],
)
def test_incomplete_credentials_are_refused(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="must be given together"):
        storage(kind, **fields)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("s3", {"provider": "credential_chain", "access_key_id": "k", "secret_access_key": "s"}),
        ("s3", {"provider": "config", "profile": "p"}),
        ("gcs", {"provider": "credential_chain", "key_id": "k", "secret": "s"}),
        ("azure", {"account_key": "k", "connection_string": "AccountName=a"}),
        ("azure", {"account_key": "k", "provider": "credential_chain"}),
    ],
)
def test_two_ways_to_log_in_are_refused(kind: str, fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"give one|need `provider"):
        storage(kind, **fields)


def test_a_local_path_is_absolute_and_has_one_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert LocalStorage(path=Path("a/../files")).data_path == f"{tmp_path}/files/"
    assert LocalStorage(path=Path("//data/files")).data_path == "/data/files/"
    assert LocalStorage(path=Path("/")).data_path == "/"


def test_the_scheme_of_an_endpoint_sets_use_ssl() -> None:
    plain = S3Storage(bucket="b", endpoint="http://localhost:9000/")
    assert (plain.endpoint, plain.use_ssl) == ("localhost:9000", False)
    assert S3Storage(bucket="b", endpoint="https://s3.example.com").use_ssl is True
    assert S3Storage(bucket="b", endpoint="http://localhost", use_ssl=True).use_ssl is True
    assert S3Storage(bucket="b", endpoint="localhost:9000").use_ssl is None


def test_r2_needs_its_account_or_an_endpoint() -> None:
    with pytest.raises(ConfigError, match="`account_id` is missing"):
        R2Storage(bucket="b")
    assert R2Storage(bucket="b", endpoint="localhost:9000").account_id is None


def test_azure_needs_its_account_or_a_connection_string() -> None:
    with pytest.raises(ConfigError, match="`account_name` is missing"):
        AzureStorage(container="c")
    assert AzureStorage(container="c", connection_string="AccountName=a").account_name is None


def test_a_profile_or_role_uses_the_credential_chain() -> None:
    assert S3Storage(bucket="b", profile="p").uses_credential_chain
    assert S3Storage(bucket="b", role_arn="arn").uses_credential_chain
    assert GCSStorage(bucket="b", provider="credential_chain").uses_credential_chain
    assert not S3Storage(bucket="b").uses_credential_chain


def test_the_error_for_an_unknown_key_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"s3: unknown key `acess_key_id`.*Did you mean `access_key_id`"):
        storage("s3", acess_key_id="k")
