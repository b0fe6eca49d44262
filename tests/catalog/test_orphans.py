"""Orphans are files that the catalog does not know. Young files and files of running writes are skipped."""

import os
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, LocalStorage
from ducklake_orch.catalog.commit import record_lease, remove_lease
from ducklake_orch.catalog.lifecycle import delete_orphans, plan_orphans
from ducklake_orch.catalog.lifecycle.orphans import Orphans
from ducklake_orch.catalog.search import planning
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ReadOnlyError, SharedDataPathError
from tests.support.backends import SQLITE, backends, catalogs, on_sqlite
from tests.support.lakes import MakeLake
from tests.support.metadata_dump import dump

LATER = datetime.now(UTC) + timedelta(days=1)
LONG_AGO = datetime.now(UTC) - timedelta(days=1)
ODD = "a b/é =x.parquet"
WRITE_ID = "0123456789abcdef0123456789abcdef"


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def mark(lake: DuckLake) -> str:
    """Return the mark in the names of files that the lake's writers create."""
    with planning(lake.config, "Planning") as metadata:
        return metadata.lake_mark()


def stray(lake: DuckLake, name: str, table: str = "t") -> str:
    """Write a file into the table's folder."""
    path = f"{lake.config.data_path}main/{table}/{name}"
    if "://" not in path:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
    with working_connection(lake.config) as con:
        con.execute(f"COPY (SELECT 1 AS a) TO {literal(path)} (FORMAT parquet)")
    return path


@backends()
def test_orphaned_files_are_found_and_deleted(lake: DuckLake) -> None:
    lake.write(rows(1, 2, 3), "t", mode="append")
    lake.delete("t", "a = 2")
    lake.write(rows(4), "t", mode="append")
    lake.write(rows(9), "u", mode="append")
    lake.drop_table("u")
    unknown = {stray(lake, "other.parquet"), stray(lake, ODD), stray(lake, "x.puffin")}
    unknown.add(stray(lake, f"ducklake-{uuid4()}.parquet"))  # the form of the extension
    unknown.add(stray(lake, f"ducklake-{WRITE_ID}-{uuid4()}.parquet"))  # the form of earlier versions
    own = {
        stray(lake, f"ducklake-{WRITE_ID}-{mark(lake)}-{uuid4()}{suffix}") for suffix in (".parquet", "-delete.parquet")
    }
    own.add(stray(lake, f"ducklake-{WRITE_ID}-{mark(lake)}.driver"))  # of a Spark driver that was killed
    write_id = lake.snapshots()[0].extra["ducklake_orch"]["write_id"]
    own.add(stray(lake, f"ducklake-{write_id}-{uuid4()}.parquet"))
    stray(lake, "notes.csv")
    before = dump(lake)
    planned = plan_orphans(lake.config, LATER)
    assert dump(lake) == before
    assert (planned.files, set(planned.paths), planned.young) == (4, own, 0)
    assert planned.bytes > 400
    assert {file.path for file in planned.unknown} == unknown
    assert all(file.size > 0 and file.reason for file in planned.unknown)
    assert planned.others == ()
    assert plan_orphans(lake.config, LONG_AGO) == Orphans(young=9)
    assert delete_orphans(lake.config, LONG_AGO, unknown=True) == Orphans(young=9)
    assert delete_orphans(lake.config, LATER) == planned
    assert set(delete_orphans(lake.config, LATER, unknown=True).paths) == unknown
    assert delete_orphans(lake.config, LATER) == Orphans()
    assert sorted(lake.read("t").column("a").to_pylist()) == [1, 3, 4]
    assert lake.fsck(deep=True, storage=True).counts == {}


