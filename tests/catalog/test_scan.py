"""A reader that uses only the scan plan reads the same rows as the engine, at every snapshot."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import Metadata, reading
from ducklake_orch.catalog.scan import ScanPlan, classify, count, plan_scan
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.engine.session import open_session
from ducklake_orch.errors import ObjectNotFoundError
from tests.support.backends import Backend, catalogs
from tests.support.lakes import MakeLake
from tests.support.plan_reader import read_plan, rows_of


@contextmanager
def opened(lake: DuckLake) -> Iterator[Metadata]:
    with open_session(lake.config) as session:
        yield Metadata(session.instance.root.cursor(), lake.config)


def plan(lake: DuckLake, table: str = "t", snapshot: int | None = None, **wanted: Any) -> ScanPlan:
    with opened(lake) as metadata:
        at = metadata.latest().snapshot_id if snapshot is None else snapshot
        return plan_scan(metadata, metadata.table(table_name(table), at), at, **wanted)


def check_every_snapshot(lake: DuckLake, first: int, table: str = "t") -> None:
    """Compare rows and counts with the engine's, at every snapshot since the table was created."""
    with open_session(lake.config) as session:
        metadata = Metadata(session.instance.root.cursor(), lake.config)
        for at in range(first, metadata.latest().snapshot_id + 1):
            expected = sorted(map(repr, session.con.execute(f"FROM {table} AT (VERSION => {at})").fetchall()))
            found = metadata.table(table_name(table), at)
            rows = rows_of(metadata.con, plan_scan(metadata, found, at))
            assert sorted(map(repr, rows)) == expected, f"at snapshot {at}"
            assert count(metadata, found, at) == len(expected), f"at snapshot {at}"


@catalogs()
def test_sqlite_tables_are_scanned_by_one_thread(lake: DuckLake) -> None:
    # Threads that scan tables of one SQLite connection at the same time can crash the process.
    threads = "SELECT current_setting('threads')"
    with open_session(lake.config, entering=False) as session:
        usual = session.instance.root.execute(threads).fetchone()
        with reading(session, "Reading") as metadata:
            expected = (1,) if lake.config.catalog.type == "sqlite" else usual
            assert metadata.con.execute(threads).fetchone() == expected
            with session.instance.all_threads():
                assert metadata.con.execute(threads).fetchone() == usual
            assert metadata.con.execute(threads).fetchone() == expected
        assert session.instance.root.execute(threads).fetchone() == usual


# --- the state at a snapshot ---------------------------------------------------------------------------------------

STEPS = [
    "INSERT INTO t (k, v) SELECT range, 'row ' || range FROM range({n}, {n} + 40)",
    "INSERT INTO t (k, v) VALUES ({n}, 'é'), ({n} + 1, NULL), ({n} + 2, '')",
    "INSERT INTO t (k, v) SELECT range, 'other' FROM range({n}, {n} + 15)",
    "DELETE FROM t WHERE k % 7 = {m}",
    "DELETE FROM t WHERE k BETWEEN {n} - 20 AND {n} - 18",
    "DELETE FROM t WHERE k < {n} - 60",
    "UPDATE t SET v = v || '!' WHERE k % 5 = {m}",
    "UPDATE t SET v = 'one' WHERE k = {n} - 3",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
    # Flushed right before, because the engine's flush would write a second delete file for a rewritten file.
    "CALL ducklake_flush_inlined_data('lake'); CALL ducklake_rewrite_data_files('lake', delete_threshold => 0.1)",
    "ALTER TABLE t SET PARTITIONED BY (bucket(3, v))",
    "ALTER TABLE t RESET PARTITIONED BY",
]
# No promotions: on Postgres, a later UPDATE breaks the engine (`Vector::Reference used on vector of different type`).
ALTERATIONS = [
    "ALTER TABLE t ADD COLUMN extra DECIMAL(8, 2) DEFAULT 1.50",
    "ALTER TABLE t RENAME COLUMN extra TO more",
    "ALTER TABLE t ADD COLUMN gone INTEGER",
    "ALTER TABLE t DROP COLUMN gone",
    "ALTER TABLE t ADD COLUMN gone VARCHAR DEFAULT 'another'",
]


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.full) for n in range(2, 6))])
@catalogs(sql_writes=True)
def test_a_scan_plan_reads_the_same_rows_as_the_engine_at_every_snapshot(lake: DuckLake, seed: int) -> None:
    pick, alterations = random.Random(seed), list(ALTERATIONS)
    lake.execute(["CREATE TABLE t (k INTEGER, v VARCHAR)", STEPS[0].format(n=0)]).raise_for_error()
    for step in range(1, 21):
        if alterations and pick.random() < 0.25:
            sql = alterations.pop(0)
        else:
            sql = pick.choice(STEPS).format(n=step * 10, m=pick.randrange(5))
        lake.execute(sql).raise_for_error()
    check_every_snapshot(lake, 1)


