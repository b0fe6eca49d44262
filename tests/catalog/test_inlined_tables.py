"""Tables of inlined rows: after our ALTER, the engine finds one for the new columns that equals its own."""

from typing import Any

import pyarrow as pa

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata
from ducklake_orch.engine.quoting import identifier, table_name
from tests.support.backends import SQLITE, catalogs
from tests.support.fault_points import dies_at

TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"),
    *("HUGEINT", "UHUGEINT", "DECIMAL(9,2)", "DECIMAL(38,10)", "FLOAT", "DOUBLE", "VARCHAR", "JSON", "BLOB", "UUID"),
    *("DATE", "TIME", "TIMETZ", "INTERVAL", "TIMESTAMP", "TIMESTAMP_S", "TIMESTAMP_MS", "TIMESTAMP_NS", "TIMESTAMPTZ"),
    *("INTEGER[]", "STRUCT(a INTEGER, b VARCHAR)", "MAP(VARCHAR, INTEGER)"),
)


def rows(lake: DuckLake, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.execute(sql).raise_for_error().rows]


def run_in_engine(lake: DuckLake, sql: str) -> None:
    """Run a statement by the extension alone: on MySQL, `execute` inlines no rows."""
    with lake.connect() as con:
        con.execute(sql)


@catalogs(sql_writes=True)
def test_the_engine_inlines_rows_after_columns_were_added_and_promoted(lake: DuckLake) -> None:
    lake.execute(["CREATE TABLE t (i UTINYINT, s VARCHAR)", "INSERT INTO t VALUES (1, 'a')"]).raise_for_error()
    wider = pa.table({"i": pa.array([300], pa.uint16()), "s": ["b"], "more": ["x"]})
    lake.write(wider, "t", mode="append", schema_evolution="promote")
    lake.execute("INSERT INTO t VALUES (400, 'c', 'y')").raise_for_error()
    assert lake.snapshots()[0].changes == ["inlined_insert:1"]
    wanted = [(1, "a", None), (300, "b", "x"), (400, "c", "y")]
    assert rows(lake, "FROM t ORDER BY i") == wanted
    lake.execute(f"CALL ducklake_flush_inlined_data('{lake.config.alias}')").raise_for_error()
    assert rows(lake, "FROM t ORDER BY i") == wanted


@catalogs(sql_writes=True)
def test_rows_inlined_into_our_table_are_flushed_completely_after_an_alter(lake: DuckLake) -> None:
    lake.write(pa.table({"i": [1]}), "t", mode="append")
    lake.write(pa.table({"i": [2], "more": ["x"]}), "t", mode="append", schema_evolution="add")
    alter = ["ALTER TABLE t RENAME i TO j", "ALTER TABLE t RENAME j TO i"]
    flush = f"CALL ducklake_flush_inlined_data('{lake.config.alias}')"
    for statement in (
        "INSERT INTO t VALUES (3, 'y')",
        *alter,
        flush,
    ):  # separate sessions, because a session knows its own changes
        lake.execute(statement).raise_for_error()
    assert rows(lake, "FROM t ORDER BY i") == [(1, None), (2, "x"), (3, "y")]


@catalogs(sql_writes=True)
def test_our_inlined_table_has_the_columns_of_the_engines(lake: DuckLake) -> None:
    columns = ", ".join(f"{identifier(f'c {n}')} {kind}" for n, kind in enumerate(TYPES))
    lake.execute([f"CREATE TABLE t ({columns})", "INSERT INTO t DEFAULT VALUES"]).raise_for_error()
    lake.write(pa.table({"more": ["x"]}), "t", mode="append", schema_evolution="add")
    with lake.reading() as session:
        con = session.instance.root.cursor()
        metadata = Metadata(con, lake.config)
        tables = metadata.table(table_name("t"), metadata.latest().snapshot_id).inlined
        by_engine, ours = (con.execute(f"DESCRIBE {metadata.table_sql(table.name)}").fetchall() for table in tables)
    assert ours[:-1] == by_engine


VALUES = {
    "BOOLEAN": "true",
    "UBIGINT": "18446744073709551615",
    "HUGEINT": "170141183460469231731687303715884105727",
    "DECIMAL(38,10)": "1234567890123456789012345678.0123456789",
    "DOUBLE": "0.1",
    "VARCHAR": "'it''s \\ \"é\"'",
    "JSON": """'{"a": "it''s"}'""",
    "BLOB": r"'\x00\xFF\x27'",
    "DATE": "'0001-01-01'",
    "TIME": "'23:59:59.123456'",
    "TIMETZ": "'12:00:00+02'",
    "INTERVAL": "INTERVAL 3 MONTH",
    "TIMESTAMP": "'2024-01-02 03:04:05.123456'",
    "TIMESTAMPTZ": "'2024-01-02 03:04:05.123456+00'",
}