@backends()
def test_files_of_other_lakes_are_never_deleted(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake()
    lake.write(rows(1), "t", mode="append")
    catalog = f"sqlite:///{tmp_path}/elsewhere/other.sqlite"
    root, storage = lake.config.data_path or "", lake.config.storage
    for name, place in (("same", storage), ("nested", below(storage))):
        other = DuckLake.from_url("other", catalog=catalog, storage=place, create_if_missing=True)
        other.write(rows(1, 2), "t", mode="append")
        other.execute("INSERT INTO t SELECT range FROM range(100)").raise_for_error()
        theirs = {file.path for file in other.table("t").files()}
        dead = stray(lake, f"ducklake-{WRITE_ID}-{mark(lake)}-{name}.parquet")
        assert delete_orphans(lake.config, LATER).paths == (dead,)
        planned = plan_orphans(lake.config, LATER)
        assert planned.paths == ()
        assert theirs <= {file.path for file in planned.unknown}
        with pytest.raises(SharedDataPathError, match=mark(other)):
            delete_orphans(lake.config, LATER, unknown=True)
        found = [finding for finding in lake.fsck(storage=True).findings if finding.file in theirs]
        assert [finding.code for finding in found] == ["stray-file"] * 2
        assert any(mark(other) in finding.detail for finding in found)
        assert other.execute("SELECT count(*) AS n FROM t").rows == [{"n": 102}]
        catalog = f"sqlite:///{tmp_path}/elsewhere/nested.sqlite"
    assert root == lake.config.data_path


def below(storage: Any) -> Any:
    """Return a storage inside the data path of a lake."""
    if isinstance(storage, LocalStorage):
        return storage.model_copy(update={"path": storage.path / "inside"})
    return storage.model_copy(update={"prefix": f"{storage.prefix}/inside"})


@catalogs(quick=[SQLITE])
def test_files_of_running_writes_are_kept(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    own = mark(lake)
    running = stray(lake, f"ducklake-{WRITE_ID}-{own}-1.parquet")
    dead = stray(lake, f"ducklake-{'f' * 32}-{own}-1.parquet")
    native = stray(lake, f"ducklake-{WRITE_ID}-{own}-spark/part-0.parquet")
    write = Write("writing", write_id=WRITE_ID)
    record_lease(lake.config, write, 1)
    done = delete_orphans(lake.config, LATER)
    assert (done.paths, done.running) == ((dead,), 2)
    assert os.path.exists(running)
    assert os.path.exists(native)
    remove_lease(lake.config, write)
    assert set(delete_orphans(lake.config, LATER).paths) == {running, native}


@catalogs(quick=[SQLITE])
def test_a_live_file_under_another_path_is_not_an_orphan(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    file = lake.table("t").files()[0].path
    link = Path(lake.config.data_path or "", "linked")
    link.symlink_to(Path(file).parent)
    for odd in (file.replace("/main/", "/main/../main//"), str(link / Path(file).name)):
        with lake.connect_metadata(read_only=False) as con:
            con.execute(f"UPDATE ducklake_data_file SET path = {literal(odd)}, path_is_relative = false")
        assert delete_orphans(lake.config, LATER).files == 0
        assert os.path.exists(file)


@on_sqlite
def test_only_planned_orphans_are_deleted(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    first = stray(lake, f"ducklake-{WRITE_ID}-{mark(lake)}-1.parquet")
    second = stray(lake, "one.parquet")
    planned = plan_orphans(lake.config, LATER)
    stray(lake, f"ducklake-{WRITE_ID}-{mark(lake)}-2.parquet")
    stray(lake, "two.parquet")
    assert delete_orphans(lake.config, LATER, only=planned.paths, unknown=True).paths == (first,)
    assert delete_orphans(lake.config, LATER, only=[second], unknown=True).paths == (second,)
    left = plan_orphans(lake.config, LATER)
    assert (left.files, len(left.unknown)) == (1, 1)


@on_sqlite
def test_the_age_of_an_orphan_is_its_modification_time(lake: DuckLake) -> None:
    lake.write(rows(1), "t", mode="append")
    old = stray(lake, f"ducklake-{WRITE_ID}-{mark(lake)}-old.parquet")
    stray(lake, "young.parquet")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    found = plan_orphans(lake.config, datetime.now(UTC) - timedelta(hours=1))
    assert (found.paths, found.young) == ((old,), 1)


@on_sqlite
def test_a_read_only_lake_refuses_to_delete_orphans(lake: DuckLake, make_lake: MakeLake) -> None:
    lake.write(rows(1), "t", mode="append")
    with pytest.raises(ReadOnlyError):
        delete_orphans(make_lake(read_only=True, create_if_missing=False).config, LATER)