NESTED_STEPS = [
    """INSERT INTO t SELECT r, {a: r, b: [{c: DATE '2024-01-01', d: 'x'}]}, [r, r + 1], MAP {'k': {q: r}}
       FROM range(30) x(r)""",
    "INSERT INTO t VALUES (100, NULL, NULL, NULL), (101, {a: 1, b: NULL}, [], MAP {})",
    "DELETE FROM t WHERE i < 4",
    "ALTER TABLE t ALTER s TYPE STRUCT(a BIGINT, b STRUCT(c DATE, d VARCHAR)[])",
    "ALTER TABLE t ADD COLUMN s.y INTEGER DEFAULT 4",
    "INSERT INTO t VALUES (200, {a: 7, b: [], y: 8}, [1], MAP {'x': {q: 1}})",
    "ALTER TABLE t RENAME COLUMN s.a TO renamed",
    "ALTER TABLE t DROP COLUMN l",
    "INSERT INTO t SELECT r, {renamed: r, b: NULL, y: r}, MAP {} FROM range(300, 330) x(r)",
    "UPDATE t SET i = i + 1000 WHERE i > 320",
    "CALL ducklake_flush_inlined_data('lake')",
    "CALL ducklake_merge_adjacent_files('lake')",
]


@catalogs(sql_writes=True)
def test_nested_columns_of_earlier_schemas_are_read_under_the_current_schema(lake: DuckLake) -> None:
    shape = (
        "i INTEGER, s STRUCT(a INTEGER, b STRUCT(c DATE, d VARCHAR)[]), l INTEGER[], m MAP(VARCHAR, STRUCT(q INTEGER))"
    )
    lake.execute([f"CREATE TABLE t ({shape})", *NESTED_STEPS]).raise_for_error()
    check_every_snapshot(lake, 1)


