"""Regression tests for defects that lost, duplicated or hid rows."""

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.fault_points import once_at
from tests.support.stored_tables import files_of, rows


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def query(sql: str) -> pa.Table:
    return duckdb.sql(sql).to_arrow_table()


def interrupt() -> None:
    raise KeyboardInterrupt


def test_an_interrupt_after_the_commit_keeps_the_files(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(query("SELECT 1 AS i"), "t", mode="append")

    once_at(monkeypatch, "commit.after", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lake.write(query("SELECT 2 AS i"), "t", mode="overwrite")
    monkeypatch.undo()
    assert rows(lake, "FROM t") == [(2,)]


def test_an_interrupt_before_the_commit_leaves_no_file(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    once_at(monkeypatch, "statement.3", interrupt)
    with pytest.raises(KeyboardInterrupt):
        lake.write(query("SELECT 2 AS i"), "t", mode="append")
    assert files_of(lake) == []


def test_a_relation_over_a_stream_is_read_once(lake: DuckLake) -> None:
    lake.write(query("SELECT 1 AS i"), "t", mode="append")
    con = duckdb.connect()
    once = con.from_arrow(query("SELECT 2 AS i").to_reader())
    assert lake.write(once, "t", mode="overwrite").rows_written == 1
    assert rows(lake, "FROM t") == [(2,)]


@pytest.mark.parametrize(
    "value", ["'infinity'::DATE", "'-infinity'::TIMESTAMP", "'2024-01-01 00:00:00.123456789'::TIMESTAMP_NS"]
)
def test_partition_keys_may_have_values_that_python_cannot_represent(lake: DuckLake, value: str) -> None:
    data = query(f"SELECT d, 1::BIGINT AS i FROM (VALUES ({value}), ('2024-01-01')) t(d)")
    assert lake.write(data, "t", mode="append", partition_by=["d", "bucket(1, i)"]).rows_written == 2
    assert rows(lake, "SELECT count(*) FROM t") == [(2,)]


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("1.5::DECIMAL(10,1)", "1.5::DECIMAL(12,3)", "DECIMAL(12,3)"),
        ("DATE '2024-01-01'", "TIMESTAMP '2024-01-01'", "TIMESTAMP"),
    ],
)
def test_partitions_match_by_value_after_their_column_was_promoted(
    lake: DuckLake, old: str, new: str, kind: str
) -> None:
    lake.write(query(f"SELECT {old} AS p, 1 AS v"), "t", mode="append", partition_by=["p"])
    lake.execute(f"ALTER TABLE t ALTER p SET DATA TYPE {kind}").raise_for_error()
    assert lake.write(query(f"SELECT {new} AS p, 2 AS v"), "t", mode="overwrite_partitions").rows_removed == 1
    assert rows(lake, "SELECT v FROM t") == [(2,)]


@pytest.mark.parametrize("inline", [0, 100])
def test_a_write_that_promotes_a_partition_key_replaces_the_partitions_of_its_rows_only(
    tmp_path: Path, inline: int
) -> None:
    """Before the commit, the column's type cannot hold the new keys: they must not be taken for NULL."""
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=inline)
    lake.write(
        query("SELECT p::TINYINT AS p, 1 AS part, v FROM (VALUES (NULL, 1), (1, 2), (2, 3)) t(p, v)"),
        "t",
        mode="append",
        partition_by=["p", "part"],
    )
    lake.execute("INSERT INTO t VALUES (NULL, 1, 4), (1, 1, 5)").raise_for_error()
    before = lake.snapshots(limit=1)[0].snapshot_id
    wider = query("SELECT p::BIGINT AS p, 1 AS part, v FROM (VALUES (300, 6), (1, 7)) t(p, v)")
    lake.write(wider, "t", mode="overwrite_partitions", schema_evolution="promote", expect_snapshot=before)
    assert rows(lake, "SELECT v FROM t ORDER BY v") == [(1,), (3,), (4,), (6,), (7,)]
    assert lake.fsck(deep=True).findings == []


