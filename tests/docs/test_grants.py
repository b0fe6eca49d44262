"""The grants in docs/catalogs.md suffice to create, write, maintain and read a lake, and allow no more."""

from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import DuckLakeOrchError
from tests.docs.pages import DOCS, blocks
from tests.servers.mariadb import MariaDBServer
from tests.servers.postgres import PostgresServer
from tests.support.granted_work import read_everything, write_and_maintain

_SQL = [code for _, code in blocks(DOCS / "catalogs.md", "sql")]
OF_SERVER, OF_DATABASE, OF_MYSQL = _SQL


def statements(block: str) -> Iterable[str]:
    return [statement.strip() for statement in block.split(";\n") if statement.strip()]


def check_grants(open_lake: Callable[..., DuckLake]) -> None:
    write_and_maintain(open_lake("etl", "change me", create_if_missing=True))
    read_everything(open_lake("analyst", "change me too", read_only=True))
    careless = open_lake("analyst", "change me too")
    for change in (
        lambda: careless.delete("sales.orders", "id = 1"),
        lambda: careless.drop_table("sales.orders"),
        lambda: careless.write(careless.read("sales.items"), "sales.mine", mode="append"),
    ):
        with pytest.raises(DuckLakeOrchError):
            change()
    read_everything(open_lake("analyst", "change me too", read_only=True))


def test_postgres_grants_suffice(postgres: PostgresServer, tmp_path: Path) -> None:
    for block, database in ((OF_SERVER, "postgres"), (OF_DATABASE, "lakes")):
        with postgres.connect(database) as connection:
            for statement in statements(block):
                connection.execute(statement)

    def open_lake(user: str, password: str, **fields: object) -> DuckLake:
        catalog = postgres.url("lakes", user, password)
        return DuckLake.from_url(
            "lake", catalog=catalog, storage=str(tmp_path / "files"), metadata_schema="sales", **fields
        )

    check_grants(open_lake)
    with postgres.connect("lakes") as connection:
        owners = connection.execute("SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'sales'").fetchall()
    assert owners == [("sales_owner",)]


def test_mysql_grants_suffice(mariadb: MariaDBServer, tmp_path: Path) -> None:
    with mariadb.connect() as connection, connection.cursor() as cursor:
        for statement in statements(OF_MYSQL):
            cursor.execute(statement)

    def open_lake(user: str, password: str, **fields: object) -> DuckLake:
        catalog = mariadb.url("sales", user, password)
        assert urlsplit(catalog).username == user
        return DuckLake.from_url("lake", catalog=catalog, storage=str(tmp_path / "files"), **fields)

    check_grants(open_lake)
    mariadb.drop_database("sales")
