"""In a lake `shop` with a schema `shop`, `shop.orders` is a table of the schema in every statement and API."""

from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.qualifying import qualified
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake

# Statements that run in this order on a lake `shop` with a schema `shop`. The last one reads.
STATEMENTS = [
    "CREATE TABLE shop.orders (id INTEGER, note VARCHAR)",
    "INSERT INTO shop.orders (id, note) VALUES (1, 'shop.orders; not a name'), (2, NULL)",
    "INSERT INTO shop.orders SELECT shop.id + 2, note FROM shop.orders AS shop",
    "UPDATE shop.orders SET note = 'é' WHERE shop.orders.id = 2",
    "DELETE FROM shop.orders WHERE id = 3",
    "CREATE TABLE shop.main.orders AS SELECT 99 AS id",
    "ALTER TABLE shop.orders ADD COLUMN z INTEGER",
    "CREATE VIEW shop.v AS SELECT id FROM shop.orders",
    "CALL shop.set_commit_message('me', 'why')",
    "FROM shop.snapshots()",
    "DESCRIBE shop.orders",
    "SHOW TABLES FROM shop",
    "SELECT count(*) FROM shop.orders AS a, shop.orders AS b WHERE a.id = b.id",
    "DROP VIEW shop.v",
    'SELECT shop.orders.id FROM /* shop.x */ "shop" . orders JOIN shop.shop.orders AS o USING (id) ORDER BY 1',
]


@pytest.fixture
def lake(make_lake: MakeLake) -> DuckLake:
    lake = make_lake("shop")
    lake.execute("CREATE SCHEMA shop").raise_for_error()
    return lake


@catalogs(sql_writes=True)
class TestEntryPoints:
    def test_execute_resolves_names_in_the_schema(self, lake: DuckLake) -> None:
        for statement in STATEMENTS:
            result = lake.execute(statement).raise_for_error()
        assert result.rows == [{"id": 1}, {"id": 2}, {"id": 4}]
        assert lake.execute("FROM shop.main.orders").rows == [{"id": 99}]
        assert lake.read("shop.orders").num_rows == 3

    def test_connections_cursors_and_scripts_resolve_names_in_the_schema(self, lake: DuckLake) -> None:
        with lake.connect() as con:
            con.execute(";\n".join(STATEMENTS[:-1]))
            assert con.execute(STATEMENTS[-1]).fetchall() == [(1,), (2,), (4,)]
            assert con.cursor().sql(STATEMENTS[-1]).fetchall() == [(1,), (2,), (4,)]
            assert con.execute("SELECT note FROM shop.orders WHERE id = ?", [2]).fetchall() == [("é",)]

    def test_a_schema_created_in_the_same_transaction_is_used(self, make_lake: MakeLake) -> None:
        lake = make_lake("shop")
        script = ["CREATE SCHEMA shop", "CREATE TABLE shop.t AS SELECT 1 AS i", "FROM shop.t"]
        assert lake.execute(script, atomic=True).rows == [{"i": 1}]


def test_a_schema_created_by_another_session_is_used(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "shop")
    lake.create_table("orders", {"id": "int"})
    assert lake.execute("FROM shop.orders").commands[0].columns == [{"name": "id", "type": "INTEGER"}]
    with lake.connect() as con:
        con.execute("CREATE SCHEMA shop")
    lake.create_table("shop.orders", {"more": "int"})
    assert lake.execute("FROM shop.orders").commands[0].columns == [{"name": "more", "type": "INTEGER"}]


@pytest.mark.parametrize(
    ("written", "run"),
    [
        ("FROM shop.t", 'FROM "shop".shop.t'),
        ("FROM shop.shop.t", "FROM shop.shop.t"),
        (
            "SELECT 'shop.t', shop.i FROM SHOP . t AS shop -- shop.t",
            "SELECT 'shop.t', shop.i FROM \"shop\".SHOP . t AS shop -- shop.t",
        ),
        (
            "INSERT INTO shop.options (a) SELECT 'é' FROM shop.t",
            'INSERT INTO "shop".shop.options (a) SELECT \'é\' FROM "shop".shop.t',
        ),
        ("FROM shop.options()", 'FROM "shop".main.options()'),
        ("COMMENT ON COLUMN shop.t.c IS 'x'", "COMMENT ON COLUMN \"shop\".shop.t.c IS 'x'"),
    ],
)
def test_only_two_part_table_names_are_qualified_with_the_lake(written: str, run: str) -> None:
    assert qualified(written, "shop") == run
