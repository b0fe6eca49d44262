"""The native flush of inlined rows and deletions leaves the rows of every snapshot unchanged for every reader."""

from contextlib import suppress
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.catalog.lifecycle import flush
from ducklake_orch.catalog.metadata import INEXACT_IN_PARQUET, ducklake_type
from ducklake_orch.engine.quoting import literal
from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend, catalogs
from tests.support.fault_points import dies_at, once_at
from tests.support.lakes import MakeLake

pytestmark = pytest.mark.every_catalog

on_sqlite, on_postgres, on_both = (
    pytest.mark.parametrize(
        "backend", [pytest.param(Backend(kind, LOCAL), id=kind.name) for kind in kinds], indirect=True
    )
    for kinds in ([SQLITE], [POSTGRES], [SQLITE, POSTGRES])
)
FORGETTING = MaintenancePolicy.model_validate({"expire": {"older_than": "0s", "retain_last": 1}, "force": True})


def run(lake: DuckLake, *statements: str) -> list[tuple[Any, ...]]:
    """Run statements in the engine, and return the rows of the last one."""
    with lake.connect() as con:
        for statement in statements:
            cursor = con.execute(statement)
        return [tuple(row) for row in cursor.fetchall()]


def rows_by_snapshot(lake: DuckLake, last: int, table: str = "t") -> dict[int, list[str]]:
    """Return the rows that the engine reads at every snapshot up to `last`."""
    by_snapshot = {}
    for at in range(last + 1):
        with suppress(duckdb.Error):  # the table does not exist yet
            rows = run(lake, f"SELECT rowid, * FROM {table} AT (VERSION => {at})")
            by_snapshot[at] = sorted(map(repr, rows))
    return by_snapshot


def latest(lake: DuckLake) -> int:
    return lake.snapshots(limit=1)[0].snapshot_id


def flush_steps(lake: DuckLake, table: str = "t") -> list[Any]:
    """Flush a table, and return the steps of the run."""
    return list(lake.maintain(operations=["flush"], tables=[table]).raise_for_error().operations)


def check_lake(lake: DuckLake) -> None:
    assert lake.fsck(deep=True, storage=True).findings == []


# --- rows ------------------------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE, POSTGRES], sql_writes=True)
@pytest.mark.parametrize("key", ["place", "doc", "bucket(4, place)", "bucket(4, doc)"])
def test_rows_deleted_while_inlined_stay_deleted_after_a_flush(lake: DuckLake, key: str) -> None:
    row = """'it''s São "x" \\', '{"a": "it''s é"}'"""
    inserted = f"INSERT INTO t VALUES ({row}, 1), ({row}, 2)"
    run(lake, "CREATE TABLE t (place VARCHAR, doc JSON, n INTEGER)", f"ALTER TABLE t SET PARTITIONED BY ({key})")
    run(lake, inserted, "DELETE FROM t WHERE n = 1")
    before = rows_by_snapshot(lake, latest(lake))
    (step,) = flush_steps(lake)
    assert (step.status, step.rows) == ("done", 2)
    assert rows_by_snapshot(lake, max(before)) == before
    assert run(lake, "SELECT n FROM t") == [(2,)]
    assert run(lake, f"CALL ducklake_flush_inlined_data('{lake.config.alias}')") == []
    check_lake(lake)


@catalogs(sql_writes=True)
def test_rows_inlined_before_a_bucket_key_are_found_by_it(lake: DuckLake) -> None:
    run(
        lake,
        "CREATE TABLE t (id BIGINT, s VARCHAR)",
        "INSERT INTO t SELECT range, 'x' FROM range(9)",
        "ALTER TABLE t SET PARTITIONED BY (bucket(4, id))",
        "INSERT INTO t VALUES (2, 'y'), (9, 'y')",
    )
    flush_steps(lake)
    assert [run(lake, f"SELECT count(*) FROM t WHERE id = {n}") for n in (2, 7, 9)] == [[(2,)], [(1,)], [(1,)]]
    run(lake, "DELETE FROM t WHERE id = 2")
    assert run(lake, "SELECT count(*) FROM t") == [(9,)]
    check_lake(lake)