@pytest.mark.parametrize("other", ['CREATE SCHEMA "my schema"', 'DROP SCHEMA "my schema"'])
def test_a_concurrent_create_or_drop_of_the_schema_loses_no_files(
    lake: DuckLake, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if other.startswith("DROP"):
        lake.execute('CREATE SCHEMA "my schema"').raise_for_error()
    once_at(monkeypatch, "files.written", lambda: lake.execute(other).raise_for_error())
    result = lake.write(query("SELECT 1 AS i"), "my schema.t", mode="append")
    assert result.attempts == 2
    assert rows(lake, 'FROM "my schema".t') == [(1,)]
    assert len(files_of(lake)) == 1


def test_unknown_nan_statistics_do_not_exclude_nan_rows(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "inlining")
    lake.write(query("SELECT 'nan'::DOUBLE AS x"), "t", mode="append")
    lake.execute("INSERT INTO t VALUES (1.0)").raise_for_error()
    lake.write(query("SELECT 2.0::DOUBLE AS x"), "t", mode="append")
    assert len(rows(lake, "FROM t WHERE x > 5")) == 1


def test_a_write_to_the_name_of_a_view_is_refused(lake: DuckLake) -> None:
    lake.execute("CREATE VIEW v AS SELECT 1 AS i").raise_for_error()
    with pytest.raises(errors.ObjectExistsError, match="is a view"):
        lake.write(query("SELECT 2 AS i"), "V", mode="append")


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("DECIMAL(10,2)", pa.array([Decimal("1.2349")], pa.decimal128(10, 4))),
        ("TIMESTAMP", pa.array([1], pa.timestamp("ns"))),
        ("DOUBLE", pa.array([2**53 + 1], pa.int64())),
    ],
)
def test_values_that_would_be_rounded_are_refused(lake: DuckLake, kind: str, value: pa.Array) -> None:
    lake.create_table("t", {"x": kind})
    with pytest.raises(errors.DataError, match="`x` is"):
        lake.write(pa.table({"x": value}), "t", mode="append")


def test_a_float_column_is_not_promoted_to_double(lake: DuckLake) -> None:
    lake.write(query("SELECT 0.1::FLOAT AS x"), "t", mode="append")
    with pytest.raises(errors.DataError, match="`x` is DOUBLE"):
        lake.write(query("SELECT 0.5::DOUBLE AS x"), "t", mode="append", schema_evolution="promote")
    # The engine's fault itself: if this fails, the engine has fixed it.
    lake.execute(["ALTER TABLE t ALTER x SET DATA TYPE DOUBLE"]).raise_for_error()
    assert rows(lake, "FROM t WHERE x > 0.1") == []


def test_timestamps_keep_their_time_zone(lake: DuckLake) -> None:
    moment = pa.array([datetime(2024, 1, 1, 12)], pa.timestamp("us", "America/New_York"))
    lake.write(pa.table({"x": moment}), "t", mode="append", partition_by=["day(x)"])
    assert rows(lake, "SELECT epoch(x)::BIGINT FROM t") == [(1704110400,)]


def test_a_type_that_arrow_lacks_is_refused_by_name(lake: DuckLake) -> None:
    with duckdb.connect() as con, pytest.raises(errors.DataError, match="VARIANT"):
        lake.write(con.sql("SELECT 1::VARIANT AS v"), "t", mode="append")


@pytest.mark.parametrize("pinned", [{"snapshot": 1}, {"read_only": True}, {"as_of": "2100-01-01"}])
def test_a_read_only_lake_refuses_every_write(lake: DuckLake, pinned: dict[str, Any]) -> None:
    lake.write(query("SELECT 1 AS i"), "t", mode="append")
    seen = DuckLake(lake.config.model_copy(update=pinned))
    for work in (
        lambda: seen.write(query("SELECT 2 AS i"), "t", mode="append"),
        lambda: seen.add_files("t", []),
        lambda: seen.set_option("target_file_size", "1MB"),
        lambda: seen.fsck(repair=True),
        lambda: seen.truncate("t"),
    ):
        with pytest.raises(errors.ReadOnlyError):
            work()
    assert rows(lake, "FROM t") == [(1,)]


