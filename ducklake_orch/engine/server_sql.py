"""Questions to the metadata database in its own SQL, answered by the server: DuckDB would fetch whole tables first."""

import os
import time
from collections.abc import Iterable

import duckdb

from ducklake_orch.config.catalogs import FileCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine.quoting import identifier, literal

_QUERY_FUNCTIONS = {"postgres": "postgres_query", "mysql": "mysql_query", "sqlite": "sqlite_query"}


def table(config: LakeConfig, name: str) -> str:
    """Return a metadata table as the catalog's own SQL names it."""
    kind, schema = config.catalog.type, config.metadata_schema
    if kind == "postgres":
        return f"{identifier(schema or 'public')}.{name}"
    if kind in ("mysql", "sqlite"):
        return name
    return f"{identifier(config.metadata_alias)}.{identifier(schema or 'main')}.{name}"


def catalog_name(config: LakeConfig) -> str:
    """Return what the catalog is called, as an expression in its own SQL: every host that reaches it says the same."""
    catalog = config.catalog
    if isinstance(catalog, FileCatalog):
        return literal(os.path.basename(os.path.realpath(catalog.path)))
    if catalog.type == "postgres":
        return f"concat(current_database(), '.', {literal(config.metadata_schema or 'public')})"
    return "database()" if catalog.type == "mysql" else literal(catalog.database)


def microseconds_now(config: LakeConfig) -> str:
    """Return the time in microseconds, as an expression in the catalog's own SQL; of a file, the time of this host."""
    if config.catalog.type == "postgres":
        return "cast(extract(epoch from clock_timestamp()) * 1000000 as bigint)"
    if config.catalog.type == "mysql":
        return "timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))"
    return str(time.time_ns() // 1000)


def query(config: LakeConfig, sql: str, *, alias: str | None = None) -> str:
    """Return the DuckDB SELECT that runs `sql` in the catalog and gives its rows.

    It runs in the transaction of the connection that asks; on MySQL beside it, and does not see what that wrote. SQLite
    answers with texts only.

    Args:
        config: The lake.
        sql: The question, in the catalog's own SQL.
        alias: Name under which the catalog is attached; by default the extension's own attach.
    """
    function = _QUERY_FUNCTIONS.get(config.catalog.type)
    return f"SELECT * FROM {function}({literal(alias or config.metadata_alias)}, {literal(sql)})" if function else sql


def texts(config: LakeConfig, values: Iterable[str]) -> str:
    """Return values as a list of texts for a SELECT in the catalog's own SQL, none of them named like another."""
    cast = "convert({} using utf8mb4)" if config.catalog.type == "mysql" else "cast({} as varchar)"
    return ", ".join(f"{cast.format(value)} as v{n}" for n, value in enumerate(values))


def text_literal(config: LakeConfig, text: str) -> str:
    """Return a text in the catalog's own SQL; as bytes it means the same in every mode of MySQL."""
    return f"X'{text.encode().hex()}'" if config.catalog.type == "mysql" else literal(text)


def names(con: duckdb.DuckDBPyConnection, config: LakeConfig, prefix: str) -> list[str]:
    """List the tables of the metadata database whose names begin with some words."""
    kind, pattern = config.catalog.type, literal(prefix.replace("_", "!_") + "%")
    match kind:
        case "sqlite":
            sql = f"select name from sqlite_master where type = 'table' and name like {pattern} escape '!'"
        case "postgres" | "mysql":
            schema = literal(config.metadata_schema or "public") if kind == "postgres" else "database()"
            sql = (
                f"select {texts(config, ['table_name'])} from information_schema.tables"
                f" where table_name like {pattern} escape '!' and table_schema = {schema}"
            )
        case _:
            # What the extension has attached is in no list, but the file itself tells.
            schema = literal(config.metadata_schema or "main")
            sql = (
                "SELECT table_name FROM duckdb_tables()"
                f" WHERE database_name = {literal(config.metadata_alias)} AND schema_name = {schema}"
                f" AND starts_with(table_name, {literal(prefix)})"
            )
    return [str(row[0]) for row in con.execute(query(config, sql)).fetchall()]


def exists(con: duckdb.DuckDBPyConnection, config: LakeConfig, name: str) -> bool:
    """Whether the metadata database has a table; others make and drop some as they need them."""
    kind, wanted = config.catalog.type, literal(name)
    match kind:
        case "sqlite":
            sql = f"select 1 from sqlite_master where type = 'table' and name = {wanted}"
        case "postgres" | "mysql":
            schema = literal(config.metadata_schema or "public") if kind == "postgres" else "database()"
            sql = f"select 1 from information_schema.tables where table_name = {wanted} and table_schema = {schema}"
        case _:
            # The engine hides this database from all lists of tables. Where there is no table, DuckDB looks for the
            # nearest name among all it can reach, lakes too, unless told not to: that is nine tenths of the time.
            con.execute("SET catalog_error_max_schemas = 0")
            try:
                con.execute(f"SELECT NULL FROM {table(config, name)} LIMIT 0")
            except duckdb.CatalogException:
                return False
            finally:
                con.execute("RESET catalog_error_max_schemas")
            return True
    return con.execute(query(config, sql)).fetchone() is not None
