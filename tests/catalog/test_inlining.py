"""`inline="auto"` inlines small writes, whose rows the engine reads, changes and flushes."""

from collections.abc import Callable
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import DUCKDB, LOCAL, MYSQL, POSTGRES, SQLITE, Backend
from tests.support.lakes import MakeLake
from tests.support.refusals import refused

CATALOGS = [Backend(catalog, LOCAL) for catalog in (DUCKDB, SQLITE, POSTGRES)]
inlining_catalogs = pytest.mark.parametrize("backend", CATALOGS, ids=str, indirect=True)
# A short form of `lake.write(…, mode="append", inline="auto")`.
Append = Callable[..., Any]


def rows(lake: DuckLake, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in lake.execute(sql).raise_for_error().rows]


def numbers(*values: int) -> pa.Table:
    return pa.table({"i": pa.array(values, pa.int64())})


def flush(lake: DuckLake) -> None:
    lake.execute(f"CALL ducklake_flush_inlined_data('{lake.config.alias}')").raise_for_error()


@inlining_catalogs
def test_small_appends_are_inlined_and_both_engines_read_them(lake: DuckLake) -> None:
    lake.write(numbers(1, 2), "t", mode="append", inline="auto")
    result = lake.write(numbers(3), "t", mode="append", inline="auto")
    assert (result.rows_written, result.files_added, result.bytes_written) == (1, 0, 0)
    assert lake.snapshots(limit=1)[0].changes == ["inlined_insert:1"]
    assert lake.table("t").files() == []
    assert lake.table("t").count() == 3
    assert rows(lake, "FROM t ORDER BY i") == [(1,), (2,), (3,)]
    assert sorted(lake.read("t").column("i").to_pylist()) == [1, 2, 3]
    assert rows(lake, "SELECT i FROM t WHERE i > 2") == [(3,)]
    assert rows(lake, f"FROM t AT (VERSION => {result.previous_snapshot_id}) ORDER BY i") == [(1,), (2,)]
    assert lake.fsck(deep=True, storage=True).findings == []


@inlining_catalogs
def test_the_engine_changes_and_flushes_inlined_rows(lake: DuckLake) -> None:
    lake.write(numbers(1, 2, 3), "t", mode="append", inline="auto")
    lake.execute(["DELETE FROM t WHERE i = 2", "INSERT INTO t VALUES (4)", "UPDATE t SET i = 5 WHERE i = 3"])
    lake.write(numbers(6), "t", mode="append", inline="auto")
    assert rows(lake, "FROM t ORDER BY i") == [(1,), (4,), (5,), (6,)]
    flush(lake)
    lake.write(numbers(7), "t", mode="append", inline="auto")
    assert rows(lake, "FROM t ORDER BY i") == [(1,), (4,), (5,), (6,), (7,)]
    ids = [row[0] for row in rows(lake, "SELECT rowid FROM t")]
    assert len(set(ids)) == 5
    assert lake.fsck(deep=True, storage=True).findings == []


@inlining_catalogs
@pytest.mark.parametrize("made_by", ["engine", "us"])
def test_the_inlining_limit_of_the_engine_applies(lake: DuckLake, made_by: str) -> None:
    lake.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
    lake.execute(f"CALL {lake.config.alias}.set_option('data_inlining_row_limit', 7, table_name => 't')")
    for count in (6, 7, 8):
        if made_by == "engine":
            lake.execute(f"INSERT INTO t SELECT range FROM range({count})").raise_for_error()
        else:
            lake.write(numbers(*range(count)), "t", mode="append", inline="auto")
        assert (lake.snapshots(limit=1)[0].changes == ["inlined_insert:1"]) is (count <= 7)
    assert len(lake.table("t").files()) == 1
    assert lake.table("t").count() == 21


@inlining_catalogs
def test_rows_are_inlined_only_on_request(lake: DuckLake) -> None:
    assert lake.write(numbers(1), "t", mode="append").files_added == 1
    refused(errors.ConfigError, lambda: lake.write(numbers(1), "t", mode="append", inline="always"), "`inline`")