@catalogs(sql_writes=True)
def test_a_flush_lays_out_rows_by_keys_added_or_widened_later(lake: DuckLake) -> None:
    run(
        lake,
        "CREATE TABLE t (id INTEGER, s VARCHAR)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (NULL, '')",
        "ALTER TABLE t ALTER id TYPE BIGINT",
        "ALTER TABLE t ADD COLUMN region VARCHAR DEFAULT 'eu é'",
        "ALTER TABLE t RENAME s TO name",
        "ALTER TABLE t SET PARTITIONED BY (region, bucket(3, id))",
        "INSERT INTO t VALUES (3, 'c', 'us')",
        "DELETE FROM t WHERE id = 2",
    )
    before = rows_by_snapshot(lake, latest(lake))
    flush_steps(lake)
    assert rows_by_snapshot(lake, max(before)) == before
    assert run(lake, "SELECT name FROM t WHERE id = 1 AND region = 'eu é'") == [("a",)]
    for _ in range(2):  # two more files of the same partition, so that the merge has work
        run(lake, "INSERT INTO t VALUES (1, 'd', 'eu é')")
        flush_steps(lake)
    lake.maintain({"merge": {"min_files": 2}}, operations=["merge"]).raise_for_error()
    assert rows_by_snapshot(lake, max(before)) == before
    check_lake(lake)


@catalogs(sql_writes=True)
def test_rows_inlined_under_an_unlisted_schema_version_keep_their_values(make_lake: MakeLake) -> None:
    lake, inlining_lake = make_lake(data_inlining_row_limit=0), make_lake(data_inlining_row_limit=10)
    run(lake, "CREATE TABLE t (id BIGINT)", "INSERT INTO t SELECT range FROM range(20)")
    run(lake, "ALTER TABLE t ADD COLUMN s VARCHAR")
    run(inlining_lake, "UPDATE t SET s = 'known' WHERE id = 3")
    run(lake, "ALTER TABLE t ADD COLUMN more INTEGER")
    flush_steps(lake)
    assert run(lake, "SELECT id, s FROM t WHERE s IS NOT NULL") == [(3, "known")]
    assert run(lake, "SELECT count(*), count(DISTINCT id) FROM t") == [(20, 20)]


# --- types -----------------------------------------------------------------------------------------------------------

TYPES = {
    "BOOLEAN": "true",
    "TINYINT": "-128",
    "SMALLINT": "-32768",
    "INTEGER": "-2147483648",
    "BIGINT": "-9223372036854775808",
    "UTINYINT": "255",
    "USMALLINT": "65535",
    "UINTEGER": "4294967295",
    "UBIGINT": "18446744073709551615",
    "HUGEINT": "9007199254740993",
    "UHUGEINT": "9007199254740993",
    "DECIMAL(38,10)": "-9999999999999999999999999999.9999999999",
    "FLOAT": "'-0.0'",
    "DOUBLE": "5e-324",
    "VARCHAR": "'it''s é𝒳\\' || chr(10) || chr(9)",
    "JSON": """'{"a": "it''s"}'""",
    "BLOB": r"'\x00\xFF\x27'::BLOB",
    "UUID": "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
    "DATE": "'5877642-06-25 (BC)'",
    "TIME": "'23:59:59.999999'",
    "TIMETZ": "'12:00:00.123456+02'",
    "INTERVAL": "INTERVAL '1 month 2 days 3.123456 seconds'",
    "TIMESTAMP": "'290309-12-22 (BC) 00:00:00'",
    "TIMESTAMP_S": "'290309-12-22 (BC) 00:00:00'",
    "TIMESTAMP_MS": "'290309-12-22 (BC) 00:00:00'",
    "TIMESTAMP_NS": "'2024-01-01 00:00:00.123456789'",
    "TIMESTAMPTZ": "'infinity'",
    "INTEGER[]": "[1, NULL]",
    "STRUCT(a INTEGER, b VARCHAR)": "{'a': 1, 'b': NULL}",
    "MAP(VARCHAR, INTEGER)": "MAP {'a': NULL}",
}


