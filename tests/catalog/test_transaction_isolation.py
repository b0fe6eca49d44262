"""What a transaction reads: one snapshot, and with serializable isolation nothing that changes until it commits."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.errors import ConflictError, ObjectNotFoundError
from tests.support.backends import SQLITE, catalogs

pytestmark = pytest.mark.every_catalog

ROWS = pa.table({"id": [1, 2, 3]})
MERGE_ALL = MaintenancePolicy.model_validate({"merge": {"min_files": 2}})


@pytest.fixture
def shop(lake: DuckLake) -> DuckLake:
    for _ in range(2):
        lake.write(ROWS, "orders", mode="append")
    lake.write(ROWS, "returns", mode="append")
    lake.execute("CREATE VIEW first_orders AS FROM orders WHERE id = 1").raise_for_error()
    return lake


def read_orders(tx: Any) -> None:
    assert tx.read("orders").num_rows == 6


def read_view(tx: Any) -> None:
    assert tx.read("first_orders").num_rows == 2


def read_missing(tx: Any) -> None:
    with pytest.raises(ObjectNotFoundError):
        tx.read("flag")


def read_all(tx: Any) -> None:
    with tx.connect() as con:
        assert con.sql("SELECT count(*) FROM first_orders, returns").fetchone() == (6,)


def append(table: str) -> Callable[[DuckLake], object]:
    return lambda lake: lake.write(ROWS, table, mode="append")


def run(*statements: str) -> Callable[[DuckLake], object]:
    return lambda lake: lake.execute(list(statements)).raise_for_error()


def merge_files(lake: DuckLake) -> None:
    merged = lake.maintain(MERGE_ALL, operations=["merge"]).to_dict()["operations"]
    assert [row["files_in"] for row in merged if row["table"] == "main.orders"] == [2]


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize(
    ("read", "rival", "passes"),
    [
        (read_orders, append("orders"), False),
        (read_orders, append("returns"), True),
        (read_orders, append("flag"), True),
        (read_orders, merge_files, True),
        (read_orders, run("ALTER TABLE orders ADD COLUMN x INTEGER"), False),
        (read_orders, run("DROP TABLE orders"), False),
        (read_view, append("orders"), False),
        (read_view, run("DROP VIEW first_orders"), False),
        (read_view, merge_files, True),
        (read_missing, append("flag"), False),
        (read_missing, run("CREATE VIEW flag AS SELECT 1 AS i"), False),
        (read_missing, append("orders"), True),
        (read_all, append("returns"), False),
        (read_all, append("flag"), False),
        (read_all, merge_files, True),
    ],
)
def test_what_a_serializable_transaction_reads_stays_until_it_commits(
    shop: DuckLake, read: Callable[[Any], None], rival: Callable[[DuckLake], object], passes: bool
) -> None:
    def transact() -> None:
        with shop.transaction(isolation="serializable") as tx:
            read(tx)
            tx.write(ROWS, "results", mode="append")
            rival(shop)

    if passes:
        transact()
    else:
        with pytest.raises(ConflictError, match="A concurrent write"):
            transact()
    assert shop.exists("results") == passes


@catalogs(quick=[SQLITE])
def test_a_serializable_transaction_that_only_reads_passes(shop: DuckLake) -> None:
    with shop.transaction(isolation="serializable") as tx:
        append("orders")(shop)
        read_orders(tx)
        read_missing(tx)


@catalogs(quick=[SQLITE])
def test_tables_are_not_read_at_a_snapshot_that_has_expired_since_the_transaction_began(shop: DuckLake) -> None:
    def transact() -> None:
        with shop.transaction() as tx:
            shop.write(ROWS, "orders", mode="overwrite")
            expire = "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 HOUR)"
            shop.execute(expire, force=True).raise_for_error()
            tx.delete("returns", "id = 1")
            tx.read("orders")

    with pytest.raises(ConflictError, match="has expired"):
        transact()
    assert shop.table("returns").count() == 3


@catalogs(quick=[SQLITE])
def test_names_are_the_same_in_any_case_of_ascii_letters(shop: DuckLake) -> None:
    with shop.transaction() as tx:
        for name in ("New.a", "new.b", "NEW.A", "É", "é", "é"):
            tx.write(ROWS, name, mode="append")
        tx.delete("RETURNS", "id = 1")
        tx.delete("Returns", "id = 2")
    counts = {name: shop.table(name).count() for name in ("new.a", "new.b", "É", "é", "returns")}
    assert counts == {"new.a": 6, "new.b": 3, "É": 3, "é": 6, "returns": 1}
    assert shop.fsck(deep=True, storage=True).findings == []
