"""Questions to the metadata database in its own SQL, answered by the server: DuckDB would fetch whole tables first."""

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


def query(config: LakeConfig, sql: str, *, alias: str | None = None) -> str:
    """Return the DuckDB SELECT that runs `sql` in the catalog and gives its rows.

    It runs outside the session's transaction. SQLite answers with texts only.

    Args:
        config: The lake.
        sql: The question, in the catalog's own SQL.
        alias: Name under which the catalog is attached; by default the extension's own attach.
    """
    function = _QUERY_FUNCTIONS.get(config.catalog.type)
    return f"SELECT * FROM {function}({literal(alias or config.metadata_alias)}, {literal(sql)})" if function else sql


def text_literal(config: LakeConfig, text: str) -> str:
    """Return a text in the catalog's own SQL; as bytes it means the same in every mode of MySQL."""
    return f"X'{text.encode().hex()}'" if config.catalog.type == "mysql" else literal(text)


def exists(config: LakeConfig, name: str) -> str:
    """Return the DuckDB SELECT that gives a row when the metadata database has a table, and none when it has not.

    To try would be slower: where there is none, DuckDB looks for the nearest name among all that are attached.
    """
    kind, wanted = config.catalog.type, literal(name)
    match kind:
        case "sqlite":
            return query(config, f"select 1 from sqlite_master where type = 'table' and name = {wanted}")
        case "postgres" | "mysql":
            schema = literal(config.metadata_schema or "public") if kind == "postgres" else "database()"
            where = f"table_name = {wanted} and table_schema = {schema}"
            return query(config, f"select 1 from information_schema.tables where {where}")
    database, schema = literal(config.metadata_alias), literal(config.metadata_schema or "main")
    where = f"table_name = {wanted} AND database_name = {database} AND schema_name = {schema}"
    return f"SELECT 1 FROM duckdb_tables() WHERE {where}"
