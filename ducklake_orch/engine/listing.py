"""List the lakes that share one server database: `list_lakes`."""

import duckdb

from ducklake_orch.config.catalogs import Catalog
from ducklake_orch.config.lake import LakeConfig
from ducklake_orch.engine import instances
from ducklake_orch.engine.diagnosis import diagnose
from ducklake_orch.engine.dialects import dialect_of
from ducklake_orch.engine.error_classes import run
from ducklake_orch.engine.quoting import identifier
from ducklake_orch.errors import ConfigError, DuckLakeOrchError
from ducklake_orch.results import LakeEntry

_ALIAS = "__ducklake_orch_listing"


def list_lakes(catalog: Catalog) -> list[LakeEntry]:
    """List the lakes of a Postgres or MySQL database, by the schemas that hold a `ducklake_metadata` table.

    Raises:
        ConfigError: For catalogs that hold one lake each.
    """
    config = LakeConfig(name="listing", catalog=catalog)
    sql = dialect_of(config).lakes_sql()
    if sql is None:
        raise ConfigError(
            f"A {catalog.type} catalog holds one lake.", remedy="Only Postgres and MySQL databases hold several lakes."
        )
    instance = instances.start_instance(config)
    try:
        con = instance.root
        try:
            run(con, dialect_of(config).metadata_attach(_ALIAS, read_only=True), config, "Listing the lakes failed")
        except DuckLakeOrchError as error:
            raise diagnose(config, con, error) from None
        lakes = _lakes(con, dialect_of(config).query(sql, alias=_ALIAS))
        con.execute(f"DETACH {identifier(_ALIAS)}")
        return lakes
    finally:
        instance.root.close()


def _lakes(con: duckdb.DuckDBPyConnection, sql: str) -> list[LakeEntry]:
    lakes = []
    for (schema,) in con.execute(sql).fetchall():
        rows = con.execute(
            f"SELECT key, value FROM {identifier(_ALIAS)}.{identifier(str(schema))}.ducklake_metadata"
            " WHERE scope IS NULL AND key IN ('data_path', 'version')"
        ).fetchall()
        values = {str(key): str(value) for key, value in rows}
        lakes.append(LakeEntry(str(schema), values.get("data_path", ""), values.get("version", "")))
    return lakes