@catalogs(sql_writes=True)
def test_time_travel_before_a_merge_reads_the_merged_file_correctly(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute("CREATE TABLE t (i INTEGER)").raise_for_error()
    for n in range(4):
        lake.execute(f"INSERT INTO t SELECT range FROM range({n * 10}, {n * 10 + 10})").raise_for_error()
    lake.execute(
        ["CALL ducklake_merge_adjacent_files('lake')", "DELETE FROM t WHERE i % 3 = 0", "DELETE FROM t WHERE i % 5 = 0"]
    ).raise_for_error()
    (file,) = plan(lake).files
    assert file.partial_max == 5
    assert [delete.partial_max for delete in file.deletes] == [
        8
    ]  # the second delete file has the snapshot of each deletion
    check_every_snapshot(lake, 1)


@catalogs(sql_writes=True)
def test_a_flushed_delete_file_applies_each_deletion_from_its_own_snapshot(lake: DuckLake) -> None:
    lake.execute(
        [
            "CREATE TABLE t AS SELECT range AS i FROM range(6)",
            "DELETE FROM t WHERE i = 1",
            "DELETE FROM t WHERE i = 2",
            "CALL ducklake_flush_inlined_data('lake')",
        ]
    ).raise_for_error()
    (deletes,) = plan(lake, snapshot=2).files[0].deletes
    # The engine records the snapshot of each deletion, but not that there are several.
    assert (deletes.begin_snapshot, deletes.partial_max, deletes.later) == (2, None, True)
    assert not plan(lake).files[0].deletes[0].later
    check_every_snapshot(lake, 1)


@catalogs(sql_writes=True)
def test_two_live_delete_files_of_a_data_file_both_apply(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute(["CREATE TABLE t AS SELECT range AS i FROM range(20)", "DELETE FROM t WHERE i < 3"]).raise_for_error()
    before = plan(lake).files[0].deletes[0]
    lake.execute("DELETE FROM t WHERE i < 6").raise_for_error()
    with lake.connect_metadata(read_only=False) as con:
        # The result of two concurrent deletes.
        con.execute(f"""
            INSERT INTO ducklake_delete_file (delete_file_id, table_id, begin_snapshot, data_file_id, path,
                path_is_relative, format, delete_count, file_size_bytes, footer_size)
            SELECT 99, table_id, 2, data_file_id, '{before.path.replace("'", "''")}', false, 'parquet', 3, 100, 10
            FROM ducklake_delete_file LIMIT 1""")
    assert len(plan(lake).files[0].deletes) == 2
    assert read_plan(lake, "t") == sorted([(i,) for i in range(6, 20)], key=repr)
    with opened(lake) as metadata:
        assert count(metadata, metadata.table(table_name("t"), 3), 3) == 14


# --- inlined rows and deletions -------------------------------------------------------------------------------------

SIMPLE = {
    "b": ("BOOLEAN", "true"),
    "i8": ("TINYINT", "-3"),
    "u64": ("UBIGINT", "18446744073709551615"),
    "dec": ("DECIMAL(38,10)", "1.0000000001"),
    "f": ("FLOAT", "0.1"),
    "d": ("DOUBLE", "1e300"),
    "dt": ("DATE", "'2024-02-29'"),
    "ts": ("TIMESTAMP", "'2024-01-15 12:30:00'"),
    "tz": ("TIMESTAMPTZ", "'2024-01-15 12:30:00+02'"),
    "tm": ("TIME", "'12:30:00.5'"),
    "ttz": ("TIMETZ", "'12:30:00+01'"),
    "iv": ("INTERVAL", "'3 days'"),
    "v": ("VARCHAR", "'häp''py'"),
    "bl": ("BLOB", "'\\xAA\\x00b'"),
    "u": ("UUID", "'ffffffff-0000-0000-0000-000000000001'"),
    "j": ("JSON", """'{"a": "é"}'"""),
}
# Values that MySQL's own types cannot store, or store only approximately.
MORE = {
    "h": ("HUGEINT", "170141183460469231731687303715884105727"),
    "nan": ("DOUBLE", "'nan'"),
    "inf": ("FLOAT", "'-inf'"),
    "far": ("DATE", "'infinity'"),
    "fine": ("TIMESTAMP", "'2024-01-15 12:30:00.123456'"),
    "finer": ("TIMESTAMP_NS", "'2024-01-15 12:30:00.123456789'"),
    "sec": ("TIMESTAMP_S", "'2024-01-15 12:30:00'"),
    "ms": ("TIMESTAMP_MS", "'2024-01-15 12:30:00.5'"),
    "st": ("STRUCT(x INTEGER, y VARCHAR)", """{x: 1, y: 'a, "b" {c}'}"""),
    "l": ("VARCHAR[]", "['a', 'b,c', NULL, 'NULL', '', ' x ', 'it''s']"),
    "m": ("MAP(VARCHAR, INTEGER)", "MAP {'a=b': 1}"),
    "deep": ("STRUCT(q STRUCT(z DATE)[])", "{q: [{z: DATE '2024-01-01'}]}"),
}


@catalogs()
def test_inlined_rows_of_every_type_equal_those_that_the_engine_reads(lake: DuckLake, backend: Backend) -> None:
    kinds = SIMPLE | (MORE if backend.catalog.sql_writes else {})
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items())
    values = ", ".join(value for _, value in kinds.values())
    empty = ", ".join("NULL" for _ in kinds)
    script = [f"CREATE TABLE t ({columns})", f"INSERT INTO t VALUES ({values}), ({empty})"]
    with lake.connect() as con:  # the engine, which inlines rows on MySQL, too
        for statement in script:
            con.execute(statement)
    assert plan(lake).files == ()
    check_every_snapshot(lake, 1)


@catalogs(sql_writes=True)
def test_inlined_rows_of_earlier_schemas_get_current_names_types_and_defaults(lake: DuckLake) -> None:
    lake.execute(
        [
            "CREATE TABLE t (i INTEGER, old VARCHAR, dropped INTEGER)",
            "INSERT INTO t VALUES (1, 'a', 5)",
            "ALTER TABLE t ALTER i TYPE BIGINT",
            "ALTER TABLE t RENAME COLUMN old TO new",
            "ALTER TABLE t DROP COLUMN dropped",
            "ALTER TABLE t ADD COLUMN dropped VARCHAR DEFAULT 'it''s'",
            "INSERT INTO t VALUES (5000000000, 'b', 'x')",
        ]
    ).raise_for_error()
    assert read_plan(lake, "t") == [(1, "a", "it's"), (5000000000, "b", "x")]
    assert len(plan(lake).inlined) > 1
    check_every_snapshot(lake, 1)


@catalogs(shared=True)
def test_a_plan_sees_the_first_inlined_deletions_of_another_session(make_lake: MakeLake) -> None:
    """The first such delete creates the table of inlined deletions. MySQL's client does not notice a new table."""
    lake, other = make_lake(), make_lake(alias="elsewhere")
    with lake.connect() as con:
        con.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)")
    with opened(lake) as metadata:
        table = metadata.table(table_name("t"), 1)
        assert count(metadata, table, 1) == 50
        with other.connect() as con:
            con.execute("DELETE FROM t WHERE i < 2")
        metadata.con.execute("BEGIN")
        found = plan_scan(metadata, table, 2)
        assert found.inlined_deletes == {found.files[0].data_file_id: (0, 1)}
        assert count(metadata, table, 2) == 48
        assert len(rows_of(metadata.con, found)) == 48
        assert plan_scan(metadata, table, 1).inlined_deletes == {}
        metadata.con.execute("COMMIT")