def test_the_inexact_types_are_those_that_parquet_does_not_store_exactly(tmp_path: Any) -> None:
    inexact = set()
    with duckdb.connect() as con:
        for kind, value in TYPES.items():
            path = f"'{tmp_path}/one.parquet'"
            con.execute(f"COPY (SELECT ({value})::{kind} AS v) TO {path}")
            ((kept,),) = con.execute(
                f"SELECT v::{kind}::VARCHAR IS NOT DISTINCT FROM ({value})::{kind}::VARCHAR FROM read_parquet({path})"
            ).fetchall()
            inexact |= set() if kept else {kind}
    words = {"HUGEINT": "int128", "UHUGEINT": "uint128", "TIMETZ": "timetz", "INTERVAL": "interval"}
    # A VARIANT may contain values of these types.
    assert {words[kind] for kind in inexact} | {ducklake_type("VARIANT")} == set(INEXACT_IN_PARQUET)


@catalogs(sql_writes=True)
def test_every_type_is_flushed_exactly_or_stays_inlined(lake: DuckLake) -> None:
    names = {kind: f"t{number}" for number, kind in enumerate(TYPES)}
    run(
        lake,
        "BEGIN",
        *(f"CREATE TABLE {name} (k INTEGER, v {kind})" for kind, name in names.items()),
        *(f"INSERT INTO {names[kind]} VALUES (1, {value}), (2, NULL)" for kind, value in TYPES.items()),
        "COMMIT",
    )
    everything = " UNION ALL ".join(f"SELECT '{name}', rowid, k, v::VARCHAR FROM {name}" for name in names.values())
    before = sorted(run(lake, everything), key=repr)
    report = lake.maintain(operations=["flush"]).raise_for_error()
    assert sorted(run(lake, everything), key=repr) == before
    skipped = {step.table: step.reason for step in report.operations if step.status == "skipped"}
    assert set(skipped) == {f"main.{names[kind]}" for kind in ("HUGEINT", "UHUGEINT", "TIMETZ", "INTERVAL")}
    assert (
        skipped[f"main.{names['HUGEINT']}"]
        == "2 inlined rows stay in the catalog: Parquet cannot hold `v HUGEINT` exactly"
    )
    (health,) = (table for table in lake.health().tables if table.table == f"main.{names['HUGEINT']}")
    assert (health.metrics["inlined_rows"], health.metrics["inlined_rows_staying"]) == (2, 2)
    assert "HUGEINT" in health.metrics["staying_reason"]
    check_lake(lake)


