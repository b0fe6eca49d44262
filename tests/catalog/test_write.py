"""The effect of each `lake.write` mode on the rows, read back by the engine on every catalog."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from tests.support.backends import backends, catalogs
from tests.support.lakes import MakeLake
from tests.support.stored_tables import files_of, lake_file_names, rows

ORDERS = pa.table({"id": [1, 2, 3], "region": ["eu", "us", "eu"], "amount": [1.5, 2.5, None]})


@backends()
def test_the_first_write_creates_table_and_schema_in_one_snapshot(lake: DuckLake) -> None:
    result = lake.write(ORDERS, "sales.orders", mode="append", commit=CommitInfo(author="me", message="first"))
    assert (result.snapshot_id, result.previous_snapshot_id) == (1, 0)
    assert (result.rows_written, result.files_added, result.rows_removed) == (3, 1, 0)
    assert rows(lake, "FROM sales.orders ORDER BY id") == [(1, "eu", 1.5), (2, "us", 2.5), (3, "eu", None)]
    newest = lake.snapshots()[0]
    assert newest.changes == ['created_schema:"sales"', 'created_table:"sales"."orders"', "inserted_into_table:2"]
    assert (newest.author, newest.message) == ("me", "first")
    assert newest.extra["ducklake_orch"]["write_id"] in lake_file_names(lake)[0]


@catalogs()
def test_append_matches_columns_by_name_and_fills_missing_ones_with_defaults(lake: DuckLake) -> None:
    lake.execute("CREATE TABLE t (a INTEGER, b VARCHAR DEFAULT 'x', c DOUBLE DEFAULT 1 + 1, d DATE)").raise_for_error()
    lake.write(pa.table({"D": [None], "a": pa.array([7], pa.int16())}), "t", mode="append")
    lake.write(
        pa.table({"a": [None], "b": ["y"], "c": [0.5]}).cast(
            pa.schema([("a", pa.int32()), ("b", pa.string()), ("c", pa.float32())])
        ),
        "t",
        mode="append",
    )
    assert rows(lake, "FROM t ORDER BY a NULLS LAST") == [(7, "x", 2.0, None), (None, "y", 0.5, None)]


@catalogs()
def test_overwrite_replaces_all_rows_and_keeps_history(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="append", partition_by=["region"])
    result = lake.write(ORDERS.slice(0, 1), "t", mode="overwrite")
    assert (result.rows_removed, result.files_removed, result.rows_written) == (3, 2, 1)
    assert rows(lake, "FROM t") == [(1, "eu", 1.5)]
    assert len(rows(lake, "FROM t AT (VERSION => 1)")) == 3
    empty = lake.write(ORDERS.slice(0, 0), "t", mode="overwrite")
    assert (empty.rows_removed, empty.rows_written, empty.files_added) == (1, 0, 0)
    assert rows(lake, "FROM t") == []
    assert files_of(lake) == sorted(f"main/t/{name}" for name in lake_file_names(lake))


@catalogs(sql_writes=True)
def test_overwrite_retires_inlined_rows_and_deletions(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="append")
    lake.execute(["INSERT INTO t VALUES (9, 'us', 0)", "DELETE FROM t WHERE id = 1"])
    result = lake.write(ORDERS.slice(2, 1), "t", mode="overwrite")
    assert result.rows_removed == 3
    assert rows(lake, "FROM t") == [(3, "eu", None)]
    assert "inlined_delete:1" in lake.snapshots()[0].changes
    assert rows(lake, f"SELECT count(*) FROM t AT (VERSION => {result.previous_snapshot_id})") == [(3,)]


@catalogs()
def test_modes_error_and_ignore_keep_an_existing_table(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="error")
    with pytest.raises(errors.ObjectExistsError):
        lake.write(ORDERS, "t", mode="error")
    ignored = lake.write(ORDERS, "t", mode="ignore")
    assert (ignored.rows_written, ignored.snapshot_id) == (0, 1)
    assert rows(lake, "SELECT count(*) FROM t") == [(3,)]
    assert len(files_of(lake)) == 1


@catalogs()
def test_an_append_without_rows_commits_no_snapshot(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="append")
    result = lake.write(ORDERS.slice(0, 0), "t", mode="append")
    assert (result.snapshot_id, result.previous_snapshot_id) == (1, 1)
    assert len(lake.snapshots()) == 2


@catalogs()
def test_a_retried_append_writes_no_row_twice(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    first = lake.write(ORDERS, "t", mode="append", idempotency_key="run 1 | orders")
    again = lake.write(ORDERS, "t", mode="append", idempotency_key="run 1 | orders")
    assert (again.replayed, again.snapshot_id, again.rows_written) == (True, first.snapshot_id, 0)
    assert "already committed" in caplog.text
    other = lake.write(ORDERS, "t", mode="append", idempotency_key="RUN 1 | orders ")
    assert not other.replayed
    assert rows(lake, "SELECT count(*) FROM t") == [(6,)]
    assert len(files_of(lake)) == 2


@catalogs()
def test_a_replacing_write_runs_again_and_records_its_key(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="overwrite", idempotency_key="k")
    again = lake.write(ORDERS.slice(0, 1), "t", mode="overwrite", idempotency_key="k")
    assert not again.replayed
    assert rows(lake, "SELECT count(*) FROM t") == [(1,)]
    appended = lake.write(ORDERS, "t", mode="append", idempotency_key="k")
    assert (appended.replayed, appended.snapshot_id) == (True, again.snapshot_id)


@catalogs()
def test_a_replay_warns_if_its_rows_were_removed_since(lake: DuckLake, caplog: pytest.LogCaptureFixture) -> None:
    lake.write(ORDERS, "t", mode="append", idempotency_key="k")
    emptied = lake.write(ORDERS.slice(0, 0), "t", mode="overwrite")
    again = lake.write(ORDERS, "t", mode="append", idempotency_key="k")
    assert again.replayed
    assert f"snapshot {emptied.snapshot_id} has removed rows since" in caplog.text


@catalogs()
def test_a_recreated_table_forgets_earlier_idempotency_keys(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="append", idempotency_key="k")
    lake.drop_table("t")
    assert not lake.write(ORDERS, "t", mode="append", idempotency_key="k").replayed
    assert rows(lake, "SELECT count(*) FROM t") == [(3,)]


@catalogs()
def test_schema_evolution_adds_new_columns(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="append")
    wider = ORDERS.append_column("note", [["a", "b", "c"]]).append_column("s", [[{"x": 1}] * 3])
    with pytest.raises(errors.DataError, match=r"`note` is not a column.*`s` is not a column"):
        lake.write(wider, "t", mode="append")
    result = lake.write(wider, "t", mode="append", schema_evolution="add")
    assert lake.snapshots()[0].changes == ["altered_table:1", "inserted_into_table:1"]
    deeper = wider.drop(["s"]).append_column("s", [[{"x": 2, "y": "new"}] * 3])
    lake.write(deeper, "t", mode="append", schema_evolution="add")
    found = rows(lake, "SELECT id, note, s FROM t WHERE id = 1 ORDER BY ALL NULLS FIRST")
    assert found == [(1, None, None), (1, "a", {"x": 1, "y": None}), (1, "a", {"x": 2, "y": "new"})]
    assert rows(lake, f"SELECT count(*) FROM t AT (VERSION => {result.previous_snapshot_id})") == [(3,)]


@catalogs()
def test_schema_evolution_promotes_columns(lake: DuckLake) -> None:
    narrow = pa.table({"i": pa.array([1], pa.int32())})
    wide = pa.table({"i": pa.array([2**40], pa.int64())})
    lake.write(narrow, "t", mode="append")
    with pytest.raises(errors.DataError, match="`i` is BIGINT in the data and INTEGER in the table"):
        lake.write(wide, "t", mode="append")
    lake.write(wide, "t", mode="append", schema_evolution="promote")
    assert rows(lake, "FROM t ORDER BY i") == [(1,), (2**40,)]
    assert [column.type for column in lake.table("t").schema()] == ["BIGINT"]


@catalogs()
def test_data_that_do_not_fit_are_refused_and_leave_no_file(lake: DuckLake) -> None:
    lake.create_table("t", {"i": "INTEGER NOT NULL", "u": "UUID", "tz": "TIMESTAMPTZ"})
    before = len(lake.snapshots())
    for data, message in [
        (pa.table({"i": [1]}), "`i` is BIGINT in the data"),
        (pa.table({"i": pa.array([None, 1], pa.int32())}), "Column `i` of table `main.t` does not allow NULL"),
        (pa.table({"u": ["x"]}), "does not allow NULL"),
        (pa.table({"i": pa.array([1], pa.int32()), "u": ["x"]}), "does not fit table"),
        (pa.table({"tz": pa.array([0], pa.timestamp("us"))}), "`tz` is TIMESTAMP in the data"),
        (pa.table([pa.array([1]), pa.array([2])], names=["i", "I"]), "several columns named i"),
    ]:
        with pytest.raises(errors.DataError, match=message):
            lake.write(data, "t", mode="append")
    assert len(lake.snapshots()) == before
    assert files_of(lake) == []


@catalogs()
def test_a_partition_spec_or_sort_order_other_than_the_tables_is_refused(lake: DuckLake) -> None:
    lake.write(ORDERS, "t", mode="append", partition_by=["region"], sort_by=["id desc", "amount*2"])
    lake.write(ORDERS, "t", mode="append", partition_by=["region"], sort_by=["id DESC", "amount * 2"])
    with pytest.raises(errors.ConfigError, match="alter_table"):
        lake.write(ORDERS, "t", mode="append", partition_by=["id"])
    lake.write(ORDERS, "t", mode="append", sort_by=["id desc nulls last", "amount * 2"])
    for other in (["id"], ["id desc"], ["id desc nulls first", "amount * 2"]):
        with pytest.raises(errors.ConfigError, match="alter_table"):
            lake.write(ORDERS, "t", mode="append", sort_by=other)


def test_invalid_requests_are_refused(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    for fields, message in [
        ({"mode": "upend"}, "append"),
        ({"mode": "append", "where": "id = 1"}, "cannot be combined"),
        ({"mode": "replace_where"}, "cannot be combined"),
        ({"mode": "append", "outside": "keep"}, "outside"),
        ({"mode": "append", "schema_evolution": "ad"}, "add"),
        ({"mode": "append", "idempotency_key": ""}, "cannot be used"),
    ]:
        with pytest.raises(errors.ConfigError, match=message):
            lake.write(ORDERS, "t", **fields)  # type: ignore[arg-type]
    with pytest.raises(errors.ConfigError, match="dict cannot be written"):
        lake.write({"id": [1]}, "t", mode="append")


def test_every_source_of_an_arrow_stream_can_be_written(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow.dataset as ds

    lake = DuckLake.local(tmp_path / "lake")
    lake.write(pl.DataFrame({"id": [1]}), "t", mode="append")
    lake.write(duckdb.sql("SELECT 2::BIGINT AS id"), "t", mode="append")
    lake.write(pa.table({"id": [3]}).to_reader(), "t", mode="append")
    lake.write(pl.LazyFrame({"id": [4, 40]}).filter(pl.col("id") < 10), "t", mode="append")
    lake.write(pd.DataFrame({"id": [5]}), "t", mode="append")
    lake.write(ds.dataset(pa.table({"id": [6]})), "t", mode="append")
    frame = pd.DataFrame({"id": [0, 7]})
    lake.write(frame[frame["id"] > 0], "t", mode="append")  # its index is not a column
    lake.write(pd.DataFrame({"id": [8]}, index=pd.Index([1], name="n")), "t", mode="append")
    assert rows(lake, "FROM t ORDER BY id") == [(id_,) for id_ in range(1, 9)]


@backends()
def test_open_files_of_many_partitions_fit_the_memory(make_lake: MakeLake) -> None:
    """DuckDB keeps the files of large partitions open, and on S3 a buffer for each, by default of 76.5 MiB."""
    lake = make_lake(data_inlining_row_limit=0, memory_limit="384MiB", threads=1)
    lake.create_table("t", {"p": "BIGINT", "value": "DOUBLE"}, partition_by=["p"])
    many = duckdb.sql("SELECT range % 8 AS p, random() AS value FROM range(1_500_000)")
    done = lake.write(many, "t", mode="append")
    assert (len(done.partitions), done.rows_written) == (8, 1_500_000)


def test_column_names_are_case_insensitive_for_ascii_letters_only(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.execute('CREATE TABLE t ("É" INT, "é" INT, "A" INT)').raise_for_error()
    lake.write(pa.table({"é": pa.array([1], pa.int32()), "a": pa.array([2], pa.int32())}), "t", mode="append")
    assert rows(lake, "FROM t") == [(None, 1, 2)]
    both = pa.table({"É": pa.array([3], pa.int32()), "é": pa.array([4], pa.int32())})
    lake.write(both, "t", mode="append")
    assert rows(lake, 'FROM t WHERE "É" = 3') == [(3, 4, None)]
    assert lake.read("t", columns=["é"], where='"É" IS NULL').to_pylist() == [{"é": 1}]


@catalogs(sql_writes=True)
def test_partition_folders_have_the_engines_names(make_lake: MakeLake) -> None:
    """The engine's compaction fails otherwise. With a mix of a transform and a column, we name the folders."""
    lake = make_lake("lake", data_inlining_row_limit=0)
    columns = {"it's": "BOOLEAN", "a b": "TIMESTAMP", "x": "BIGINT"}
    lake.create_table("t", columns, partition_by=["it's", "day(a b)"])
    lake.execute("INSERT INTO t VALUES (true, '2024-03-05', 1)").raise_for_error()
    data = pa.table({"it's": [True], "a b": pa.array(["2024-03-05"]).cast(pa.timestamp("us")), "x": [2]})
    lake.write(data, "t", mode="append")
    lake.update("t", {"x": "x + 10"}, "x = 2")
    assert {str(Path(name).parent) for name in lake_file_names(lake)} == {"it%27s=true/day=5"}
    lake.execute("CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)").raise_for_error()
    lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
    assert rows(lake, "SELECT x FROM t ORDER BY x") == [(1,), (12,)]