@inlining_catalogs
def test_inlined_values_of_every_type_are_unchanged(lake: DuckLake) -> None:
    kinds = {
        "BOOLEAN": "true",
        "TINYINT": "-128",
        "UBIGINT": "18446744073709551615",
        "BIGINT": "-9223372036854775808",
        "DECIMAL(38,10)": "-0.0000000001",
        "FLOAT": "'nan'",
        "DOUBLE": "1e-300",
        "VARCHAR": "'it''s ' || chr(10) || 'é𝒳'",
        "BLOB": r"'\x00\xFF'::BLOB",
        "JSON": """'{"a": "it''s"}'""",
        "UUID": "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
        "DATE": "'infinity'",
        "TIME": "'23:59:59.999999'",
        "TIMESTAMP": "'0044-03-15 (BC) 00:00:00'",
        "TIMESTAMP_NS": "'2024-01-01 00:00:00.123456789'",
        "TIMESTAMPTZ": "'2024-02-29 12:00:00+14'",
    }
    columns = ", ".join(f"c{n} {kind}" for n, kind in enumerate(kinds))
    lake.execute(f"CREATE TABLE t ({columns})").raise_for_error()
    values = ", ".join(f"({value})::{kind} AS c{n}" for n, (kind, value) in enumerate(kinds.items()))
    with lake.connect() as con:
        data = con.sql(f"SELECT {values} UNION ALL SELECT {', '.join('NULL' for _ in kinds)}").to_arrow_table()
    result = lake.write(data, "t", mode="append", inline="auto")
    assert result.files_added == 0
    same = " AND ".join(f"c{n} IS NOT DISTINCT FROM ({value})::{kind}" for n, (kind, value) in enumerate(kinds.items()))
    for _ in range(2):
        assert rows(lake, f"SELECT count(*) FROM t WHERE {same}") == [(1,)]
        assert rows(lake, "SELECT count(*) FROM t WHERE COLUMNS(*) IS NULL") == [(1,)]
        assert lake.read("t").num_rows == 2
        flush(lake)
    assert lake.fsck(deep=True, storage=True).findings == []


@inlining_catalogs
def test_partitions_of_inlined_rows_are_replaced(lake: DuckLake) -> None:
    def days(*values: tuple[int, int]) -> pa.Table:
        return pa.table({"day": [date(2024, 1, day) for day, _ in values], "i": [i for _, i in values]})

    lake.write(days((1, 1), (2, 2)), "t", mode="append", partition_by=["day"], inline="auto")
    result = lake.write(days((2, 3)), "t", mode="overwrite_partitions", inline="auto")
    assert (result.rows_removed, result.rows_written) == (1, 1)
    assert [(partition.values, partition.rows, partition.files) for partition in result.partitions] == [
        ({"day": "2024-01-02"}, 1, 0)
    ]
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(1,), (3,)]
    where = "day = '2024-01-01'"
    lake.write(days((1, 4)), "t", mode="replace_where", where=where, inline="auto")
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(3,), (4,)]
    with pytest.raises(errors.RowsOutsideError):
        lake.write(days((1, 5), (2, 5)), "t", mode="replace_where", where=where, inline="auto")
    lake.write(days((1, 6), (2, 6)), "t", mode="replace_where", where=where, outside="drop", inline="auto")
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(3,), (6,)]
    flush(lake)
    lake.write(days((3, 7)), "t", mode="overwrite", inline="auto")
    assert rows(lake, "SELECT i FROM t ORDER BY i") == [(7,)]
    assert lake.fsck(deep=True, storage=True).findings == []


@inlining_catalogs
def test_a_change_of_inlined_rows_leaves_their_history(lake: DuckLake) -> None:
    seen: dict[int, list[tuple[Any, ...]]] = {}
    for change in (
        lambda: lake.write(numbers(1, 2, 3), "t", mode="append", inline="auto"),
        lambda: lake.execute("DELETE FROM t WHERE i = 1").raise_for_error(),
        lambda: lake.delete("t", "i = 2"),
        lambda: lake.write(numbers(4), "t", mode="overwrite", inline="auto"),
        lambda: lake.write(numbers(5), "t", mode="overwrite"),
    ):
        change()
        seen[lake.snapshots(limit=1)[0].snapshot_id] = rows(lake, "FROM t ORDER BY i")
        assert {at: rows(lake, f"FROM t AT (VERSION => {at}) ORDER BY i") for at in seen} == seen
    assert list(seen.values()) == [[(1,), (2,), (3,)], [(2,), (3,)], [(3,)], [(4,)], [(5,)]]


@inlining_catalogs
def test_a_transaction_that_leaves_inlined_rows_alone_records_no_change_of_them(lake: DuckLake) -> None:
    lake.write(numbers(1, 2), "t", mode="append")
    lake.write(numbers(3), "t", mode="append", inline="auto")
    with lake.transaction() as tx:
        tx.delete("t", "i <= 2")
    assert lake.snapshots(limit=1)[0].changes == ["inserted_into_table:1", "deleted_from_table:1"]
    assert rows(lake, "FROM t") == [(3,)]


