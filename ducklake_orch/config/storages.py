"""The storages that can hold a lake's Parquet files."""

import os
from typing import Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

from pydantic import BeforeValidator, Field, SecretStr, field_validator, model_validator

from ducklake_orch.config.fields import HomePath
from ducklake_orch.config.tables import Family, SecretParameters, UrlModel
from ducklake_orch.config.urls import build_url, refuse_unknown, scheme_of, shown, split_url
from ducklake_orch.errors import ConfigError


class LocalStorage(UrlModel):
    """A folder that every machine of the lake sees under the same path."""

    extensions: ClassVar[tuple[str, ...]] = ()
    type: Literal["local"] = Field(default="local", description="Kind of the storage.")
    path: HomePath = Field(
        description="Folder of the data files; relative to the working directory, or to the TOML file."
    )

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read a plain path, `file:///absolute` or `file://relative`."""
        return {"path": unquote(url[7:]) if scheme_of(url) == "file" else url}

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form."""
        return str(self.path)

    @property
    def data_path(self) -> str:
        """The canonical DATA_PATH: absolute, without `..`, ending in one slash."""
        # POSIX treats two leading slashes differently from one; the engine compares paths as strings.
        return f"/{os.path.abspath(self.path).strip('/')}/".replace("//", "/")


class BucketStorage(UrlModel):
    """What object stores have in common."""

    scheme: ClassVar[str]
    root_field: ClassVar[str] = "bucket"
    inline_credentials: ClassVar[tuple[str, ...]] = ()
    extensions: ClassVar[tuple[str, ...]] = ("httpfs",)
    # DuckDB buffers a part of each open file: a ten-thousandth of this, 5 MiB instead of 76.5 MiB with its default. A
    # write opens a file for each partition.
    engine_settings: ClassVar[dict[str, str]] = {"s3_uploader_max_filesize": "50GB"}

    prefix: str = Field(default="", description="Path of the lake inside the bucket.")
    scope: str | None = Field(default=None, description="Paths to which the secret applies; default is the bucket.")
    secret_name: str | None = Field(default=None, description="Name of an existing DuckDB secret.")
    secret_parameters: SecretParameters = Field(
        default_factory=dict, description="Further parameters of the secret, such as `kms_key_id`."
    )

    @field_validator("prefix")
    @classmethod
    def _canonical_prefix(cls, value: str) -> str:
        parts = [part for part in value.split("/") if part]
        if "." in parts or ".." in parts:
            raise ValueError("`.` and `..` have no meaning in an object store")
        # A single spelling, because the engine compares paths as strings and deletes files that it does not recognise.
        return "/".join(parts)

    @model_validator(mode="after")
    def _one_source_of_credentials(self) -> Self:
        given = [name for name in (*self.inline_credentials, "secret_parameters") if getattr(self, name)]
        if self.secret_name and given:
            raise ValueError(f"`secret_name` and {', '.join(f'`{f}`' for f in given)} exclude each other: give one")
        if not self.root or "/" in self.root:
            raise ValueError(f"`{self.root}` is not the name of a {self.root_field}")
        return self

    @property
    def root(self) -> str:
        """The bucket or container."""
        return str(getattr(self, self.root_field))

    @property
    def root_path(self) -> str:
        """Path of the whole bucket, with its closing slash."""
        return f"{self.scheme}://{self.root}/"

    @property
    def data_path(self) -> str:
        """The canonical DATA_PATH: one spelling of the scheme, no double slash, ending in one slash."""
        return self.root_path + (f"{self.prefix}/" if self.prefix else "")

    @property
    def uses_credential_chain(self) -> bool:
        """Whether credentials are looked up where the connection is made."""
        given = self.secret_parameters.get("provider")
        return "credential_chain" in (getattr(self, "provider", None), given and given.get_secret_value())

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `scheme://bucket/prefix?field=value`."""
        parts = split_url(url)
        if parts.user or parts.password or parts.port:
            raise ConfigError(
                f"`{shown(url)}` has a login or a port, which the URL of a bucket cannot hold.",
                remedy="Use query parameters, such as `?access_key_id=…` or `?endpoint=host:port`.",
            )
        fields = set(cls.model_fields) - {"type", "prefix", "secret_parameters", cls.root_field}
        refuse_unknown(url, parts.query, fields)
        return {cls.root_field: parts.host or "", "prefix": parts.path, **parts.query}

    def to_url(self, *, reveal: bool = False) -> str:
        """Return the URL form, with secrets only when `reveal` is set."""
        skipped = {"type", "prefix", "secret_parameters", self.root_field}
        query = {
            name: getattr(self, name)
            for name in type(self).model_fields
            if name in self.model_fields_set and name not in skipped
        }
        return build_url(self.scheme, host=self.root, path=self.prefix, query=query, reveal=reveal)


class _Endpoint(BucketStorage):
    """An S3-compatible endpoint, of any vendor."""

    endpoint: str | None = Field(default=None, description="`host:port` of the server, or its http(s) URL.")
    url_style: Literal["path", "vhost"] | None = Field(default=None, description="Position of the bucket in a URL.")
    use_ssl: bool | None = Field(default=None, description="Whether to use HTTPS.")

    @model_validator(mode="before")
    @classmethod
    def _split_endpoint(cls, data: Any) -> Any:
        endpoint = data.get("endpoint") if isinstance(data, dict) else None
        if isinstance(endpoint, str) and "@" in endpoint:
            raise ConfigError(
                "`endpoint` holds a login, which would be shown and which the engine does not use.",
                remedy="Write `host:port`, and give the keys in their own fields.",
            )
        if isinstance(endpoint, str) and "://" in endpoint:
            scheme, _, rest = endpoint.partition("://")
            # An endpoint with a scheme implies `use_ssl`; an explicit `use_ssl` overrides it.
            return {"use_ssl": scheme.lower() == "https"} | data | {"endpoint": rest.rstrip("/")}
        return data


class S3Storage(_Endpoint):
    """A bucket at Amazon S3 or anything that speaks its protocol."""

    scheme: ClassVar[str] = "s3"
    inline_credentials: ClassVar[tuple[str, ...]] = (
        "access_key_id",
        "secret_access_key",
        "session_token",
        "profile",
        "role_arn",
        "provider",
    )
    type: Literal["s3"] = Field(default="s3", description="Kind of the storage.")
    bucket: str = Field(description="Name of the bucket.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    access_key_id: str | None = Field(default=None, description="Static access key.")
    secret_access_key: SecretStr | None = Field(default=None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(default=None, description="Token of temporary credentials.")
    profile: str | None = Field(default=None, description="Profile of the AWS configuration files.")
    role_arn: str | None = Field(default=None, description="Role to assume.")
    provider: Literal["config", "credential_chain"] | None = Field(
        default=None, description="Where credentials come from: these fields, or the AWS chain of the machine."
    )

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("`access_key_id` and `secret_access_key` must be given together")
        if self.provider == "credential_chain" and self.access_key_id:
            raise ValueError("`access_key_id` and `provider = credential_chain` exclude each other: give one")
        if self.provider == "config" and (self.profile or self.role_arn):
            raise ValueError("`profile` and `role_arn` need `provider = credential_chain`")
        return self

    @property
    def uses_credential_chain(self) -> bool:
        """Whether credentials are looked up where the connection is made."""
        return super().uses_credential_chain or bool(self.profile or self.role_arn)


class R2Storage(_Endpoint):
    """A bucket at Cloudflare R2."""

    scheme: ClassVar[str] = "r2"
    inline_credentials: ClassVar[tuple[str, ...]] = ("access_key_id", "secret_access_key", "session_token", "provider")
    type: Literal["r2"] = Field(default="r2", description="Kind of the storage.")
    account_id: str | None = Field(default=None, description="Cloudflare account.")
    bucket: str = Field(description="Name of the bucket.")
    region: str | None = Field(default=None, description="Region; R2 itself needs none.")
    access_key_id: str | None = Field(default=None, description="Static access key.")
    secret_access_key: SecretStr | None = Field(default=None, description="Secret of the access key.")
    session_token: SecretStr | None = Field(default=None, description="Token of temporary credentials.")
    provider: Literal["config", "credential_chain"] | None = Field(
        default=None, description="Where credentials come from: these fields, or the AWS chain of the machine."
    )

    @model_validator(mode="after")
    def _has_account(self) -> Self:
        if not (self.account_id or self.secret_name or self.endpoint):
            raise ValueError("`account_id` is missing")
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("`access_key_id` and `secret_access_key` must be given together")
        if self.provider == "credential_chain" and self.access_key_id:
            raise ValueError("`access_key_id` and `provider = credential_chain` exclude each other: give one")
        return self


class GCSStorage(_Endpoint):
    """A bucket at Google Cloud Storage, through its S3-compatible interface."""

    scheme: ClassVar[str] = "gs"
    inline_credentials: ClassVar[tuple[str, ...]] = ("key_id", "secret", "provider")
    type: Literal["gcs"] = Field(default="gcs", description="Kind of the storage.")
    bucket: str = Field(description="Name of the bucket.")
    region: str | None = Field(default=None, description="Region of the bucket.")
    key_id: str | None = Field(default=None, description="HMAC key.")
    secret: SecretStr | None = Field(default=None, description="Secret of the HMAC key.")
    provider: Literal["config", "credential_chain"] | None = Field(
        default=None, description="Where credentials come from: these fields, or the chain of the machine."
    )

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        if (self.key_id is None) != (self.secret is None):
            raise ValueError("`key_id` and `secret` must be given together")
        if self.provider == "credential_chain" and self.key_id:
            raise ValueError("`key_id` and `provider = credential_chain` exclude each other: give one")
        return self


class AzureStorage(BucketStorage):
    """A container at Azure Blob Storage or Data Lake Storage Gen2."""

    scheme: ClassVar[str] = "az"
    root_field: ClassVar[str] = "container"
    extensions: ClassVar[tuple[str, ...]] = ("azure",)
    engine_settings: ClassVar[dict[str, str]] = {}
    inline_credentials: ClassVar[tuple[str, ...]] = (
        "account_key",
        "connection_string",
        "tenant_id",
        "client_id",
        "client_secret",
        "provider",
    )
    type: Literal["azure"] = Field(default="azure", description="Kind of the storage.")
    container: str = Field(description="Name of the container.")
    account_name: str | None = Field(default=None, description="Storage account.")
    account_key: SecretStr | None = Field(default=None, description="Key of the storage account.")
    connection_string: SecretStr | None = Field(default=None, description="Connection string of the storage account.")
    tenant_id: str | None = Field(default=None, description="Tenant of a service principal.")
    client_id: str | None = Field(default=None, description="Client id of a service principal.")
    client_secret: SecretStr | None = Field(default=None, description="Secret of a service principal.")
    endpoint_suffix: str = Field(default="core.windows.net", description="Suffix of the Azure cloud's host names.")
    provider: Literal["config", "credential_chain", "service_principal"] | None = Field(
        default=None, description="Where credentials come from: these fields, or the chain of the machine."
    )

    @model_validator(mode="after")
    def _whole_credentials(self) -> Self:
        principal = [name for name in ("tenant_id", "client_id", "client_secret") if getattr(self, name)]
        ways = [name for name in ("connection_string", "account_key") if getattr(self, name)]
        ways += ["client_secret"] if principal else []
        ways += ["provider = credential_chain"] if self.provider == "credential_chain" else []
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(f'`{w}`' for w in ways)} are two ways to log in: give one")
        if principal and len(principal) < 3:
            raise ValueError("`tenant_id`, `client_id` and `client_secret` must be given together")
        if not (self.account_name or self.connection_string or self.secret_name):
            raise ValueError("`account_name` is missing (or a `connection_string`)")
        return self

    @classmethod
    def url_fields(cls, url: str) -> dict[str, Any]:
        """Read `az://container/prefix` or `abfss://container@account.dfs.core.windows.net/prefix`."""
        if scheme_of(url) not in {"abfss", "abfs"}:
            return super().url_fields(url)
        parts = split_url(url)
        refuse_unknown(url, parts.query, set(cls.model_fields) - {"type", "prefix", "container", "account_name"})
        account, _, suffix = (parts.host or "").partition(".")
        values: dict[str, Any] = {"container": parts.user or "", "account_name": account, "prefix": parts.path}
        if suffix.removeprefix("dfs."):
            values["endpoint_suffix"] = suffix.removeprefix("dfs.")
        return values | parts.query


STORAGES = Family(
    "storage",
    types={"local": LocalStorage, "s3": S3Storage, "r2": R2Storage, "gcs": GCSStorage, "azure": AzureStorage},
    schemes={
        "file": LocalStorage,
        "s3": S3Storage,
        "s3a": S3Storage,
        "s3n": S3Storage,
        "r2": R2Storage,
        "gs": GCSStorage,
        "gcs": GCSStorage,
        "az": AzureStorage,
        "azure": AzureStorage,
        "abfs": AzureStorage,
        "abfss": AzureStorage,
    },
    plain="file",
)
Storage = Annotated[
    Annotated[
        LocalStorage | S3Storage | R2Storage | GCSStorage | AzureStorage,
        Field(discriminator="type"),
    ],
    BeforeValidator(STORAGES.read),
]
