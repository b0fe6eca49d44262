"""Ask a catalog server what is wrong, where its answer to a failed connection is in a language we cannot read."""

import contextlib

import duckdb

from ducklake_orch.config.catalogs import MySQLCatalog, PostgresCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import metadata_attach, secret_statements
from ducklake_orch.engine.failures import classify, create_database
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import (
    AuthenticationError,
    CatalogUnreachableError,
    DatabaseNotFoundError,
    DuckLakeOrchError,
    StatementError,
)

_PROBE = "__ducklake_orch_probe"


def diagnose(config: LakeConfig, con: duckdb.DuckDBPyConnection, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Return the better error for a failed attach, or the one there is.

    A server that was reached but refused is asked again, in a database that is always there: if that opens with the
    same login, the lake's database is missing.
    """
    catalog = config.catalog
    if not isinstance(catalog, PostgresCatalog | MySQLCatalog) or not _refused(catalog, failure):
        return failure
    home = "postgres" if isinstance(catalog, PostgresCatalog) else None
    probe = config.model_copy(update={"catalog": catalog.model_copy(update={"database": home})})
    try:
        con.execute(secret_statements(probe, reveal=True)[0])
        con.execute(metadata_attach(probe, _PROBE, read_only=True))
    except duckdb.Error as error:
        # Neither database lets us in: it is the login, or the server's own trouble.
        again = classify(error, config, f"Opening lake `{config.name}` failed")
        if _refused(catalog, again):
            remedy = f"Check user and password of the catalog `{catalog.to_url()}`."
            return AuthenticationError(again.message, remedy=remedy)
        return again
    finally:
        con.execute(secret_statements(config, reveal=True)[0])
    with contextlib.ExitStack() as stack:
        stack.callback(con.execute, f"DETACH {identifier(_PROBE)}")
        row = con.execute(f"SELECT count(*) FROM {catalog.type}_query('{_PROBE}', {_question(catalog)})").fetchone()
        if row and row[0]:
            return failure
    return DatabaseNotFoundError(
        f"Lake `{config.name}`: the server of `{catalog.to_url()}` has no database `{catalog.database}`.",
        remedy=create_database(config),
    )


def _question(catalog: PostgresCatalog | MySQLCatalog) -> str:
    name = catalog.database or ""
    if isinstance(catalog, PostgresCatalog):
        return literal(f"select 1 from pg_database where datname = {literal(name)}")
    name = name.replace("\\", "\\\\")
    return literal(f"select 1 from information_schema.schemata where schema_name = {literal(name)}")


def _refused(catalog: PostgresCatalog | MySQLCatalog, failure: DuckLakeOrchError) -> bool:
    """Whether a server answered, and said no in words that we could not read."""
    if not catalog.database or catalog.secret_name:
        return False
    if isinstance(catalog, MySQLCatalog):  # its client names the host that answered
        return type(failure) is StatementError and "Attempted host" in failure.message
    return isinstance(failure, CatalogUnreachableError) and not _client_side(failure.message)


def _client_side(message: str) -> bool:
    """Whether the message is libpq's own, which is never translated: the server was not reached or has gone."""
    signs = ("Connection refused", "Is the server running", "could not translate", "timeout expired", "closed the conn")
    return any(sign in message for sign in signs)
