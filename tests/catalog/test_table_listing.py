"""All tables of a lake are listed at once: the same columns, partition keys and counts as table by table."""

from datetime import date

import pyarrow as pa

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.scan import ListedTable, list_tables, snapshot_of
from tests.support.backends import catalogs

SCRIPT = [
    "CREATE TABLE empty (a JSON, b UUID DEFAULT uuid(), c HUGEINT NOT NULL)",
    "CREATE SCHEMA s",
    "CREATE TABLE s.nested (id INTEGER, more STRUCT(a INTEGER, b MAP(VARCHAR, DATE)[]))",
    "INSERT INTO s.nested (id) SELECT range FROM range(5)",
    "ALTER TABLE s.nested RENAME COLUMN id TO key",
    "ALTER TABLE s.nested DROP COLUMN more",
    "ALTER TABLE s.nested ADD COLUMN later TIMESTAMPTZ",
    "DELETE FROM s.nested WHERE key = 1",
    "CREATE TABLE parts (region VARCHAR, ts TIMESTAMP)",
    "ALTER TABLE parts SET PARTITIONED BY (region, year(ts), bucket(4, region))",
    "INSERT INTO parts SELECT ['eu', 'us'][1 + i % 2], TIMESTAMP '2024-01-01' FROM range(100) x(i)",
    "DELETE FROM parts WHERE region = 'eu'",
    "CREATE TABLE dropped (a INTEGER)",
    "INSERT INTO dropped VALUES (1)",
    "DROP TABLE dropped",
    "DELETE FROM parts WHERE ts IS NULL",
    "INSERT INTO parts VALUES ('it''s', NULL)",
]


def listed(lake: DuckLake, snapshot: int | None = None) -> dict[str, ListedTable]:
    with lake.reading(snapshot, entering=False) as session, reading(session, "Listing") as metadata:
        return {str(table.name): table for table in list_tables(metadata, snapshot_of(session, metadata))}


@catalogs(sql_writes=True)
def test_listed_tables_are_as_each_table_describes_itself(lake: DuckLake) -> None:
    lake.execute(SCRIPT).raise_for_error()
    tables = listed(lake)
    assert list(tables) == ["main.empty", "main.parts", "s.nested"]
    for name, table in tables.items():
        assert table.columns == lake.table(name).schema()
        assert table.rows == lake.table(name).count()
    assert tables["main.parts"].partition_by == ["region", "year(ts)", "bucket(4, region)"]
    assert (tables["main.empty"].partition_by, tables["main.parts"].rows) == ([], 51)


@catalogs(sql_comments=True)
def test_comments_are_listed(lake: DuckLake) -> None:
    lake.execute(["CREATE TABLE t (a INTEGER)", "CREATE TABLE u (a INTEGER)"]).raise_for_error()
    comments = ["TABLE t IS 'it''s'", "COLUMN t.a IS 'é'", "COLUMN t.a IS 'later'"]
    lake.execute([f"COMMENT ON {comment}" for comment in comments]).raise_for_error()
    tables = listed(lake)
    assert (tables["main.t"].comment, tables["main.u"].comment) == ("it's", None)
    assert (tables["main.t"].columns[0].comment, tables["main.u"].columns[0].comment) == ("later", None)


@catalogs(sql_writes=True)
def test_tables_are_listed_as_of_every_snapshot(lake: DuckLake) -> None:
    lake.execute(SCRIPT).raise_for_error()
    for snapshot in [snapshot.snapshot_id for snapshot in lake.snapshots()][::4]:
        for name, table in listed(lake, snapshot).items():
            assert table.columns == lake.table(name).schema(snapshot=snapshot)
            assert table.rows == lake.table(name).count(snapshot=snapshot)


@catalogs(sql_writes=True)
def test_a_count_that_only_files_tell_is_left_out(lake: DuckLake) -> None:
    lake.execute(["CREATE TABLE t (a INTEGER)", "CREATE TABLE u AS SELECT 1 AS a"]).raise_for_error()
    for value in range(6):
        lake.execute(f"INSERT INTO t SELECT {value} FROM range(20)").raise_for_error()
    before = lake.snapshots(2)[1].snapshot_id
    lake.maintain(operations=["merge"])
    assert listed(lake)["main.t"].rows == 120
    assert listed(lake, before)["main.t"].rows is None
    assert listed(lake, before)["main.u"].rows == 1


@catalogs(sql_writes=False)
def test_mysql_lists_rows_in_files_and_in_the_catalog(lake: DuckLake) -> None:
    lake.create_table("s.t", {"id": "BIGINT", "at": "DATE"}, partition_by=["year(at)"])
    rows = pa.table({"id": range(6), "at": [date(2024, 1, 1)] * 6})
    lake.write(rows, "s.t", mode="append")
    lake.write(rows, "s.t", mode="append", inline="auto")
    lake.delete("s.t", "id < 2")
    (table,) = listed(lake).values()
    assert (table.rows, table.partition_by) == (8, ["year(at)"])
    assert table.columns == lake.table("s.t").schema()
