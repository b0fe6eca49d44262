"""The write lock: writers of one catalog run one after the other, lose no rows, and survive a killed holder."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.engine.instances import pool
from ducklake_orch.engine.locks import FileQueue
from ducklake_orch.engine.session import open_session
from tests.support.backends import LOCAL, MYSQL, Backend, catalogs
from tests.support.lakes import MakeLake

pytestmark = pytest.mark.every_catalog

INSERTER = """
import pickle, sys
from ducklake_orch import DuckLake
config, number, count = pickle.load(open(sys.argv[1], "rb")), int(sys.argv[2]), int(sys.argv[3])
lake = DuckLake(config)
for i in range(count):
    lake.execute(f"INSERT INTO t VALUES ({number}, {i})").raise_for_error()
"""


def processes(lake: DuckLake, folder: Path, code: str, workers: int, *args: Any) -> list[subprocess.Popen[str]]:
    import pickle

    config = folder / "config.pickle"
    config.write_bytes(pickle.dumps(lake.config))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(config)]
    return [
        subprocess.Popen([*command, str(i), *map(str, args)], env=env, stderr=subprocess.PIPE, text=True)
        for i in range(workers)
    ]


@catalogs(sql_writes=True)
def test_concurrent_processes_all_succeed_without_lost_or_duplicate_rows(lake: DuckLake, tmp_path: Path) -> None:
    workers, rows = 4, 8
    lake.create_table("t", {"worker": "int", "i": "int"})
    for process in processes(lake, tmp_path, INSERTER, workers, rows):
        _, errors_seen = process.communicate()
        assert process.returncode == 0, errors_seen
    written = lake.execute("SELECT worker, i FROM t ORDER BY ALL").rows
    assert written == [{"worker": w, "i": i} for w in range(workers) for i in range(rows)]
    assert len(lake.table("t").history()) == workers * rows + 1  # one snapshot per insert


@catalogs(sql_writes=True)
def test_concurrent_threads_all_succeed(lake: DuckLake) -> None:
    lake.create_table("t", {"worker": "int", "i": "int"})
    failures: list[BaseException] = []

    def work(worker: int) -> None:
        try:
            for i in range(5):
                lake.execute(f"INSERT INTO t VALUES ({worker}, {i})").raise_for_error()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert lake.execute("SELECT count(*) AS n, count(DISTINCT (worker, i)) AS d FROM t").rows == [{"n": 20, "d": 20}]


@catalogs()
def test_concurrent_first_writers_create_one_lake(make_lake: MakeLake, tmp_path: Path) -> None:
    code = """
import pickle, sys
from ducklake_orch import DuckLake
lake = DuckLake(pickle.load(open(sys.argv[1], "rb")))
lake.execute(f"CREATE TABLE t{sys.argv[2]} (i INTEGER)").raise_for_error()
"""
    lake = make_lake()
    for process in processes(lake, tmp_path, code, 4):
        _, errors_seen = process.communicate()
        assert process.returncode == 0, errors_seen
    assert [t.table for t in lake.tables()] == ["t0", "t1", "t2", "t3"]


@pytest.mark.parametrize("backend", [Backend(MYSQL, LOCAL)], ids=str, indirect=True)
def test_a_reader_waits_while_another_process_creates_the_lake(make_lake: MakeLake) -> None:
    """On MySQL each CREATE TABLE commits, so a lake is visible before its schema has a row."""
    listed: list[Any] = []
    lake = make_lake()
    lake.execute("SELECT 1").raise_for_error()  # this creates the lake
    opening = threading.Thread(target=lambda: listed.append(lake.tables()))
    with lake.connect_metadata(read_only=False) as con:
        pool.close()  # a pooled connection has the schema in its cache
        con.execute("UPDATE ducklake_schema SET begin_snapshot = 1000")
        opening.start()
        opening.join(timeout=0.5)
        assert listed == []
        con.execute("UPDATE ducklake_schema SET begin_snapshot = 0")
    opening.join(timeout=60)
    assert listed == [[]]


@catalogs(shared=True)
def test_a_lock_timeout_names_the_holder_and_the_start_time(make_lake: MakeLake, backend: Backend) -> None:
    holder = make_lake()
    holder.create_table("t", {"i": "int"})
    waiting = make_lake(lock_timeout="0.3s")
    with open_session(holder.config) as session, session.queue("a long merge"):
        result: list[Any] = []
        thread = threading.Thread(target=lambda: result.append(waiting.execute("INSERT INTO t VALUES (1)")))
        thread.start()
        thread.join(timeout=60)
    error = result[0].commands[0].error
    assert isinstance(error, errors.LakeLockedError)
    assert error.retryable
    assert "since" in str(error) or backend.catalog.name == "mysql"
    holder_text = {"sqlite": f"process {os.getpid()}", "postgres": "a long merge", "mysql": "connection"}[
        backend.catalog.name
    ]
    assert holder_text in str(error)
    waiting.execute("DROP TABLE t").raise_for_error()


@catalogs(pooled=False)
def test_a_thread_that_waits_for_its_own_lock_is_refused_at_once(lake: DuckLake) -> None:
    lake.create_table("t", {"i": "int"})
    with open_session(lake.config) as session, session.queue("outer"):
        inner = FileQueue(lake.config.catalog.path).hold("inner", 600)  # type: ignore[union-attr]
        with pytest.raises(errors.LakeLockedError, match="the same thread"), inner:
            raise AssertionError("the block must not run")


@catalogs()
def test_a_killed_holder_releases_the_lock(lake: DuckLake, tmp_path: Path) -> None:
    lake.create_table("t", {"i": "int"})
    code = """