@on_sqlite
def test_rows_that_must_stay_inlined_do_not_lower_the_grade(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (v HUGEINT)", "INSERT INTO t VALUES (1), (2), (3)")
    report = lake.health({"health": {"inlined_rows": (1, 2)}})
    assert [(table.table, table.grade) for table in report.tables] == [("main.t", "ok")]


@pytest.mark.parametrize(
    ("kind", "infinite", "finite"),
    [
        ("TIMESTAMP_S", "'infinity'", "'2024-01-01'"),
        ("TIMESTAMP_S[]", "['2024-01-01', 'infinity']", "['2024-01-01']"),
        ("MAP(VARCHAR, TIMESTAMP_S)", "MAP {'a': '-infinity'}", "MAP {'a': '2024-01-01'}"),
        ("STRUCT(a TIMESTAMP_S)[]", "[{a: '-infinity'}]", "[{a: '2024-01-01'}]"),
    ],
)
@on_both
def test_an_infinite_timestamp_s_stays_inlined_and_other_rows_are_flushed(
    lake: DuckLake, kind: str, infinite: str, finite: str
) -> None:
    run(lake, f"CREATE TABLE t (v {kind})", f"INSERT INTO t VALUES ({infinite}), ({finite}), (NULL)")
    before = rows_by_snapshot(lake, latest(lake))
    (step,) = flush_steps(lake)
    assert step.rows == 2
    assert "1 rows stay" in step.reason
    assert rows_by_snapshot(lake, max(before)) == before


@on_both
def test_a_flush_is_replanned_if_the_partition_keys_change_before_its_commit(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t SELECT range FROM range(9)")
    once_at(monkeypatch, "files.written", lambda: run(lake, "ALTER TABLE t SET PARTITIONED BY (bucket(4, i))"))
    assert sum(step.rows for step in flush_steps(lake)) == 9
    assert [run(lake, f"SELECT i FROM t WHERE i = {i}") for i in range(9)] == [[(i,)] for i in range(9)]
    check_lake(lake)


@catalogs(quick=[SQLITE], sql_writes=True)
def test_a_flush_of_an_older_definition_keeps_the_statistics_of_the_table(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (i BIGINT, gone BIGINT)", "INSERT INTO t VALUES (1, 1)")
    run(lake, "ALTER TABLE t DROP gone", "ALTER TABLE t ADD COLUMN j BIGINT")
    lake.write(pa.table({"i": range(2, 22), "j": range(5, 25)}), "t", mode="append")
    (step,) = flush_steps(lake)
    assert step.rows == 1
    with lake.connect_metadata() as con:
        assert con.execute("SELECT record_count, next_row_id FROM ducklake_table_stats").fetchall() == [(21, 21)]
        size = "SELECT sum(file_size_bytes) FROM ducklake_data_file"
        assert con.execute(f"SELECT file_size_bytes = ({size}) FROM ducklake_table_stats").fetchall() == [(True,)]
        bounds = "SELECT min_value, max_value FROM ducklake_table_column_stats WHERE column_id = 1"
        assert con.execute(bounds).fetchall() == [("1", "21")]
    check_lake(lake)


# --- deletions -------------------------------------------------------------------------------------------------------


@catalogs(sql_writes=True)
def test_a_flush_of_deletions_alone_reports_their_number(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t SELECT range FROM range(100)")
    for numbers in ("3, 4", "5"):
        run(lake, f"DELETE FROM t WHERE i IN ({numbers})")
    before = rows_by_snapshot(lake, latest(lake))
    (planned,) = lake.plan_maintenance(operations=["flush"]).operations
    assert (planned.action, planned.rows, planned.deletions) == ("run", 0, 3)
    (step,) = flush_steps(lake)
    assert (step.status, step.rows, step.deletions, step.snapshot_id) == ("done", 0, 3, max(before) + 1)
    assert "3 deletions" in str(step)
    assert rows_by_snapshot(lake, max(before)) == before
    assert run(lake, f"CALL ducklake_flush_inlined_data('{lake.config.alias}')") == []
    check_lake(lake)


@catalogs(sql_writes=True)
def test_rewrite_and_merge_do_not_flush_if_flush_is_disabled(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (i BIGINT)")
    for start in (0, 100, 200):
        run(lake, f"INSERT INTO t SELECT range FROM range({start}, {start + 20})")
    run(lake, *(f"DELETE FROM t WHERE i IN ({n}, {n + 1}, {n + 2})" for n in (0, 3, 6, 9, 100)))
    run(lake, "INSERT INTO t VALUES (1000)", "DELETE FROM t WHERE i = 1000", "INSERT INTO t VALUES (1001)")
    before = rows_by_snapshot(lake, latest(lake))
    off = {"flush": {"enabled": False}, "rewrite": {"delete_threshold": 0.5}, "merge": {"min_files": 2}}
    report = lake.maintain(off, operations=["flush", "rewrite", "merge"]).raise_for_error()
    assert sorted((operation.operation, operation.status) for operation in report.operations) == [
        ("flush", "skipped"),
        ("merge", "done"),
        ("rewrite", "done"),
    ]
    assert lake.health().tables[0].metrics["inlined_rows"] == 1
    assert rows_by_snapshot(lake, max(before)) == before
    flush_steps(lake)
    assert rows_by_snapshot(lake, max(before)) == before
    check_lake(lake)


# --- slices, concurrent writes, and killed processes -----------------------------------------------------------------


@on_both
def test_a_flush_in_slices_moves_all_rows_and_deletions(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flush, "_ROWS_IN_ONE_SLICE", 4)
    monkeypatch.setattr(flush, "_FILES_IN_ONE_SLICE", 1)
    run(lake, "CREATE TABLE t (i BIGINT)")
    run(lake, *(f"INSERT INTO t SELECT range FROM range({start}, {start + 20})" for start in (100, 200)))
    run(lake, "DELETE FROM t WHERE i IN (100, 200)", "INSERT INTO t SELECT range FROM range(9)")
    run(lake, "UPDATE t SET i = 50 WHERE i = 5", "ALTER TABLE t ADD COLUMN s VARCHAR", "INSERT INTO t VALUES (9, 'x')")
    before = rows_by_snapshot(lake, latest(lake))
    (step,) = flush_steps(lake)
    assert (step.rows, step.deletions) == (11, 2)
    assert latest(lake) > max(before) + 2
    assert rows_by_snapshot(lake, max(before)) == before
    check_lake(lake)


@on_postgres
@pytest.mark.parametrize(
    "statement",
    [
        *("DELETE FROM t WHERE i = 1", "UPDATE t SET i = -1 WHERE i = 1", "DELETE FROM t WHERE i IN (1, 101)"),
        *("DELETE FROM t WHERE i = 101", "DELETE FROM t WHERE i BETWEEN 101 AND 150", "UPDATE t SET i = -i"),
        *("INSERT INTO t VALUES (5000)", "INSERT INTO t SELECT range FROM range(5000, 5100)"),
    ],
)
def test_a_flush_loses_no_concurrent_write_of_the_engine(make_lake: MakeLake, statement: str) -> None:
    lake, rival = make_lake(), make_lake(data_inlining_row_limit=10)
    run(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t SELECT range FROM range(100, 200)")
    run(lake, "INSERT INTO t VALUES (1), (2), (3)", "DELETE FROM t WHERE i IN (2, 102)")
    model = duckdb.connect()
    model.execute("CREATE TABLE t AS SELECT unnest([1, 3] || range(100, 200)) AS i; DELETE FROM t WHERE i = 102")
    with rival.connect() as con:
        con.execute("BEGIN")
        con.execute("FROM t").fetchall()
        con.execute(statement)
        flush_steps(lake)
        with suppress(duckdb.Error):
            con.execute("COMMIT")
            model.execute(statement)
    wanted = sorted(model.execute("FROM t").fetchall())
    assert run(lake, "FROM t ORDER BY i") == wanted
    assert sorted(lake.read("t").column("i").to_pylist()) == [i for (i,) in wanted]
    check_lake(lake)


@on_sqlite
def test_a_killed_flush_keeps_the_rows_of_every_snapshot(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (i BIGINT)", "INSERT INTO t SELECT range FROM range(100, 200)")
    run(lake, "INSERT INTO t VALUES (1), (2), (3)", "DELETE FROM t WHERE i IN (2, 102)")
    before = rows_by_snapshot(lake, latest(lake))
    number, died = 0, True
    while died:
        number += 1
        died = dies_at("files.written" if number == 1 else f"statement.{number - 1}", lambda: flush_steps(lake))
        assert rows_by_snapshot(lake, max(before)) == before
    assert number > 5
    assert lake.plan_maintenance(operations=["flush"]).totals["steps"] == 0
    assert lake.fsck(deep=True).findings == []


@on_both
def test_a_flush_removes_deleted_rows_that_no_snapshot_sees(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (i HUGEINT)", "INSERT INTO t VALUES (1), (2)", "DELETE FROM t WHERE i = 1")
    lake.maintain(FORGETTING, ["expire"]).raise_for_error()
    (step,) = flush_steps(lake)
    assert step.reason.startswith("1 inlined rows stay")
    assert run(lake, "FROM t") == [(2,)]


@catalogs(sql_writes=True)
def test_a_lake_with_automatic_migration_is_flushed(make_lake: MakeLake) -> None:
    make_lake().ensure_exists()
    lake = make_lake(automatic_migration=True)
    run(lake, "CREATE TABLE t (a INTEGER)", "INSERT INTO t VALUES (1), (2), (3)", "DELETE FROM t WHERE a = 2")
    lake.maintain(operations=["flush"]).raise_for_error()
    assert lake.table("t").stats().inlined_rows == 0
    assert run(lake, "FROM t ORDER BY a") == [(1,), (3,)]
    lake.maintain(FORGETTING, operations=["expire"]).raise_for_error()
    assert lake.fsck(deep=True).findings == []


@on_both
def test_a_flush_sorts_rows_by_the_sort_keys_of_their_table(lake: DuckLake) -> None:
    run(lake, "CREATE TABLE t (i INTEGER, s VARCHAR)", "ALTER TABLE t SET SORTED BY (lower(s) DESC, i)")
    run(lake, "INSERT INTO t VALUES (1, 'b'), (2, 'C')", "INSERT INTO t VALUES (4, 'a'), (3, 'B'), (0, 'b')")
    flush_steps(lake)
    (file,) = lake.table("t").files()
    assert run(lake, f"SELECT i FROM {literal(file.path)}") == [(2,), (0,), (1,), (3,), (4,)]
    check_lake(lake)