@pytest.mark.parametrize("kind", ["UNION(a INTEGER, b VARCHAR)", "BIGNUM", "TIME_NS"])
def test_types_that_ducklake_lacks_are_refused_before_a_commit(lake: DuckLake, kind: str) -> None:
    lake.write(query("SELECT 1 AS i"), "t", mode="append")
    with duckdb.connect() as con:
        data = con.sql(f"SELECT 1 AS i, [NULL::{kind}] AS u")
        with pytest.raises(errors.DuckLakeOrchError, match=r"u|Arrow"):
            lake.write(data, "new", mode="append")
        with pytest.raises(errors.DuckLakeOrchError, match=r"u|Arrow"):
            lake.write(data, "t", mode="append", schema_evolution="add")
    assert [table.table for table in lake.tables()] == ["t"]


def test_mode_error_with_a_committed_key_is_replayed(lake: DuckLake) -> None:
    first = lake.write(query("SELECT 1 AS i"), "t", mode="error", idempotency_key="k")
    again = lake.write(query("SELECT 1 AS i"), "t", mode="error", idempotency_key="k")
    assert (again.replayed, again.snapshot_id) == (True, first.snapshot_id)
    with pytest.raises(errors.ObjectExistsError):
        lake.write(query("SELECT 1 AS i"), "t", mode="error", idempotency_key="another")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"partition_by": "region"}, "partition_by"),
        ({"sort_by": "region"}, "sort_by"),
        ({"partition_by": [5]}, "partition_by"),
        ({"mode": "replace_where", "where": 5}, "where"),
        ({"mode": "overwrite", "expect_snapshot": "1"}, "expect_snapshot"),
        ({"idempotency_key": 5}, "idempotency key"),
        ({"commit": {"author": "me"}}, "commit"),
        ({"outside": "drop"}, "outside"),
        ({"table": 5}, "5"),
    ],
)
def test_arguments_of_the_wrong_type_are_named(lake: DuckLake, arguments: dict[str, Any], named: str) -> None:
    all_arguments = {"table": "t", "mode": "append"} | arguments
    with pytest.raises(errors.ConfigError, match=named):
        lake.write(query("SELECT 1 AS region"), **all_arguments)


@pytest.mark.parametrize("where", ["rgion = 'eu'", "", "region =", "sum(1) > 0"])
def test_an_invalid_where_is_refused_before_any_work(lake: DuckLake, where: str) -> None:
    lake.write(query("SELECT 'eu' AS region"), "t", mode="append")
    for table in ("t", "new"):
        with pytest.raises(errors.DuckLakeOrchError) as caught:
            lake.write(query("SELECT 'eu' AS region"), table, mode="replace_where", where=where)
        assert "Traceback" not in str(caught.value)
        assert "where" in str(caught.value)


def test_timestamps_finer_than_microseconds_are_not_truncated(lake: DuckLake) -> None:
    for nanoseconds, fits in ((1_000, True), (1_001, False)):
        data = pa.table({"ts": pa.array([nanoseconds], pa.timestamp("ns", "UTC"))})
        if fits:
            lake.write(data, "t", mode="append")
        else:
            with pytest.raises(errors.DataError, match="microseconds"):
                lake.write(data, "t", mode="append")
    assert rows(lake, "SELECT epoch_us(ts) FROM t") == [(1,)]


def test_the_error_of_a_failed_reader_is_the_cause(lake: DuckLake) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"i": [1]})
        raise ConnectionError("the database is gone")

    reader = pa.RecordBatchReader.from_batches(pa.schema({"i": pa.int64()}), batches())
    with pytest.raises(errors.DuckLakeOrchError) as caught:
        lake.write(reader, "t", mode="append")
    assert isinstance(caught.value.__cause__, ConnectionError)


