"""`lake.table(…)` reads files, partitions, statistics and row counts from the catalog alone."""

import datetime as dt
import json
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.catalog.lifecycle import Retention, expire
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake

SCRIPT = [
    "CREATE TABLE t (id INTEGER, region VARCHAR, ts TIMESTAMP, price DOUBLE, place STRUCT(a INTEGER))",
    "ALTER TABLE t SET PARTITIONED BY (region, year(ts))",
    """INSERT INTO t
       SELECT i, ['eu', NULL][1 + i % 2], TIMESTAMP '2024-01-01' + INTERVAL 1 DAY * (i * 4), i / 2, {a: -i}
       FROM range(100) x(i)""",
]


TYPES = [
    *"TINYINT UTINYINT SMALLINT USMALLINT INTEGER UINTEGER BIGINT UBIGINT HUGEINT UHUGEINT FLOAT DOUBLE".split(),
    *"DECIMAL(10,2) BOOLEAN VARCHAR BLOB DATE TIME TIMETZ TIMESTAMP TIMESTAMPTZ TIMESTAMP_S TIMESTAMP_MS".split(),
    *"TIMESTAMP_NS UUID INTERVAL JSON VARIANT GEOMETRY INTEGER[] MAP(VARCHAR,DECIMAL(3,1))".split(),
    'STRUCT(a DATE, "b c" JSON)',
    'STRUCT("select" INTEGER[])[]',
]


@pytest.fixture
def partitioned_lake(make_lake: MakeLake) -> DuckLake:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute(SCRIPT).raise_for_error()
    return lake


@catalogs()
def test_files_partitions_and_rows_are_listed(partitioned_lake: DuckLake) -> None:
    table = partitioned_lake.table("t")
    files = table.files()
    assert len(files) == 4
    assert all(Path(file.path).exists() and Path(file.path).stat().st_size == file.bytes for file in files)
    assert sum(file.rows for file in files) == 100
    assert {(file.partition["region"], file.partition["year(ts)"]) for file in files} == {
        (region, year) for region in ("eu", None) for year in ("2024", "2025")
    }
    assert {(file.deletes, file.snapshot) for file in files} == {(0, 3)}
    partitions = {tuple(partition.values.values()): partition for partition in table.partitions()}
    assert {key: (partition.rows, partition.files) for key, partition in partitions.items()} == {
        ("eu", "2024"): (46, 1),
        (None, "2024"): (46, 1),
        ("eu", "2025"): (4, 1),
        (None, "2025"): (4, 1),
    }
    assert table.count() == 100
    assert (table.count(snapshot=2), table.files(snapshot=2)) == (0, [])
    assert [file.partition["region"] for file in table.files(where="region = 'eu' AND ts < '2025-01-01'")] == ["eu"]
    assert json.loads(json.dumps(files[0].to_dict()))["rows"] == files[0].rows
    assert "46 rows" in str(partitions["eu", "2024"])


@catalogs()
def test_table_statistics_summarize_the_files(partitioned_lake: DuckLake) -> None:
    found = partitioned_lake.table("t").stats()
    assert (found.table, found.rows, found.files, found.deletes, found.inlined_rows) == ("main.t", 100, 4, 0, 0)
    columns = {column.name: column for column in found.columns}
    assert list(columns) == ["id", "region", "ts", "price", "place.a"]
    assert (columns["id"].min, columns["id"].max, columns["id"].nulls, columns["id"].values) == ("0", "99", 0, 100)
    assert (columns["place.a"].min, columns["place.a"].max) == ("-99", "0")
    assert (columns["region"].min, columns["region"].max, columns["region"].nulls) == ("eu", "eu", 50)
    assert (columns["price"].min, columns["price"].max, columns["price"].has_nan) == ("0.0", "49.5", False)
    assert columns["ts"].max == "2025-01-31 00:00:00"
    assert str(found).startswith("main.t at snapshot 3: 100 rows in 4 files")
    with partitioned_lake.connect_metadata(read_only=False) as con:
        first = con.execute("SELECT min(data_file_id) FROM ducklake_data_file").fetchall()[0][0]
        con.execute(f"DELETE FROM ducklake_file_column_stats WHERE column_id = 1 AND data_file_id = {first}")
    unknown = partitioned_lake.table("t").stats().columns[0]
    assert (unknown.min, unknown.max, unknown.nulls, unknown.values) == (None, None, None, None)


