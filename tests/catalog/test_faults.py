"""Full disks, blocking readers, aborted input: the lake stays consistent, and a retry results in one copy."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import catalogs
from tests.support.stored_tables import nothing_left_over, rows

OLD = pa.table({"v": [1]})


@pytest.fixture
def sqlite_lake(tmp_path: Path) -> DuckLake:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(OLD, "t", mode="append")
    return lake


def in_a_child_with_file_limit(limit: int, work: Callable[[], object]) -> str:
    """Run work in a child process with a file size limit; return the name of the error that it raised."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write then fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        error_name = "no error"
        try:
            work()
        except BaseException as error:
            error_name = type(error).__name__
        os.write(write, error_name.encode())
        os._exit(0)
    os.close(write)
    with open(read) as answer:
        error_name = answer.read()
    os.waitpid(child, 0)
    return error_name


def wal_of(lake: DuckLake) -> Path:
    return lake.config.catalog.path.with_name(lake.config.catalog.path.name + "-wal")  # type: ignore[union-attr]


def test_a_full_disk_during_the_commit_leaves_the_catalog_unchanged(sqlite_lake: DuckLake) -> None:
    wide = pa.table({f"c{n}": ["x" * 200] for n in range(200)} | {"v": [2]})  # many statistics: a long WAL
    write: dict[str, Any] = {"mode": "append", "schema_evolution": "add", "idempotency_key": "once"}
    with sqlite3.connect(sqlite_lake.config.catalog.path) as reader:  # type: ignore[union-attr]
        reader.execute("SELECT count(*) FROM ducklake_snapshot").fetchall()  # keeps the WAL
        limit = max(wal_of(sqlite_lake).stat().st_size, 100_000)
        error_name = in_a_child_with_file_limit(limit, lambda: sqlite_lake.write(wide, "t", **write))
    reader.close()
    assert error_name not in ("no error", "KilledError"), error_name
    assert rows(sqlite_lake, "SELECT v FROM t") == [(1,)]
    assert sqlite_lake.fsck(deep=True).findings == []
    sqlite_lake.write(wide, "t", **write)
    sqlite_lake.write(wide, "t", **write)
    assert rows(sqlite_lake, "SELECT v FROM t ORDER BY v") == [(1,), (2,)]
    assert sqlite_lake.fsck(deep=True).findings == []


def test_a_full_disk_during_the_data_write_leaves_no_file(sqlite_lake: DuckLake) -> None:
    large = pa.table({"v": pa.array(range(1_000_000), pa.int64())})
    error_name = in_a_child_with_file_limit(200_000, lambda: sqlite_lake.write(large, "t", mode="overwrite"))
    assert error_name != "no error"
    assert rows(sqlite_lake, "FROM t") == [(1,)]
    nothing_left_over(sqlite_lake)


# Runs in a separate process, because SQLite's locks do not work between two SQLite libraries in one process.
READER = """
import sqlite3, sys, time
reader = sqlite3.connect(sys.argv[1], isolation_level=None)
reader.execute(f"PRAGMA journal_mode = {sys.argv[2]}").fetchall()
reader.execute("BEGIN")
for seconds in (0, float(sys.argv[3])):
    time.sleep(seconds)
    print(reader.execute("SELECT count(*) FROM ducklake_snapshot").fetchone()[0], flush=True)
reader.execute("ROLLBACK")
"""


@contextmanager
def open_reader(lake: DuckLake, journal: str, seconds: float) -> Iterator[None]:
    """Keep a transaction open that reads the catalog, for some seconds of a `with` block."""
    path = str(lake.config.catalog.path)  # type: ignore[union-attr]
    with subprocess.Popen(
        [sys.executable, "-c", READER, path, journal, str(seconds)], stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdout is not None
        before = reader.stdout.readline()
        yield
        assert reader.stdout.readline() == before != ""


def test_a_reader_does_not_block_a_commit_in_wal_mode(sqlite_lake: DuckLake) -> None:
    with open_reader(sqlite_lake, "WAL", 2):
        started = time.monotonic()
        sqlite_lake.write(OLD, "t", mode="append")
        assert time.monotonic() - started < 2
    assert rows(sqlite_lake, "FROM t") == [(1,), (1,)]


def test_a_commit_without_wal_waits_for_a_reader(sqlite_lake: DuckLake) -> None:
    with open_reader(sqlite_lake, "DELETE", 1):
        started = time.monotonic()
        sqlite_lake.write(OLD, "t", mode="append")
        assert time.monotonic() - started > 0.5
    assert rows(sqlite_lake, "FROM t") == [(1,), (1,)]
    assert sqlite_lake.fsck(storage=True).findings == []


@catalogs()
def test_aborted_input_leaves_no_rows_and_no_file(lake: DuckLake) -> None:
    lake.write(OLD, "t", mode="append")

    def batches() -> Iterator[pa.RecordBatch]:
        yield from OLD.to_batches()
        raise ConnectionResetError("the source is gone")

    broken = pa.RecordBatchReader.from_batches(OLD.schema, batches())
    with pytest.raises(errors.DuckLakeOrchError, match="the source is gone"):
        lake.write(broken, "t", mode="overwrite", idempotency_key="once")
    assert rows(lake, "FROM t") == [(1,)]
    nothing_left_over(lake)
    lake.write(pa.table({"v": [2]}), "t", mode="overwrite", idempotency_key="once")
    assert rows(lake, "FROM t") == [(2,)]
