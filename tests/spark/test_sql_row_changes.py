"""`lake.sql` with DELETE, UPDATE and MERGE whose conditions and values only Spark can evaluate."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from ducklake_orch import DuckLake
from ducklake_orch.catalog.verbs import change_by_row_id
from ducklake_orch.errors import ConflictError, UnsupportedStatementError

SOURCE = [(0, 10.0, "d"), (2, 20.0, "u"), (50, 5.0, "i"), (51, 6.0, "n"), (None, 7.0, "i")]


def orders(ids: Iterable[int]) -> pa.Table:
    return pa.table({"id": [*ids], "region": [f"r{n % 3}" for n in ids], "price": [n * 1.5 for n in ids]})


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    """A lake with nine orders in three regions: six in files, three inlined."""
    lake = DuckLake.local(tmp_path / "shop")
    create = "CREATE TABLE orders (id BIGINT, region VARCHAR, price DOUBLE)"
    lake.execute([create, "ALTER TABLE orders SET PARTITIONED BY (region)"]).raise_for_error()
    lake.write(orders(range(6)), "orders", mode="append", inline="never")
    lake.write(orders(range(6, 9)), "orders", mode="append", inline="auto")
    return lake


@pytest.fixture
def source(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(SOURCE, "id LONG, price DOUBLE, op STRING")


def rows(lake: DuckLake) -> dict[Any, Any]:
    return {row["id"]: (row["region"], row["price"]) for row in lake.read("orders").to_pylist()}


def row_ids(lake: DuckLake) -> dict[int, int]:
    with lake.connect(read_only=True) as con:
        return dict(con.execute("SELECT id, rowid FROM orders").fetchall())


@pytest.mark.parametrize(
    "condition",
    [
        "id % 4 = 1",
        "id IN (SELECT max(id) FROM orders GROUP BY region)",
        "length(region) = 2 AND orders.id < :least",
        "rlike(region, '[12]$') OR EXISTS (SELECT 1 FROM {gone} g WHERE g.id = orders.id)",
    ],
)
def test_delete_removes_the_rows_that_a_query_with_its_condition_returns(
    condition: str, lake: DuckLake, spark: SparkSession
) -> None:
    frames: dict[str, Any] = {"gone": spark.range(3, 5)} if "{gone}" in condition else {}
    args = {"least": 7} if ":least" in condition else None
    gone = {row.id for row in lake.sql(spark, f"SELECT id FROM orders WHERE {condition}", args, **frames).collect()}
    kept = rows(lake).keys() - gone
    result = lake.sql(spark, f"DELETE FROM orders WHERE {condition}", args, **frames).collect()[0]
    assert (result.mode, result.rows_removed) == ("delete", len(gone))
    assert rows(lake).keys() == kept
    assert lake.fsck(deep=True, storage=True).findings == []


def test_update_assigns_expressions_and_rows_keep_their_ids(lake: DuckLake, spark: SparkSession) -> None:
    before, ids = rows(lake), row_ids(lake)
    text = "UPDATE orders AS o SET o.price = o.price + id, region = CASE WHEN id = 8 THEN NULL ELSE upper(region) END"
    result = lake.sql(spark, f"{text} WHERE id % 2 = 0").collect()[0]
    assert (result.mode, result.rows_written) == ("update", 5)
    assert rows(lake) == {
        key: (None if key == 8 else region.upper(), price + key) if key % 2 == 0 else (region, price)
        for key, (region, price) in before.items()
    }
    assert row_ids(lake) == ids
    assert lake.fsck(deep=True, storage=True).findings == []


def test_merge_runs_the_first_clause_that_applies_to_each_row(
    lake: DuckLake, spark: SparkSession, source: DataFrame
) -> None:
    before, ids = rows(lake), row_ids(lake)
    result = lake.sql(
        spark,
        "MERGE INTO orders AS o USING {source} AS n ON o.id = n.id"
        " WHEN MATCHED AND op = 'd' THEN DELETE"
        " WHEN MATCHED THEN UPDATE SET price = n.price + o.price"
        " WHEN NOT MATCHED AND n.op <> 'n' THEN INSERT (id, region) VALUES (n.id, concat('new ', op))"
        " WHEN NOT MATCHED BY SOURCE AND o.id IN (3, 4) THEN UPDATE SET price = -o.id"
        " WHEN NOT MATCHED BY SOURCE AND region = 'r1' THEN DELETE",
        source=source,
    ).collect()[0]
    assert (result.mode, result.rows_written, result.rows_removed) == ("merge", 5, 6)
    wanted = {key: row for key, row in before.items() if key != 0 and (row[0] != "r1" or key == 4)}
    wanted |= {2: ("r2", 23.0), 3: ("r0", -3.0), 4: ("r1", -4.0), 50: ("new i", None), None: ("new i", None)}
    assert rows(lake) == wanted
    kept = {key: row_id for key, row_id in row_ids(lake).items() if key in before}
    assert kept == {key: ids[key] for key in kept}
    assert lake.fsck(deep=True, storage=True).findings == []


def test_merge_with_stars_takes_all_columns_from_the_source(lake: DuckLake, spark: SparkSession) -> None:
    text = "MERGE INTO orders o USING (SELECT id + 6 AS id, region, price FROM orders WHERE id < 4) n ON o.id = n.id"
    lake.sql(spark, f"{text} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
    assert {key: row for key, row in rows(lake).items() if key is not None and key > 5} == {
        6: ("r0", 0.0),
        7: ("r1", 1.5),
        8: ("r2", 3.0),
        9: ("r0", 4.5),
    }


def test_several_source_rows_can_delete_the_same_row(lake: DuckLake, spark: SparkSession) -> None:
    text = "MERGE INTO orders o USING (SELECT 1 AS id UNION ALL SELECT 1) n ON o.id = n.id WHEN MATCHED THEN DELETE"
    assert lake.sql(spark, text).collect()[0].rows_removed == 1
    assert 1 not in rows(lake)


def test_statements_of_a_transaction_see_each_other(lake: DuckLake, spark: SparkSession) -> None:
    snapshot = lake.snapshots(1)[0].snapshot_id
    with lake.transaction() as tx:
        tx.sql(spark, "INSERT INTO orders VALUES (100, 'q', 1)")
        tx.sql(spark, "UPDATE orders SET price = price * 2 WHERE id % 10 = 0")
        tx.sql(
            spark, "MERGE INTO orders o USING (SELECT 100 AS id) n ON o.id = n.id WHEN MATCHED THEN UPDATE SET id = 101"
        )
    assert rows(lake)[101] == ("q", 2.0)
    assert lake.snapshots(1)[0].snapshot_id == snapshot + 1
    assert lake.fsck(deep=True, storage=True).findings == []


def test_a_statement_runs_again_when_the_table_has_changed_meanwhile(
    lake: DuckLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def beside_a_writer(*arguments: Any) -> Any:
        if not attempts:
            lake.write(orders([20]), "orders", mode="append")
        attempts.append(1)
        return change_by_row_id(*arguments)

    monkeypatch.setattr("ducklake_orch.spark.sql.row_statement.change_by_row_id", beside_a_writer)
    result = lake.sql(spark, "UPDATE orders SET price = price + 1 WHERE id % 20 = 0").collect()[0]
    assert (len(attempts), result.rows_written) == (2, 2)
    assert (rows(lake)[0], rows(lake)[20]) == (("r0", 1.0), ("r2", 31.0))


def test_a_statement_depends_only_on_the_rows_that_can_meet_its_condition(lake: DuckLake, spark: SparkSession) -> None:
    with lake.transaction() as tx:
        tx.sql(spark, "UPDATE orders SET price = price + 1 WHERE region = 'r0' AND id % 2 = 0")
        lake.delete("orders", "region = 'r1'")
    assert {key: row[1] for key, row in rows(lake).items()} == {0: 1.0, 2: 3.0, 3: 4.5, 5: 7.5, 6: 10.0, 8: 12.0}

    def update_the_last() -> None:
        with lake.transaction() as tx:
            tx.sql(spark, "UPDATE orders SET price = 0 WHERE id = (SELECT max(id) FROM orders) AND region = 'r2'")
            lake.write(orders([10]), "orders", mode="append")

    with pytest.raises(ConflictError):
        update_the_last()


def test_names_and_values_with_special_characters_are_kept(spark: SparkSession, lake: DuckLake) -> None:
    create = 'CREATE TABLE "odd names" ("a b" INTEGER, "WHEN" VARCHAR, "x,y" STRUCT(v INTEGER))'
    lake.execute([create, """INSERT INTO "odd names" VALUES (1, 'WHERE, SET', {'v': 1})"""]).raise_for_error()
    lake.sql(
        spark, "UPDATE `odd names` t SET `a b` = `a b` + 1, `WHEN` = concat(t.when, ' = {x}, WHEN') -- a comment\n;"
    )
    lake.sql(
        spark,
        "MERGE INTO `odd names` t USING (SELECT 2 AS k, named_struct('v', 7) AS s) n ON t.`a b` = k"
        " WHEN MATCHED AND t.when LIKE '%WHEN' THEN UPDATE SET `x,y` = s;",
    )
    assert lake.read('"odd names"').to_pylist() == [{"a b": 2, "WHEN": "WHERE, SET = {x}, WHEN", "x,y": {"v": 7}}]


def test_merge_does_not_insert_rows_without_the_default_of_a_column(spark: SparkSession, lake: DuckLake) -> None:
    lake.execute("CREATE TABLE tasks (id BIGINT, state VARCHAR DEFAULT 'new')").raise_for_error()
    merge = "MERGE INTO tasks t USING (SELECT 1 AS id) n ON t.id = n.id WHEN NOT MATCHED THEN INSERT"
    with pytest.raises(UnsupportedStatementError, match="leaves out column `state`, which has a default"):
        lake.sql(spark, f"{merge} (id) VALUES (id)")
    lake.sql(spark, f"{merge} (id, state) VALUES (n.id, 'old')")
    assert lake.read("tasks").to_pylist() == [{"id": 1, "state": "old"}]
