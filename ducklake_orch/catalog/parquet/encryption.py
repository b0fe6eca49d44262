"""Encrypt the files of a COPY: the catalog keeps the key, and no SQL text or error message contains it."""

import base64
import secrets

import duckdb

from ducklake_orch.engine.extensions import load_extension

_KEY_BYTES = 16
_VARIABLE = "__ducklake_orch_encryption_key"
# The option of a COPY whose files `encrypt_next` encrypts.
ENCRYPTION_CONFIG = f"{{footer_key_value: getvariable('{_VARIABLE}')}}"


def encrypt_next(con: duckdb.DuckDBPyConnection) -> str:
    """Let the next COPY of a connection with the option `ENCRYPTION_CONFIG` use a new key; return it as Base64."""
    load_extension(con, "httpfs")  # DuckDB's built-in cryptography can only decrypt
    key = base64.b64encode(secrets.token_bytes(_KEY_BYTES)).decode()
    con.execute(f"SET VARIABLE {_VARIABLE} = from_base64($key)", {"key": key})
    return key
