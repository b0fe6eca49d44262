"""Ask a catalog server why it refused a connection, if its message is in a language that we cannot parse."""

import contextlib

import duckdb

from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.attach import secret_statements
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import classify, create_database
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import (
    AuthenticationError,
    DatabaseNotFoundError,
    DuckLakeOrchError,
)

_PROBE = "__ducklake_orch_probe"


def diagnose(config: LakeConfig, con: duckdb.DuckDBPyConnection, failure: DuckLakeOrchError) -> DuckLakeOrchError:
    """Return a more precise error for a failed attach, or the given one.

    If the server was reached but refused, the same login is tried on a database that always exists: if that succeeds,
    the lake's database is missing.
    """
    catalog, dialect = config.catalog, dialect_of(config)
    if not dialect.refused(failure):
        return failure
    elsewhere = catalog.model_copy(update={"database": dialect.home_database})
    probe = config.model_copy(update={"catalog": elsewhere})
    try:
        con.execute(secret_statements(probe, reveal=True)[0])
        con.execute(dialect_of(probe).metadata_attach(_PROBE, read_only=True))
    except duckdb.Error as error:
        # Neither database accepts the login: the login is wrong, or the server itself has a problem.
        refusal = classify(error, config, f"Opening lake `{config.name}` failed")
        if dialect.refused(refusal):
            remedy = f"Check user and password of the catalog `{catalog.to_url()}`."
            return AuthenticationError(refusal.message, remedy=remedy)
        return refusal
    finally:
        con.execute(secret_statements(config, reveal=True)[0])
    with contextlib.ExitStack() as stack:
        stack.callback(con.execute, f"DETACH {identifier(_PROBE)}")
        if con.execute(dialect.query(dialect.database_exists_sql(), alias=_PROBE)).fetchall():
            return failure
    database = getattr(catalog, "database", None)
    return DatabaseNotFoundError(
        f"Lake `{config.name}`: the server of `{catalog.to_url()}` has no database `{database}`.",
        remedy=create_database(config),
    )
