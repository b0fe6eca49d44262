"""Dagster config models of the storages that can hold a lake's data files."""

from typing import Literal

from pydantic import Field

from ducklake_orch.dagster.configuration import Part


class LocalStorage(Part):
    """A folder that every machine of the lake sees under the same path."""

    type: Literal["local"] = "local"
    path: str = Field(
        description="Folder of the data files; relative ones count from the working directory, or the TOML file."
    )


class _Bucket(Part):
    """The fields that object stores share."""

    prefix: str | None = Field(default=None, description="Path inside the bucket under which the lake lives.")
    scope: str | None = Field(default=None, description="Paths that the secret is for; default is the bucket.")
    secret_name: str | None = Field(default=None, description="A DuckDB secret that is already there.")
    secret_parameters: dict[str, str] | None = Field(
        default=None, description="Further parameters of the secret, `kms_key_id` say.", repr=False
    )


class _Endpoint(_Bucket):
    """The fields of an S3-compatible endpoint, which need not be Amazon's."""

    endpoint: str | None = Field(default=None, description="`host:port` of the server, or its http(s) URL.")
    url_style: str | None = Field(default=None, description="Where the bucket stands in a URL.")
    use_ssl: bool | None = Field(default=None, description="Whether to speak https.")


class S3Storage(_Endpoint):
    """A bucket at Amazon S3 or anything that speaks its protocol."""

    type: Literal["s3"] = "s3"
    bucket: str = Field(description="Name of the bucket.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    access_key_id: str | None = Field(default=None, description="Static access key.")
    secret_access_key: str | None = Field(default=None, description="Secret of the access key.", repr=False)
    session_token: str | None = Field(default=None, description="Token of temporary credentials.", repr=False)
    profile: str | None = Field(default=None, description="Profile of the AWS configuration files.")
    role_arn: str | None = Field(default=None, description="Role to assume.")
    provider: str | None = Field(
        default=None, description="Where credentials come from: these fields, or the AWS chain of the machine."
    )


class R2Storage(_Endpoint):
    """A bucket at Cloudflare R2."""

    type: Literal["r2"] = "r2"
    account_id: str | None = Field(default=None, description="Cloudflare account.")
    bucket: str = Field(description="Name of the bucket.")
    region: str | None = Field(default=None, description="Region; R2 itself needs none.")
    access_key_id: str | None = Field(default=None, description="Static access key.")
    secret_access_key: str | None = Field(default=None, description="Secret of the access key.", repr=False)
    session_token: str | None = Field(default=None, description="Token of temporary credentials.", repr=False)


class GCSStorage(_Endpoint):
    """A bucket at Google Cloud Storage, through its S3-compatible interface."""

    type: Literal["gcs"] = "gcs"
    bucket: str = Field(description="Name of the bucket.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    key_id: str | None = Field(default=None, description="HMAC key.")
    secret: str | None = Field(default=None, description="Secret of the HMAC key.", repr=False)
    provider: str | None = Field(
        default=None, description="Where credentials come from: these fields, or the chain of the machine."
    )


class AzureStorage(_Bucket):
    """A container at Azure Blob Storage or Data Lake Storage Gen2."""

    type: Literal["azure"] = "azure"
    container: str = Field(description="Name of the container.")
    account_name: str | None = Field(default=None, description="Storage account.")
    account_key: str | None = Field(default=None, description="Key of the storage account.", repr=False)
    connection_string: str | None = Field(
        default=None, description="Connection string of the storage account.", repr=False
    )
    tenant_id: str | None = Field(default=None, description="Tenant of a service principal.")
    client_id: str | None = Field(default=None, description="Client id of a service principal.")
    client_secret: str | None = Field(default=None, description="Secret of a service principal.", repr=False)
    endpoint_suffix: str | None = Field(default=None, description="Suffix of the Azure cloud's host names.")
    provider: str | None = Field(
        default=None, description="Where credentials come from: these fields, or the chain of the machine."
    )


class UrlStorage(Part):
    """A storage given by its URL."""

    type: Literal["url"] = "url"
    url: str = Field(description="A folder, or `s3://bucket/prefix`, say.", repr=False)


class DefaultStorage(Part):
    """No storage is configured: `./<name>.files` in the working directory, or storage that MotherDuck manages."""

    type: Literal["default"] = "default"


AnyStorage = LocalStorage | S3Storage | R2Storage | GCSStorage | AzureStorage | UrlStorage | DefaultStorage
