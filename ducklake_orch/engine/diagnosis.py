"""Ask a catalog server what is wrong, where its answer to a failed connection is in a language we cannot read."""

import contextlib

import duckdb

from ducklake_orch.config.catalogs import PostgresCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import metadata_attach
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import (
    AuthenticationError,
    CatalogUnreachableError,
    DatabaseNotFoundError,
    DuckLakeOrchError,
)

_PROBE = "__ducklake_orch_probe"


def diagnose(config: LakeConfig, con: duckdb.DuckDBPyConnection, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Return the better error for a failed attach, or the one there is.

    A Postgres server that was reached but refused (`FATAL` in any language comes after `failed:`) is asked through its
    maintenance database: if that opens with the same login, the lake's database is missing.
    """
    catalog = config.catalog
    undecided = isinstance(failure, CatalogUnreachableError) and "failed: " in failure.message
    reached = undecided and not _client_side(failure.message)
    if not (isinstance(catalog, PostgresCatalog) and reached and catalog.database and not catalog.secret_name):
        return failure
    probe = config.model_copy(update={"catalog": catalog.model_copy(update={"database": "postgres"})})
    from ducklake_orch.engine.attach import secret_statements

    try:
        con.execute(secret_statements(probe, reveal=True)[0])
        con.execute(metadata_attach(probe, _PROBE, read_only=True))
    except duckdb.Error as error:
        # Neither database lets us in: it is the login, or the server's own trouble.
        again = classify(error, config, f"Opening lake `{config.name}` failed")
        if isinstance(again, CatalogUnreachableError) and not _client_side(again.message):
            remedy = f"Check user and password of the catalog `{catalog.to_url()}`."
            return AuthenticationError(again.message, remedy=remedy)
        return again
    finally:
        con.execute(secret_statements(config, reveal=True)[0])
    with contextlib.ExitStack() as stack:
        stack.callback(con.execute, f"DETACH {identifier(_PROBE)}")
        question = f"select 1 from pg_database where datname = {literal(catalog.database)}"
        row = con.execute(f"SELECT count(*) FROM postgres_query('{_PROBE}', {literal(question)})").fetchone()
        if row and row[0]:
            return failure
    return DatabaseNotFoundError(
        f"Lake `{config.name}`: the server of `{catalog.to_url()}` has no database `{catalog.database}`.",
        remedy=f"Create it: CREATE DATABASE {identifier(catalog.database)};",
    )


def _client_side(message: str) -> bool:
    """Whether the message is libpq's own, which is never translated: the server was not reached or has gone."""
    signs = ("Connection refused", "Is the server running", "could not translate", "timeout expired", "closed the conn")
    return any(sign in message for sign in signs)