@catalogs()
def test_an_empty_table_with_added_columns_keeps_the_first_inserted_row(lake: DuckLake) -> None:
    typed = [f"CAST({value} AS {kind})" for kind, value in VALUES.items()]
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(VALUES))
    run_in_engine(lake, f"CREATE TABLE t ({columns})")
    added = pa.table({"more": pa.array([], pa.string())})
    lake.write(added, "t", mode="append", schema_evolution="add")
    assert lake.fsck(deep=True).findings == []
    run_in_engine(lake, f"INSERT INTO t VALUES ({', '.join(typed)}, 'x')")
    assert lake.snapshots()[0].changes == ["inlined_insert:1"]
    same = " AND ".join(f"c{n} = {value}" for n, value in enumerate(typed))
    assert rows(lake, f"SELECT {same}, more FROM t") == [(True, "x")]
    assert lake.read("t").num_rows == 1
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE], sql_writes=True)
def test_tables_may_have_more_columns_than_a_catalog_table(lake: DuckLake) -> None:
    wide = pa.table({f"c{n}": [n] for n in range(2100 if lake.config.catalog.type == "sqlite" else 1700)})
    lake.write(wide, "new", mode="append")
    lake.write(wide.select(["c0"]), "old", mode="append")
    lake.write(wide, "old", mode="append", schema_evolution="add")
    assert lake.read("new").equals(wide)
    assert lake.table("old").count() == 2


@catalogs(sql_writes=False)
def test_columns_with_names_that_mysql_refuses_are_added(lake: DuckLake) -> None:
    for number, names in enumerate((["x" * 65], ["a`b"], ["a\\b"], ["ends "], ["\N{GRINNING FACE}"], ["É", "é"])):
        run_in_engine(lake, f"CREATE TABLE t{number} (i INTEGER)")
        new = pa.table({"i": pa.array([1], pa.int32())} | {name: ["x"] for name in names})
        lake.write(new, f"t{number}", mode="append", schema_evolution="add")
        assert rows(lake, f"FROM t{number}") == [(1, *("x" for _ in names))]
        assert lake.read(f"t{number}") == new
    assert {finding.severity for finding in lake.fsck(deep=True).findings} == {"warning"}


@catalogs(sql_writes=False)
def test_an_inlined_table_left_by_a_killed_process_does_not_block_writes(lake: DuckLake) -> None:
    empty = pa.table({"i": pa.array([], pa.int32())})
    for table in "tu":
        run_in_engine(lake, f"CREATE TABLE {table} (i INTEGER)")
        lake.write(empty, table, mode="append")  # DuckDB caches the server's tables here
        with_column = empty.append_column("left", pa.array([], pa.int64()))
        assert dies_at("commit.before", lambda: lake.write(with_column, table, mode="append", schema_evolution="add"))  # noqa: B023
        if table == "t":
            lake.write(empty.append_column("s", pa.array([], pa.string())), "t", mode="append", schema_evolution="add")
        else:
            run_in_engine(lake, "ALTER TABLE u ADD COLUMN s VARCHAR")
        run_in_engine(lake, f"INSERT INTO {table} VALUES (1, 'x')")
        assert rows(lake, f"FROM {table}") == [(1, "x")]
        assert lake.read(table).to_pylist() == [{"i": 1, "s": "x"}]
    assert [finding.code for finding in lake.fsck(deep=True).findings] == ["inlined-table-left-behind"]


@catalogs(sql_writes=True)
def test_overwrite_partitions_replaces_several_inlined_partitions(lake: DuckLake) -> None:
    create = "CREATE TABLE t (p INTEGER, q BOOLEAN)"
    inserted = "INSERT INTO t VALUES (1, true), (1, false), (2, NULL), (NULL, true)"
    lake.execute([create, "ALTER TABLE t SET PARTITIONED BY (p, q)", inserted]).raise_for_error()
    data = pa.table({"p": pa.array([1, None], pa.int32()), "q": [True, True]})
    assert lake.write(data, "t", mode="overwrite_partitions").rows_removed == 2
    assert rows(lake, "SELECT p, q, count(*) FROM t GROUP BY ALL ORDER BY ALL") == [
        *[(1, False, 1), (1, True, 1), (2, None, 1), (None, True, 1)]
    ]