def test_the_last_write_is_of_rows_and_unknown_once_its_snapshot_has_expired(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    for number in (1, 2):
        lake.write(pa.table({"i": [number]}), "t", mode="append", inline="never")
    lake.create_table("empty", {"i": "BIGINT"})
    written = lake.snapshots()[1].snapshot_time
    lake.maintain(operations=["merge"]).raise_for_error()
    lake.execute("COMMENT ON TABLE t IS 'moved and described'").raise_for_error()
    by_name = {entry.table: entry.last_write for entry in lake.tables(rows=True)}
    assert by_name == {"t": written, "empty": None}
    expire(lake.config, Retention(dt.datetime.now(dt.UTC) + dt.timedelta(days=1)))
    assert {entry.last_write for entry in lake.tables(rows=True)} == {None}


@catalogs(sql_writes=True)
def test_counts_include_deleted_and_inlined_rows(lake: DuckLake) -> None:
    lake.execute(
        [
            "CREATE TABLE t AS SELECT range AS i FROM range(50)",
            "DELETE FROM t WHERE i < 20",
            "DELETE FROM t WHERE i = 30",
            "INSERT INTO t VALUES (1000)",
        ]
    ).raise_for_error()
    table = lake.table("t")
    assert [table.count(snapshot=n) for n in range(1, 5)] == [50, 30, 29, 30]
    assert [lake.tables(rows=True, snapshot=n)[0].rows for n in range(1, 5)] == [50, 30, 29, 30]
    assert (lake.tables(rows=True)[0].rows, lake.tables()[0].rows) == (30, None)
    times = {snapshot.snapshot_id: snapshot.snapshot_time for snapshot in lake.snapshots()}
    assert [lake.tables(rows=True, snapshot=n)[0].last_write for n in range(1, 5)] == [times[n] for n in range(1, 5)]
    assert table.count(as_of=dt.datetime.now(dt.UTC) + dt.timedelta(minutes=1)) == 30
    (file,) = table.files()
    assert (file.rows, file.deletes) == (50, 21)
    found = table.stats()
    assert (found.rows, found.deletes, found.delete_files, found.inlined_rows) == (50, 21, 1, 1)


@catalogs(sql_writes=True)
def test_partition_keys_of_earlier_specs_keep_their_names(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute(
        [
            "CREATE TABLE t (id INTEGER, region VARCHAR)",
            "INSERT INTO t VALUES (1, 'eu')",
            "ALTER TABLE t SET PARTITIONED BY (region)",
            "INSERT INTO t VALUES (2, 'eu')",
            "ALTER TABLE t RESET PARTITIONED BY",
            "ALTER TABLE t DROP COLUMN region",
            "ALTER TABLE t SET PARTITIONED BY (bucket(3, id))",
            "INSERT INTO t VALUES (3)",
        ]
    ).raise_for_error()
    keys = [list(file.partition.items()) for file in lake.table("t").files()]
    assert keys[:2] == [[], [("region", "eu")]]
    assert [name for name, _ in keys[2]] == ["bucket(3, id)"]
    assert [partition.rows for partition in lake.table("t").partitions()] == [1, 1, 1]


@catalogs()
def test_missing_tables_and_snapshots_are_named(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE orders (id INTEGER)").raise_for_error()
    with pytest.raises(errors.ObjectNotFoundError) as raised:
        lake.table("ordres").count()
    assert "`main.orders`" in str(raised.value.remedy)
    with pytest.raises(errors.SnapshotNotFoundError):
        lake.table("orders").count(snapshot=999)
    with pytest.raises(errors.ObjectNotFoundError):
        lake.table("orders").count(snapshot=0)
    with pytest.raises(errors.StatementError, match="syntax error"):
        lake.table("orders").files(where="id = ")


def test_column_types_equal_those_of_describe(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    columns = ", ".join(f"c{n} {kind}{' NOT NULL' if n == 3 else ''}" for n, kind in enumerate(TYPES))
    lake.execute([f"CREATE TABLE t ({columns})", "COMMENT ON COLUMN t.c1 IS 'one'"]).raise_for_error()
    later = ["ALTER TABLE t ALTER c2 SET DEFAULT 7", "ALTER TABLE t SET PARTITIONED BY (year(c18), c15)"]
    lake.execute(later).raise_for_error()
    schema = lake.table("T").schema()
    described = lake.execute("DESCRIBE t", max_rows=None).raise_for_error().rows
    assert [(column.name, column.type) for column in schema] == [
        (row["column_name"], row["column_type"]) for row in described
    ]
    assert [(column.comment, column.default, column.nullable) for column in schema[1:4]] == [
        ("one", None, True),
        (None, "7", True),
        (None, None, False),
    ]
    assert {column.name: column.partition for column in schema if column.partition} == {
        "c18": "year",
        "c15": "identity",
    }
    assert len(lake.table("t").schema(snapshot=1)) == len(schema)
    assert [column.partition for column in lake.table("t").schema(snapshot=1) if column.partition] == []
