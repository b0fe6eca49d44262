"""All tables of a lake are listed at once: the same columns, partition keys and counts as table by table."""

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


@catalogs()
def test_listed_tables_are_as_each_table_describes_itself(lake: DuckLake) -> None:
    lake.execute(SCRIPT).raise_for_error()
    tables = listed(lake)
    assert list(tables) == ["main.empty", "main.parts", "s.nested"]
    for name, table in tables.items():
        assert table.columns == lake.table(name).schema()
        assert table.rows == lake.table(name).count()
    assert tables["main.parts"].partition_by == ["region", "year(ts)", "bucket(4, region)"]
    assert (tables["main.empty"].partition_by, tables["main.parts"].rows) == ([], 51)


@catalogs()
def test_comments_are_listed(lake: DuckLake) -> None:
    lake.execute(["CREATE TABLE t (a INTEGER)", "CREATE TABLE u (a INTEGER)"]).raise_for_error()
    if not lake.execute(["COMMENT ON TABLE t IS 'it''s'", "COMMENT ON COLUMN t.a IS 'é'"]).status == "ok":
        return  # the engine stores no comments in this catalog
    lake.execute("COMMENT ON COLUMN t.a IS 'later'").raise_for_error()
    tables = listed(lake)
    assert (tables["main.t"].comment, tables["main.u"].comment) == ("it's", None)
    assert (tables["main.t"].columns[0].comment, tables["main.u"].columns[0].comment) == ("later", None)


@catalogs()
def test_tables_are_listed_as_of_every_snapshot(lake: DuckLake) -> None:
    lake.execute(SCRIPT).raise_for_error()
    for snapshot in [snapshot.snapshot_id for snapshot in lake.snapshots()]:
        for name, table in listed(lake, snapshot).items():
            assert table.columns == lake.table(name).schema(snapshot=snapshot)
            assert table.rows == lake.table(name).count(snapshot=snapshot)


@catalogs()
def test_a_count_that_only_files_tell_is_left_out(lake: DuckLake) -> None:
    lake.execute(["CREATE TABLE t (a INTEGER)", "CREATE TABLE u AS SELECT 1 AS a"]).raise_for_error()
    for value in range(6):
        lake.execute(f"INSERT INTO t SELECT {value} FROM range(20)").raise_for_error()
    before = lake.snapshots(2)[1].snapshot_id
    lake.maintain(operations=["merge"])
    assert listed(lake)["main.t"].rows == 120
    assert listed(lake, before)["main.t"].rows is None
    assert listed(lake, before)["main.u"].rows == 1
