"""Find the lakes that share one server database."""

import duckdb

from ducklake_orch.config.catalogs import Catalog, MySQLCatalog, PostgresCatalog, ServerCatalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine import instances
from ducklake_orch.engine.attach import metadata_attach
from ducklake_orch.engine.diagnosis import diagnose
from ducklake_orch.engine.failures import classify
from ducklake_orch.engine.quoting import identifier, literal
from ducklake_orch.errors import ConfigError
from ducklake_orch.results import LakeEntry

_ALIAS = "__ducklake_orch_listing"


def list_lakes(catalog: Catalog) -> list[LakeEntry]:
    """List the lakes of a Postgres or MySQL database, by the schemas that hold a `ducklake_metadata` table.

    Raises:
        ConfigError: For catalogs that hold one lake each.
    """
    if not isinstance(catalog, PostgresCatalog | MySQLCatalog):
        raise ConfigError(f"A {catalog.type} catalog holds one lake.", remedy="Listing is for Postgres and MySQL.")
    config = LakeConfig(name="listing", catalog=catalog)
    instance = instances.start_instance(config)
    failure = None
    try:
        con = instance.root
        try:
            con.execute(metadata_attach(config, _ALIAS, read_only=True))
            found = _lakes(con, catalog)
            con.execute(f"DETACH {identifier(_ALIAS)}")
            return found
        except duckdb.Error as error:
            failure = diagnose(config, con, classify(error, config, "Listing the lakes failed"))
    finally:
        instance.root.close()
    raise failure  # outside the handler: the engine's error shows the password


def _lakes(con: duckdb.DuckDBPyConnection, catalog: ServerCatalog) -> list[LakeEntry]:
    query = f"{catalog.type}_query"  # type: ignore[attr-defined]
    sql = "select table_schema from information_schema.tables where table_name = 'ducklake_metadata' order by 1"
    schemas = [str(row[0]) for row in con.execute(f"SELECT * FROM {query}('{_ALIAS}', {literal(sql)})").fetchall()]
    if catalog.type == "mysql":  # type: ignore[attr-defined]  # there a schema is a database
        schemas = [name for name in schemas if name == catalog.database]
    lakes = []
    for schema in schemas:
        rows = con.execute(
            f"SELECT key, value FROM {identifier(_ALIAS)}.{identifier(schema)}.ducklake_metadata"
            " WHERE scope IS NULL AND key IN ('data_path', 'version')"
        ).fetchall()
        values = {str(key): str(value) for key, value in rows}
        lakes.append(LakeEntry(schema, values.get("data_path", ""), values.get("version", "")))
    return lakes
