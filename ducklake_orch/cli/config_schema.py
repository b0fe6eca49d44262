"""`ducklake-orch config-schema`: prints the JSON Schema of the configuration file."""

from ducklake_orch.cli.options import OutputOptions
from ducklake_orch.cli.output import print_json


def config_schema(options: OutputOptions) -> None:
    """Print the JSON Schema of `ducklake.toml`, with which editors complete and check it."""
    from ducklake_orch.config import schema

    print_json(schema.config_schema())