@catalogs()
def test_a_plan_inside_a_transaction_sees_its_own_writes(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
    with opened(lake) as metadata:
        metadata.con.execute("BEGIN")
        name = metadata.table_sql("ducklake_data_file")
        metadata.con.execute(f"UPDATE {name} SET record_count = 51 WHERE data_file_id = 0")
        table = metadata.table(table_name("t"), 1)
        assert [file.record_count for file in plan_scan(metadata, table, 1, where="i = 7").files] == [51]
        assert count(metadata, table, 1) == 51
        metadata.con.execute("ROLLBACK")
        assert count(metadata, table, 1) == 50


# --- files of other engines -----------------------------------------------------------------------------------------


@catalogs(sql_writes=True)
def test_files_without_field_ids_are_read_by_their_name_mapping(lake: DuckLake, tmp_path: Any) -> None:
    folder = tmp_path / "foreign"
    with lake.connect() as con:
        con.execute("CREATE TABLE t (i INTEGER, s STRUCT(a INTEGER, b VARCHAR), l VARCHAR[], p VARCHAR, n INTEGER)")
        con.execute("ALTER TABLE t RENAME COLUMN n TO later")
        con.execute("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 42")
        for value in ("a%20b", "__HIVE_DEFAULT_PARTITION__"):
            (folder / f"p={value}").mkdir(parents=True)
            select = "SELECT r::SMALLINT AS I, {b: 'x', a: r::INTEGER} AS s, ['é'] AS l, 7::TINYINT AS later"
            con.execute(f"COPY ({select} FROM range(3) x(r)) TO '{folder}/p={value}/f.parquet'")
        con.execute(
            f"CALL ducklake_add_data_files('lake', 't', '{folder}/*/*.parquet', allow_missing => true,"
            " hive_partitioning => true)"
        )
        con.execute("ALTER TABLE t RENAME COLUMN i TO j")
        con.execute("ALTER TABLE t RENAME COLUMN s.a TO aa")
        con.execute("DELETE FROM t WHERE j = 1 AND p = 'a b'")
    expected = [(i, {"aa": i, "b": "x"}, ["é"], "a b", 7, 42) for i in (0, 2)]
    expected += [(i, {"aa": i, "b": "x"}, ["é"], None, 7, 42) for i in range(3)]  # type: ignore[misc]
    assert read_plan(lake, "t") == sorted(expected, key=repr)
    assert read_plan(lake, "t", where="p IS NULL AND more = 42") == sorted(expected[2:], key=repr)


def test_encrypted_files_are_read(tmp_path: Any) -> None:
    lake = DuckLake.local(tmp_path / "lake", encrypted=True, data_inlining_row_limit=0, extensions=["httpfs"])
    lake.execute("CREATE TABLE t AS SELECT range AS i FROM range(20)").raise_for_error()
    lake.execute("DELETE FROM t WHERE i > 3").raise_for_error()
    assert read_plan(lake, "t") == [(0,), (1,), (2,), (3,)]


# --- pruning --------------------------------------------------------------------------------------------------------


@catalogs()
def test_files_that_cannot_match_the_condition_are_pruned(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (id INTEGER, region VARCHAR, ts TIMESTAMP, price DOUBLE)").raise_for_error()
    lake.execute("ALTER TABLE t SET PARTITIONED BY (region, year(ts), month(ts), bucket(4, id))").raise_for_error()
    lake.execute("""
        INSERT INTO t
        SELECT i, ['eu', 'us', NULL][1 + i % 3], TIMESTAMP '2023-01-01' + INTERVAL 1 DAY * (i % 730), i / 2
        FROM range(6000) x(i)""").raise_for_error()
    with opened(lake) as metadata:
        at = metadata.latest().snapshot_id
        table = metadata.table(table_name("t"), at)
        everything = len(plan_scan(metadata, table, at).files)
        assert everything == 3 * 24 * 4
        for where, kept, whole in [
            ("region = 'eu'", 96, 96),
            ("region IS NULL", 96, 96),
            ("region <> 'eu'", 96, 96),
            ("region LIKE 'e%' OR region IS NULL", 192, 192),
            ("NOT (region = 'eu')", 96, 96),
            ("year(ts) = 2024", 144, 144),
            ("month(ts) IN (1, 2)", 48, 48),
            ("ts >= '2024-02-01' AND ts < '2024-03-01'", 12, 12),
            ("ts::DATE = DATE '2024-02-05'", 12, 0),
            ("region = 'eu' AND ts >= TIMESTAMP '2024-12-01'", 4, 4),
            ("price < 0", 0, 0),
            ("price IS NULL", 0, 0),
            ("price >= 0", 288, 288),
            ("id = 17", 3, 0),  # of 12 files whose bounds fit, those in its bucket
        ]:
            judged = classify(metadata, table, at, where)
            assert (len(judged), sum(matches_all for _, matches_all in judged)) == (kept, whole), where


@catalogs()
def test_order_by_with_a_limit_prunes_files_beyond_the_limit(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute("CREATE TABLE t (part INTEGER, n INTEGER, text VARCHAR)").raise_for_error()
    lake.execute("ALTER TABLE t SET PARTITIONED BY (part)").raise_for_error()
    lake.execute("""
        INSERT INTO t SELECT i // 100, CASE WHEN i <> 555 THEN i END, repeat('long ', 60) || i FROM range(1000) x(i)
        """).raise_for_error()

    def parts(order: str, limit: int, where: str | None = None) -> list[str | None]:
        found = plan(lake, order_by=[order], limit=limit, where=where).files
        return sorted((file.partition_values[0] for file in found), key=str)

    assert parts("n NULLS LAST", 100) == ["0"]
    assert parts("n NULLS LAST", 101) == ["0", "1"]
    # Without NULLS FIRST or LAST, a setting of the engine sorts NULLs, so the file with a NULL stays.
    assert parts("n DESC", 5) == ["5", "9"]
    assert parts("n", 5) == ["0", "5"]
    assert parts("n DESC NULLS LAST", 5) == ["9"]
    assert parts("n DESC NULLS FIRST", 5) == ["5", "9"]
    # Rows that may fail the condition do not count towards the limit.
    assert parts("n NULLS LAST", 5, "n % 2 = 0") == [str(n) for n in range(10)]
    assert parts("n NULLS LAST", 5, "n >= 300") == ["3"]
    assert parts("n NULLS LAST", 5, "n >= 350") == ["3", "4"]
    # Truncated bounds of long texts overlap.
    assert len(parts("text", 1)) > 1
    lake.execute("DELETE FROM t WHERE n < 3").raise_for_error()
    assert parts("n NULLS LAST", 5) == ["0", "1"]


@catalogs()
def test_a_plan_lists_only_the_needed_columns(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t AS SELECT 1 AS a, 2 AS b, 3 AS c, 4 AS d FROM range(20)").raise_for_error()
    found = plan(lake, columns=["C", "a"], where="b > 0", order_by=["d"], limit=1)
    assert [column.name for column in found.columns] == ["c", "a"]
    assert [column.name for column in found.needed] == ["a", "b", "c", "d"]
    assert [column.name for column in plan(lake, columns=["c"]).needed] == ["c"]
    with pytest.raises(ObjectNotFoundError, match="no column `bb`"):
        plan(lake, columns=["bb"])
