"""The provider's description for Airflow, which reads it in every process, so this module imports nothing."""

from typing import Any

_HERE = "ducklake_orch.airflow"


def _field(
    label: str, description: str, *, examples: tuple[str, ...] = (), kind: str = "string", **schema: Any
) -> dict[str, Any]:
    """Return a field of the form. Airflow shows the examples while the user types."""
    shown = {"examples": list(examples)} if examples else {}
    return {"label": label, "description": description, "schema": {"type": [kind, "null"], **schema, **shown}}


# Fields in addition to those of every connection, by the section of the form that shows them.
_SECTIONS: dict[str, dict[str, dict[str, Any]]] = {
    "Catalog": {
        "catalog__type": _field(
            "Catalog type",
            "The type of the server in the standard fields. Empty means postgres.",
            enum=["postgres", "mysql", "sqlite", "duckdb", "motherduck"],
        ),
        "catalog": _field(
            "Catalog URL",
            "Instead of the standard fields: a URL such as sqlite:////data/lake.sqlite, or JSON with a type.",
            examples=("sqlite:////data/lake.sqlite", "duckdb:////data/lake.ducklake", "postgresql://host/database"),
        ),
        "catalog_conn_id": _field(
            "Catalog connection",
            "A postgres or mysql connection that fills the empty fields of the catalog.",
        ),
        "metadata_schema": _field(
            "Metadata schema", "The schema of the catalog's tables, if a PostgreSQL database has several lakes."
        ),
    },
    "Storage": {
        "storage": _field(
            "Data files",
            "Where the data files are: a URL such as s3://bucket/prefix, a folder, or JSON with a type.",
            examples=("s3://bucket/prefix", "gs://bucket/prefix", "az://container/prefix", "/data/files"),
        ),
        "storage_conn_id": _field(
            "Storage connection",
            "An aws, google_cloud_platform or wasb connection with the storage's credentials.",
        ),
        "storage__access_key_id": _field("S3 access key id", "Instead of a storage connection."),
        "storage__secret_access_key": _field(
            "S3 secret access key", "Instead of a storage connection.", format="password"
        ),
        "storage__region": _field("S3 region", "For example eu-central-1."),
        "storage__endpoint": _field("S3 endpoint", "The host and port of an S3-compatible server, such as minio:9000."),
    },
    "Lake": {
        "name": _field("Lake name", "Empty means the connection's id."),
        "create_if_missing": _field(
            "Create if missing", "The first write creates the lake.", kind="boolean", default=False
        ),
        "config_file": _field(
            "Configuration file",
            "A TOML file on the workers that fills all empty fields.",
        ),
        "profile": _field("Profile", "A profile in the configuration file."),
        "lake": _field("Lake in the file", "A lake in the configuration file, if the file has several."),
    },
    "Spark": {
        "spark_master": _field(
            "Spark master", "Empty means local[*].", examples=("local[*]", "spark://host:7077", "yarn")
        ),
        "spark_remote": _field(
            "Spark Connect", "A Spark Connect server, instead of a master, such as sc://host:15002."
        ),
        "spark_conn_id": _field(
            "Spark connection",
            "A spark or spark_connect connection, instead of these two fields.",
        ),
        "spark_conf": _field("Spark settings", "A JSON object of Spark settings.", kind="object"),
    },
}


def _form() -> dict[str, dict[str, Any]]:
    """Return the fields of the form. Airflow stores each in the connection's extra under its name."""
    return {
        name: field | {"schema": field["schema"] | {"section": section}}
        for section, fields in _SECTIONS.items()
        for name, field in fields.items()
    }


def get_provider_info() -> dict[str, Any]:
    """Return the description of the provider."""
    integration = "DuckLake"
    return {
        "package-name": "ducklake-orch",
        "name": integration,
        "description": "DuckLake lakehouses: write with Spark, wait for snapshots, maintain.",
        "integrations": [{"integration-name": integration, "external-doc-url": "https://ducklake.select", "tags": []}],
        "hooks": [{"integration-name": integration, "python-modules": [f"{_HERE}.hook"]}],
        "operators": [
            {
                "integration-name": integration,
                "python-modules": [
                    f"{_HERE}.execute_operator",
                    f"{_HERE}.write_operator",
                    f"{_HERE}.maintenance_operators",
                ],
            }
        ],
        "sensors": [{"integration-name": integration, "python-modules": [f"{_HERE}.sensors"]}],
        "triggers": [{"integration-name": integration, "python-modules": [f"{_HERE}.triggers"]}],
        "task-decorators": [{"name": "ducklake", "class-name": f"{_HERE}.decorator.ducklake_task"}],
        "asset-uris": [
            {
                "schemes": ["ducklake"],
                "handler": f"{_HERE}.assets.sanitize_uri",
                "factory": f"{_HERE}.assets.create_asset",
                "to_openlineage_converter": f"{_HERE}.assets.convert_asset_to_openlineage",
            }
        ],
        "connection-types": [
            {
                "connection-type": "ducklake",
                "hook-class-name": f"{_HERE}.hook.DuckLakeHook",
                "hook-name": integration,
                "ui-field-behaviour": {
                    "hidden-fields": [],
                    "relabeling": {
                        "host": "Catalog host",
                        "port": "Catalog port",
                        "schema": "Catalog database",
                        "login": "Catalog user",
                        "password": "Catalog password",
                    },
                    "placeholders": {"host": "db.example.com", "port": "5432", "schema": "lake", "login": "etl"},
                },
                "conn-fields": _form(),
            }
        ],
    }