def change_catalog(lake: DuckLake, statement: str) -> None:
    with lake.connect_metadata(read_only=False) as con:
        con.execute(statement)


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("BOOLEAN", "true", "1"),
        ("DOUBLE", "1", "1"),
        ("DOUBLE", "'nan'", "NaN"),
        ("FLOAT", "0.1", "0.10000000149011612"),
    ],
)
def test_partitions_with_keys_in_other_notations_are_replaced(lake: DuckLake, kind: str, value: str, text: str) -> None:
    data = query(f"SELECT {value}::{kind} AS p, 1 AS i")
    lake.write(data, "t", mode="append", partition_by=["p"])
    change_catalog(lake, f"UPDATE ducklake_file_partition_value SET partition_value = '{text}'")
    assert lake.write(data, "t", mode="overwrite_partitions").rows_removed == 1
    assert rows(lake, "SELECT i FROM t") == [(1,)]


@pytest.mark.parametrize("keys", [["p"], ["i", "p"]])
def test_partitions_are_replaced_whose_key_was_written_before_its_type_was_promoted(
    lake: DuckLake, keys: list[str]
) -> None:
    lake.write(query("SELECT 0.1::FLOAT AS p, 1 AS i"), "t", mode="append", partition_by=keys)
    lake.execute("ALTER TABLE t ALTER p TYPE DOUBLE").raise_for_error()
    for value, removed in [("0.1::DOUBLE", 0), ("0.1::FLOAT::DOUBLE", 1)]:
        data = query(f"SELECT {value} AS p, 1 AS i")
        assert lake.write(data, "t", mode="overwrite_partitions").rows_removed == removed
    assert len(rows(lake, "FROM t")) == 2


@pytest.mark.parametrize("damage", ["DELETE FROM {}", "UPDATE {} SET partition_value = 'no number'"])
def test_a_partition_with_an_invalid_key_is_matched_by_its_rows(lake: DuckLake, damage: str) -> None:
    lake.write(query("SELECT 1 AS p, 1 AS i"), "t", mode="append", partition_by=["p"])
    change_catalog(lake, damage.format("ducklake_file_partition_value"))
    assert lake.write(query("SELECT 1 AS p, 2 AS i"), "t", mode="overwrite_partitions").rows_removed == 1
    assert rows(lake, "SELECT i FROM t") == [(2,)]


def test_replace_where_refuses_a_column_that_the_write_adds(lake: DuckLake) -> None:
    lake.write(query("SELECT 1 AS i"), "t", mode="append")
    new = query("SELECT 1 AS i, 2 AS n")
    with pytest.raises(errors.ObjectNotFoundError, match="no column `n`"):
        lake.write(new, "t", mode="replace_where", where="n = 2", schema_evolution="add")


@pytest.mark.parametrize("interval", ["60 days", "1193 hours", "1 month 3 days 5 hours 0.001 seconds", "0 seconds"])
def test_intervals_are_read_back_unchanged(lake: DuckLake, interval: str) -> None:
    whole = "to_hours(1192)" if interval == "1193 hours" else f"INTERVAL '{interval}'"
    with duckdb.connect() as con:
        lake.write(con.sql(f"SELECT {whole} AS iv"), "t", mode="append")
    assert rows(lake, f"SELECT iv = {whole} FROM t") == [(True,)]


@pytest.mark.parametrize("microseconds", [1500, 60 * 86_400_000_000, -1000])
def test_durations_that_parquet_cannot_hold_are_refused(lake: DuckLake, microseconds: int) -> None:
    data = pa.table({"iv": pa.array([microseconds], pa.duration("us"))})
    with pytest.raises(errors.DataError, match="`iv`"):
        lake.write(data, "t", mode="append")
    assert not lake.exists("t")


def test_a_motherduck_lake_is_refused_before_any_work() -> None:
    lake, frame = DuckLake.from_url("lake", catalog="md:lake"), query("SELECT 1 AS i")
    attempts: list[Callable[[], Any]] = [
        lambda: lake.write(frame, "t", mode="append"),
        lambda: lake.write(frame, "t", mode="merge", keys=["i"]),
        lambda: lake.delete("t", "i = 1"),
        lambda: lake.update("t", {"i": "2"}, "i = 1"),
        lambda: lake.add_files("t", ["x.parquet"]),
    ]
    for work in attempts:
        with pytest.raises(errors.UnsupportedStatementError, match="only MotherDuck can write"):
            work()