@inlining_catalogs
def test_inlined_rows_survive_added_and_renamed_columns(lake: DuckLake) -> None:
    lake.write(numbers(1), "t", mode="append", inline="auto")
    wider = pa.table({"i": [2], "s": ["x"]})
    lake.write(wider, "t", mode="append", schema_evolution="add", inline="auto")
    lake.execute(["ALTER TABLE t ADD COLUMN d BIGINT DEFAULT 9", "ALTER TABLE t RENAME s TO r"]).raise_for_error()
    lake.write(numbers(3), "t", mode="append", inline="auto")
    wanted = [(1, None, 9), (2, "x", 9), (3, None, 9)]
    assert rows(lake, "FROM t ORDER BY i") == wanted
    flush(lake)
    assert rows(lake, "FROM t ORDER BY i") == wanted
    assert lake.fsck(deep=True, storage=True).findings == []


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, LOCAL)], ids=str, indirect=True)
def test_an_open_connection_sees_rows_in_a_new_inlined_table(make_lake: MakeLake, backend: Backend) -> None:
    lake, options = make_lake(data_inlining_row_limit=0), {"threads": 1}
    lake.write(numbers(1), "t", mode="append")
    other = DuckLake(lake.config.model_copy(update={"settings": options, "data_inlining_row_limit": 5}))
    with lake.connect() as con:
        assert con.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
        assert other.write(numbers(2), "t", mode="append", inline="auto").files_added == 0
        assert con.sql("SELECT count(*), max(i) FROM t").fetchall() == [(2, 2)]
        assert con.sql("SELECT i FROM t ORDER BY i").fetchall() == [(1,), (2,)]
    assert lake.fsck(deep=True, storage=True).findings == []


@inlining_catalogs
def test_a_null_in_a_not_null_column_is_refused(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (i BIGINT NOT NULL)").raise_for_error()
    with pytest.raises(errors.DataError, match="does not allow NULL"):
        lake.write(pa.table({"i": pa.array([None], pa.int64())}), "t", mode="append", inline="auto")
    assert lake.table("t").count() == 0


@pytest.mark.parametrize("backend", [Backend(MYSQL, LOCAL)], ids=str, indirect=True)
def test_mysql_writes_a_file_instead_of_inlining(lake: DuckLake) -> None:
    assert lake.write(numbers(1), "t", mode="append", inline="auto").files_added == 1


@inlining_catalogs
def test_values_that_the_catalog_cannot_store_exactly_are_written_to_a_file(lake: DuckLake) -> None:
    nested = pa.table({"s": [{"a": "it's"}]})
    assert lake.write(nested, "n", mode="append", inline="auto").files_added == 1
    text = pa.table({"k": ["a"]})
    assert lake.write(text, "k", mode="append", partition_by=["k"], inline="auto").files_added == 0


@inlining_catalogs
def test_a_retried_append_inlines_no_row_twice(lake: DuckLake) -> None:
    for _ in range(2):
        result = lake.write(numbers(1), "t", mode="append", idempotency_key="k", inline="auto")
    assert result.replayed
    assert rows(lake, "FROM t") == [(1,)]


@inlining_catalogs
def test_the_limit_counts_the_rows_of_one_write_and_a_larger_write_moves_no_inlined_rows(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=3)
    for start in (0, 3, 6):
        lake.write(numbers(*range(start, start + 3)), "t", mode="append", inline="auto")
    assert (lake.table("t").stats().inlined_rows, lake.table("t").files()) == (9, [])
    lake.write(numbers(*range(9, 13)), "t", mode="append", inline="auto")
    assert [file.rows for file in lake.table("t").files()] == [4]
    assert lake.table("t").stats().inlined_rows == 9
    assert sorted(lake.read("t")["i"].to_pylist()) == list(range(13))


@inlining_catalogs
def test_a_limit_of_zero_inlines_nothing(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(numbers(1), "t", mode="append", inline="auto")
    lake.execute("INSERT INTO t VALUES (2)").raise_for_error()
    assert (lake.table("t").stats().inlined_rows, len(lake.table("t").files())) == (0, 2)


@inlining_catalogs
def test_small_updates_and_deletes_of_the_engine_are_inlined_and_those_of_the_verbs_are_files(lake: DuckLake) -> None:
    lake.write(numbers(*range(20)), "t", mode="append")
    lake.execute(["UPDATE t SET i = 100 WHERE i = 3", "DELETE FROM t WHERE i = 4"]).raise_for_error()
    by_engine = [change.partition(":")[0] for snapshot in lake.snapshots(limit=2) for change in snapshot.changes]
    assert sorted(by_engine) == ["inlined_delete", "inlined_delete", "inlined_insert"]
    lake.delete("t", "i = 5")
    by_verb = [change.partition(":")[0] for change in lake.snapshots(limit=1)[0].changes]
    assert "deleted_from_table" in by_verb
    assert "inlined_insert" not in by_verb
    expected = sorted((set(range(20)) - {3, 4, 5}) | {100})
    assert sorted(lake.read("t")["i"].to_pylist()) == [row[0] for row in rows(lake, "FROM t ORDER BY i")] == expected


@pytest.mark.parametrize("backend", CATALOGS[1:], ids=str, indirect=True)
def test_a_session_with_cached_statistics_finds_rows_that_are_inlined_afterwards(lake: DuckLake) -> None:
    lake.write(numbers(*range(20)), "t", mode="append")
    with lake.connect() as con:
        large = "SELECT i FROM t WHERE i > 50"
        assert con.execute(large).fetchall() == []
        lake.write(numbers(99), "t", mode="append", inline="auto")
        assert con.execute(large).fetchall() == [(99,)]
        assert con.execute("SELECT max(i) FROM t").fetchall() == [(99,)]
