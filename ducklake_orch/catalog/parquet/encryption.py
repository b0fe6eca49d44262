"""Encrypt the files of a COPY with a new key, which the catalog keeps."""

import base64
import secrets

import duckdb

from ducklake_orch.engine.extensions import load_extension
from ducklake_orch.engine.quoting import literal

_KEY_BYTES = 16
_VARIABLE = "__ducklake_orch_encryption_key"
# The option of a COPY whose files `encrypt_next` encrypts.
ENCRYPTION_CONFIG = f"{{footer_key_value: getvariable('{_VARIABLE}')}}"


def encrypt_next(con: duckdb.DuckDBPyConnection) -> str:
    """Let the next COPY of a connection with the option `ENCRYPTION_CONFIG` use a new key; return it as Base64."""
    load_extension(con, "httpfs")  # DuckDB's built-in cryptography can only decrypt
    key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    # Not a parameter: DuckDB imports pandas at its first parameter, which takes a second.
    con.execute(f"SET VARIABLE {_VARIABLE} = from_base64({literal(key)})")
    return key
