"""The secrets that give access to a lake's files, as SQL; secrets given by name exist already and are not created."""

from typing import Any

from pydantic import SecretStr

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.config.redaction import MASK
from ducklake_orch.config.storages import (
    AzureStorage,
    BucketStorage,
    GCSStorage,
    R2Storage,
    S3Storage,
    Storage,
)
from ducklake_orch.engine.quoting import identifier, literal, options

STORAGE_SECRET = "ducklake_orch_storage"  # noqa: S105 - a name, not a secret


def storage_secret_statements(config: LakeConfig, *, reveal: bool) -> list[str]:
    """Return the CREATE SECRET for the storage."""
    values = storage_secret(config.storage)
    return [] if values is None else [create_secret(STORAGE_SECRET, values, reveal=reveal)]


def storage_secret(storage: Storage | None, *, at_motherduck: bool = False) -> dict[str, Any] | None:
    """Return the parameters of the secret for a bucket; None if no secret must be created."""
    if not isinstance(storage, BucketStorage) or storage.secret_name:
        return None
    match storage:
        case S3Storage():
            values = _s3_secret(storage, at_motherduck)
        case R2Storage():
            values = {"type": "r2", "provider": _chain(storage), "account_id": storage.account_id}
            values |= {"key_id": storage.access_key_id, "secret": storage.secret_access_key}
            values |= {"session_token": storage.session_token} | _endpoint(storage)
        case GCSStorage():
            values = {"type": "gcs", "provider": _chain(storage)}
            values |= {"key_id": storage.key_id, "secret": storage.secret} | _endpoint(storage)
        case AzureStorage():
            values = _azure_secret(storage)
        case _:  # pragma: no cover - the union is closed
            raise TypeError(type(storage).__name__)
    if _fixed_credentials(storage) and not at_motherduck:
        # The engine fills missing values of a secret from `AWS_ACCESS_KEY_ID` and its like, unless each is given, even
        # if empty.
        values |= {name: values.get(name) or "" for name in ("key_id", "secret", "session_token")}
    # With its closing slash: the engine matches scopes as plain prefixes, and `s3://b` would also cover `s3://b2`.
    return values | {"scope": storage.scope or storage.root_path} | dict(storage.secret_parameters)


def _chain(storage: BucketStorage) -> str | None:
    return "credential_chain" if storage.uses_credential_chain else None


def _endpoint(storage: S3Storage | R2Storage | GCSStorage) -> dict[str, Any]:
    # A server other than the vendor's own rarely has a host name per bucket.
    style = storage.url_style or ("path" if storage.endpoint else None)
    return {
        "region": storage.region,
        "endpoint": storage.endpoint,
        "url_style": style,
        "use_ssl": storage.use_ssl,
    }


def _s3_secret(storage: S3Storage, at_motherduck: bool) -> dict[str, Any]:
    values: dict[str, Any] = {"type": "s3", "provider": _chain(storage)}
    if storage.role_arn:
        values["chain"] = "sts"  # the engine assumes a role through this part of the chain only
    elif storage.profile:
        values["chain"] = "sso" if at_motherduck else "config;sso"
    values |= {"profile": storage.profile, "assume_role_arn": storage.role_arn}
    values |= {"key_id": storage.access_key_id, "secret": storage.secret_access_key}
    return values | {"session_token": storage.session_token} | _endpoint(storage)


def _fixed_credentials(storage: BucketStorage) -> bool:
    """Whether the configuration holds all credentials, which `AWS_…` variables of the process must not complete."""
    at_amazon = isinstance(storage, S3Storage) and not storage.access_key_id
    return not (at_amazon or storage.uses_credential_chain or isinstance(storage, AzureStorage))


def _azure_secret(storage: AzureStorage) -> dict[str, Any]:
    values: dict[str, Any] = {"type": "azure"}
    if storage.connection_string:
        return values | {"connection_string": storage.connection_string}
    if storage.account_key:
        parts = [
            "DefaultEndpointsProtocol=https",
            f"AccountName={storage.account_name}",
            f"AccountKey={storage.account_key.get_secret_value()}",
            f"EndpointSuffix={storage.endpoint_suffix}",
        ]
        return values | {"connection_string": SecretStr(";".join(parts))}
    values["account_name"] = storage.account_name
    if storage.client_secret:
        values |= {"provider": "service_principal", "tenant_id": storage.tenant_id, "client_id": storage.client_id}
        return values | {"client_secret": storage.client_secret}
    return values | {"provider": "credential_chain" if storage.provider == "credential_chain" else "config"}


def create_secret(name: str, values: dict[str, Any], *, reveal: bool, at_motherduck: bool = False) -> str:
    """Return the CREATE SECRET with these parameters; passwords and keys are masked unless `reveal` is set."""
    given = {key: MASK if isinstance(value, SecretStr) and not reveal else value for key, value in values.items()}
    temporary, place = ("", " IN MOTHERDUCK") if at_motherduck else (" TEMPORARY", "")
    return f"CREATE OR REPLACE{temporary} SECRET {identifier(name)}{place} {options(given)}"


def shown(secret: SecretStr, *, reveal: bool) -> str:
    """Return a secret as a literal, masked unless `reveal` is set."""
    return literal(secret) if reveal else literal(MASK)
