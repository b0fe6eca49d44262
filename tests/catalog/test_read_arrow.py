"""Reads without Spark: as a table, or as a stream that releases its connection."""

import gc
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import reading
from ducklake_orch.catalog.scan import arrow_reader
from ducklake_orch.engine.instances import pool
from ducklake_orch.errors import StorageError
from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend, catalogs
from tests.support.lakes import MakeLake
from tests.support.worn_lakes import ALL_OF_IT

ROWS = pa.table({"k": range(1000), "v": [f"v{n}" for n in range(1000)]})


@catalogs()
def test_read_returns_the_current_rows_or_those_of_a_snapshot(lake: DuckLake) -> None:
    first = lake.write(ROWS, "s.t", mode="append")
    lake.write(ROWS.slice(0, 5), "s.t", mode="overwrite")
    assert lake.read("s.t").sort_by("k") == ROWS.slice(0, 5)
    assert lake.read("s.t", snapshot=first.snapshot_id).sort_by("k") == ROWS
    assert lake.read("s.t", columns=["V"], where="k = 3 -- only this").to_pylist() == [{"v": "v3"}]
    assert lake.read("s.t", where="k < 0").schema == ROWS.schema


@catalogs(quick=[SQLITE], shared=True)
@pytest.mark.parametrize("at", [None, 1], ids=["current", "snapshot"])
def test_planning_a_read_sees_one_consistent_state(lake: DuckLake, at: int | None) -> None:
    lake.write(ROWS, "t", mode="append")
    with lake.reading(at, entering=False) as session, reading(session, "Looking") as metadata:
        files = f"SELECT count(*) FROM {metadata.table_sql('ducklake_data_file')} WHERE end_snapshot IS NULL"
        before = metadata.rows(files)
        lake.write(ROWS, "t", mode="append")
        lake.delete("t", "k = 1")
        assert metadata.rows(files) == before


@catalogs(quick=[SQLITE, POSTGRES], shared=True)
def test_a_read_of_a_sqlite_lake_is_retried_after_concurrent_commits(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(ROWS, "t", mode="append")
    real, reads = arrow_reader._table, count(1)
    writers = ThreadPoolExecutor()

    def read_during_an_append(*arguments: Any) -> pa.Table:
        rows = real(*arguments)
        if next(reads) <= 3:
            writers.submit(lake.write, ROWS, "t", mode="append").result()
        return rows

    monkeypatch.setattr(arrow_reader, "_table", read_during_an_append)
    with writers:
        assert lake.read("t", snapshot=1) == ROWS
    # The fourth read holds the lock, so writers wait.
    assert next(reads) == (5 if lake.config.catalog.type == "sqlite" else 2)


def test_blobs_written_by_either_engine_match_a_condition(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    engine = "SELECT '\\x00\\xFF'::BLOB AS b, i AS n FROM range(50) t(i)"
    lake.execute([f"CREATE TABLE theirs AS {engine}", "CREATE TABLE ours (b BLOB, n BIGINT)"])
    lake.write(lake.read("theirs"), "ours", mode="append")
    same = "b = '\\x00\\xFF'::BLOB"
    for table in ("theirs", "ours"):
        assert lake.read(table, where=same).num_rows == 50, table
    # The engine probes the Bloom filters that it writes with the printed form of bytes. Our files have no filters.
    found = [lake.execute([f"SELECT count(*) AS n FROM {table} WHERE {same}"]).rows for table in ("theirs", "ours")]
    assert found == [[{"n": 0}], [{"n": 50}]]
    lake.write(pa.table({"b": [b"\x00\xff"], "n": [7]}), "theirs", mode="merge", keys=["b", "n"])
    assert lake.table("theirs").count() == 50
    lake.delete("theirs", where=same)
    assert lake.table("theirs").count() == 0


@catalogs()
def test_a_stream_leases_one_connection_until_it_ends_or_is_closed(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")

    def leased() -> int:
        return sum(pool._leased.values())

    gc.collect()  # streams of earlier tests
    whole = lake.read_batches("t", batch_size=100)
    assert leased() == 1
    assert pa.Table.from_batches(list(whole)).sort_by("k") == ROWS
    assert leased() == 0
    part = lake.read_batches("t", columns=["k"], where="k >= 500")
    assert [batch.schema.names for batch in islice(part, 1)] == [["k"]]
    part.close()
    assert leased() == 0
    dropped = lake.read_batches("t")
    del dropped
    gc.collect()
    assert leased() == 0
    lake.write(ROWS, "t", mode="append")


def test_a_stream_of_an_empty_table_has_its_schema(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"k": "INTEGER", "s": "STRUCT(a DATE)"})
    stream = lake.read_batches("t")
    assert stream.schema.names == ["k", "s"]
    assert stream.read_all().num_rows == 0


def test_reading_a_missing_file_raises_a_storage_error(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.write(ROWS, "t", mode="append")
    for path in tmp_path.rglob("*.parquet"):
        path.unlink()
    with pytest.raises(StorageError, match=r"Reading `main\.t` failed"):
        lake.read("t")
    with pytest.raises(Exception, match=r"Reading `main\.t` failed"):
        lake.read_batches("t").read_all()


@pytest.mark.parametrize("backend", [pytest.param(Backend(SQLITE, LOCAL), id="sqlite")], indirect=True)
def test_a_sqlite_stream_fails_if_its_inlined_rows_are_flushed_concurrently(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    lake.write(ROWS, "t", mode="append")
    lake.execute("INSERT INTO t VALUES (1000, 'inlined')").raise_for_error()
    with lake.read_batches("t", batch_size=100) as stream:
        stream.read_next_batch()
        lake.write(ROWS.slice(0, 1), "t", mode="append")  # an append moves no rows
        lake.maintain(operations=["flush"]).raise_for_error()
        with pytest.raises(pa.ArrowInvalid, match="was flushed or compacted, or its snapshot expired"):
            stream.read_all()
    with lake.read_batches("t", batch_size=100) as stream:
        lake.write(ROWS.slice(0, 1), "t", mode="append")
        assert stream.read_all().num_rows == 1002


@pytest.mark.parametrize("backend", [pytest.param(Backend(SQLITE, LOCAL), id="sqlite")], indirect=True)
def test_a_sqlite_stream_fails_if_the_snapshot_of_a_concurrent_flush_expires(
    make_lake: MakeLake,
) -> None:
    lake = make_lake(data_inlining_row_limit=10)
    lake.write(ROWS, "t", mode="append")
    lake.execute("INSERT INTO t VALUES (1000, 'inlined')").raise_for_error()
    with lake.read_batches("t", batch_size=100) as stream:
        stream.read_next_batch()
        lake.maintain(operations=["flush"]).raise_for_error()
        lake.write(ROWS.slice(0, 1), "t", mode="append")
        lake.maintain(ALL_OF_IT, ["expire"]).raise_for_error()
        with pytest.raises(pa.ArrowInvalid, match="its snapshot expired, during the stream"):
            stream.read_all()


@catalogs(quick=[SQLITE, POSTGRES], shared=True)
def test_a_stream_without_inlined_rows_outlives_its_snapshot(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")
    with lake.read_batches("t", batch_size=100) as stream:
        stream.read_next_batch()
        lake.write(ROWS.slice(0, 1), "t", mode="overwrite")
        lake.maintain(ALL_OF_IT, ["expire"]).raise_for_error()
        assert len(lake.snapshots()) == 1
        assert stream.read_all().num_rows == 1000  # the first batch was empty
