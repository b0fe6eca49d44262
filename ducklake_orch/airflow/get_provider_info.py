"""The provider's description for Airflow, which reads it in every process, so this module imports nothing."""

from typing import Any

_HERE = "ducklake_orch.airflow"
_SECRETS = {"type": ["string", "null"], "format": "password"}
_TEXT = {"type": ["string", "null"]}
_JSON = {"type": ["object", "null"]}

# Fields in addition to those of every connection. Airflow stores each in the connection's extra under its name.
_FIELDS: dict[str, dict[str, Any]] = {
    "catalog__type": {
        "label": "Catalog type",
        "description": "The type of server that host, port, login, password and schema describe; postgres by default.",
        "schema": {"type": ["string", "null"], "enum": ["postgres", "mysql", "sqlite", "duckdb", "motherduck"]},
    },
    "catalog": {
        "label": "Catalog",
        "description": "A URL instead of these fields, sqlite:////data/lake.sqlite for example, or JSON with a type.",
        "schema": _TEXT,
    },
    "catalog_conn_id": {
        "label": "Catalog connection",
        "description": "A postgres or mysql connection that provides the empty fields.",
        "schema": _TEXT,
    },
    "storage": {
        "label": "Storage",
        "description": "Location of the data files: a folder, s3://bucket/prefix, gs://…, az://…, r2://…; or JSON.",
        "schema": _TEXT,
    },
    "storage_conn_id": {
        "label": "Storage connection",
        "description": "An aws, google_cloud_platform or wasb connection that provides the storage's credentials.",
        "schema": _TEXT,
    },
    "storage__access_key_id": {"label": "S3 access key id", "schema": _TEXT},
    "storage__secret_access_key": {"label": "S3 secret access key", "schema": _SECRETS},
    "storage__region": {"label": "Region", "schema": _TEXT},
    "storage__endpoint": {
        "label": "Endpoint",
        "description": "Of an S3-compatible server other than Amazon's.",
        "schema": _TEXT,
    },
    "name": {"label": "Lake", "description": "Name of the lake; by default the connection's id.", "schema": _TEXT},
    "metadata_schema": {
        "label": "Metadata schema",
        "description": "Schema of the catalog's tables in Postgres.",
        "schema": _TEXT,
    },
    "create_if_missing": {
        "label": "Create the lake if it does not exist",
        "schema": {"type": ["boolean", "null"], "default": False},
    },
    "config_file": {
        "label": "Configuration file",
        "description": "A TOML file on the workers that provides the empty fields.",
        "schema": _TEXT,
    },
    "profile": {"label": "Profile in the file", "schema": _TEXT},
    "lake": {"label": "Lake in the file", "schema": _TEXT},
    "spark_master": {"label": "Spark master", "description": "local[*] by default.", "schema": _TEXT},
    "spark_remote": {"label": "Spark Connect", "description": "sc://host:port", "schema": _TEXT},
    "spark_conn_id": {
        "label": "Spark connection",
        "description": "A spark or spark_connect connection, instead of these two fields.",
        "schema": _TEXT,
    },
    "spark_conf": {"label": "Spark settings", "schema": _JSON},
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
                    "relabeling": {"host": "Catalog host", "port": "Catalog port", "schema": "Catalog database"},
                    "placeholders": {"port": "5432"},
                },
                "conn-fields": _FIELDS,
            }
        ],
    }