import os, pickle, signal, sys
from ducklake_orch.engine.session import open_session
config = pickle.load(open(sys.argv[1], "rb"))
with open_session(config) as session, session.queue("dying"):
    os.kill(os.getpid(), signal.SIGKILL)
"""
    (process,) = processes(lake, tmp_path, code, 1)
    process.communicate()
    assert process.returncode == -9
    lake.execute("DROP TABLE t").raise_for_error()


def test_concurrent_readers_share_a_duckdb_catalog(tmp_path: Path) -> None:
    url, data = f"duckdb:///{tmp_path}/c.ducklake", str(tmp_path / "data")
    lake = DuckLake.from_url("lake", catalog=url, storage=data, create_if_missing=True)
    lake.execute("CREATE TABLE t AS SELECT 1 AS i").raise_for_error()
    code = """
import pickle, sys, time
from ducklake_orch import DuckLake
lake = DuckLake(pickle.load(open(sys.argv[1], "rb")))
with lake.connect(read_only=True) as con:
    assert lake.execute("SELECT i FROM t").rows == [{"i": 1}]  # shares the file, because it only reads
    open(sys.argv[3] + sys.argv[2], "w").close()
    while not all(__import__("os").path.exists(sys.argv[3] + n) for n in "012"):
        time.sleep(0.01)
"""
    for process in processes(lake, tmp_path, code, 3, tmp_path / "here-"):
        _, errors_seen = process.communicate()
        assert process.returncode == 0, errors_seen


def test_sql_writes_inside_a_read_of_a_duckdb_catalog_are_refused(tmp_path: Path) -> None:
    url, data = f"duckdb:///{tmp_path}/c.ducklake", str(tmp_path / "data")
    lake = DuckLake.from_url("lake", catalog=url, storage=data, create_if_missing=True)
    lake.create_table("t", {"i": "int"})
    with lake.connect(read_only=True), pytest.raises(errors.LakeLockedError, match="the same thread"):
        lake.execute("INSERT INTO t VALUES (1)")


def test_a_symbolic_link_to_a_catalog_shares_its_lock(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").touch()
    (tmp_path / "link.sqlite").symlink_to(tmp_path / "c.sqlite")
    with FileQueue(tmp_path / "c.sqlite").hold("one", 1):
        assert FileQueue(tmp_path / "link.sqlite").holder() is not None


def test_a_forked_child_does_not_keep_the_lock_of_its_killed_parent(tmp_path: Path) -> None:
    (tmp_path / "c.sqlite").touch()
    code = """
import os, signal, sys, time
from pathlib import Path
from ducklake_orch.engine.instances import pool
from ducklake_orch.engine.locks import FileQueue
with FileQueue(Path(sys.argv[1])).hold("parent", 1):
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path / "c.sqlite")]
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            with FileQueue(tmp_path / "c.sqlite").hold("next", 5):
                pass
        finally:
            os.kill(child, signal.SIGKILL)


@catalogs(sql_writes=True)
def test_a_script_may_write_before_in_and_after_its_own_transaction(make_lake: MakeLake) -> None:
    lake = make_lake(lock_timeout="5s")
    lake.create_table("t", {"i": "int"})
    script = "INSERT INTO t VALUES (1); BEGIN; INSERT INTO t VALUES (2); COMMIT; INSERT INTO t VALUES (3); CHECKPOINT"
    lake.execute(script).raise_for_error()
    assert lake.execute("SELECT count(*) AS n FROM t").rows == [{"n": 3}]


def test_a_long_hold_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with FileQueue(tmp_path / "c.sqlite").hold("a slow copy", 1):
        time.sleep(1.1)
    assert "a slow copy kept other writers waiting" in caplog.text


@pytest.mark.soak
@catalogs(sql_writes=True)
def test_inserts_of_many_processes_for_minutes(lake: DuckLake, tmp_path: Path) -> None:
    lake.create_table("t", {"worker": "int", "i": "int"})
    started = time.monotonic()
    for process in processes(lake, tmp_path, INSERTER, 8, 200):
        _, errors_seen = process.communicate()
        assert process.returncode == 0, errors_seen
    print(f"{lake.config.catalog.type}: {8 * 200 / (time.monotonic() - started):.1f} commits/s")
    assert lake.execute("SELECT count(DISTINCT (worker, i)) AS n, count(*) AS rows FROM t").rows == [
        {"n": 1600, "rows": 1600}
    ]


def test_a_write_inside_a_read_of_a_duckdb_catalog_is_refused_at_once(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"storage": str(tmp_path / "files"), "lock_timeout": "20s", "create_if_missing": True}
    lake = DuckLake.from_url("lake", catalog=f"duckdb:///{tmp_path}/c.duckdb", **fields)
    lake.create_table("t", {"i": "INTEGER"})
    started = time.monotonic()
    with lake.connect(read_only=True), pytest.raises(errors.LakeLockedError, match="the same thread"):
        lake.write(pa.table({"i": pa.array([1], pa.int32())}), "t", mode="append")
    assert time.monotonic() - started < 10
