"""Clean-up deletes scheduled files and no file of a table. Files that cannot be deleted stay scheduled."""

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.commit import record_lease, remove_lease
from ducklake_orch.catalog.lifecycle import Retention, clean_up, expire, plan_cleanup
from ducklake_orch.catalog.lifecycle.cleanup import Cleanup
from ducklake_orch.catalog.search import planning
from ducklake_orch.engine.bulk_delete import delete_files
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.instances import working_connection
from ducklake_orch.engine.quoting import literal
from ducklake_orch.errors import ReadOnlyError
from tests.catalog.fsck.damage import damage
from tests.servers.refusing import refusing_to_delete
from tests.servers.s3 import MotoS3
from tests.support.backends import CATALOGS, LOCAL, POSTGRES, S3_MEMORY, SQLITE, Backend, backends, catalogs, on_sqlite
from tests.support.fault_points import dies_at, lose_the_answer, once_at
from tests.support.lakes import MakeLake, Servers
from tests.support.metadata_dump import dump

LATER = datetime.now(UTC) + timedelta(days=1)
NOTHING = Cleanup(files=0, paths=(), needed_by_writes=0, in_use=(), failed={})
ODD_NAMES = [*(Backend(catalog, LOCAL) for catalog in CATALOGS), Backend(POSTGRES, S3_MEMORY)]


def rows(*values: int) -> pa.Table:
    return pa.table({"a": pa.array(values, pa.int64())})


def with_old_files(lake: DuckLake, count: int = 3) -> None:
    """Create a table, replace its files repeatedly, and expire all snapshots but the last."""
    for number in range(count + 1):
        lake.write(rows(number), "t", mode="overwrite")
    expire(lake.config, Retention(LATER))


def plan(lake: DuckLake, before: datetime = LATER) -> Cleanup:
    with planning(lake.config, "Planning") as metadata:
        return plan_cleanup(metadata, before)


def scheduled(lake: DuckLake) -> int:
    return len(dump(lake)["ducklake_files_scheduled_for_deletion"].to_pylist())


def values(lake: DuckLake) -> list[int]:
    found: list[int] = lake.read("t").column("a").to_pylist()
    return found


@backends()
def test_cleanup_deletes_scheduled_files_and_no_others(lake: DuckLake) -> None:
    with_old_files(lake)
    before = dump(lake)
    planned = plan(lake)
    assert dump(lake) == before
    assert planned.files == len(planned.paths) == 3
    assert clean_up(lake.config, LATER) == planned
    assert scheduled(lake) == 0
    assert values(lake) == [3]
    assert lake.fsck(deep=True, storage=True).counts == {}
    assert "parquet" not in repr(planned), "the paths of all files would be a long line"
    assert clean_up(lake.config, LATER) == NOTHING


@catalogs(quick=[SQLITE])
def test_a_cleanup_whose_answer_is_lost_is_repeated(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    with_old_files(lake)
    once_at(monkeypatch, "commit.after", lose_the_answer)
    assert clean_up(lake.config, LATER).files == 3
    assert scheduled(lake) == 0


@catalogs()
def test_cleanup_keeps_recently_scheduled_files(lake: DuckLake) -> None:
    with_old_files(lake)
    now, minutes = datetime.now(UTC), timedelta(minutes=2)
    assert clean_up(lake.config, now - minutes) == plan(lake, now - minutes) == NOTHING
    assert plan(lake, now + minutes).files == 3
    assert scheduled(lake) == 3
    first = plan(lake).paths[:1]
    assert clean_up(lake.config, LATER, only=first).paths == first
    assert scheduled(lake) == 2


@on_sqlite
def test_a_running_write_keeps_the_files_that_were_retired_since_it_began(lake: DuckLake) -> None:
    with_old_files(lake)
    scheduled_files = "ducklake_files_scheduled_for_deletion"
    first = f"data_file_id = (SELECT min(data_file_id) FROM {scheduled_files})"
    damage(lake, f"UPDATE {scheduled_files} SET schedule_start = '2000-01-01 00:00:00+00' WHERE {first}")
    write = Write("writing")
    record_lease(lake.config, write, 0)
    planned = plan(lake)
    assert (planned.files, planned.needed_by_writes) == (1, 2)
    assert plan(lake, datetime(1999, 1, 1, tzinfo=UTC)) == NOTHING  # the age still counts
    assert clean_up(lake.config, LATER) == planned
    remove_lease(lake.config, write)
    assert clean_up(lake.config, LATER).files == 2


@catalogs()
def test_cleanup_never_deletes_a_live_file(lake: DuckLake) -> None:
    with_old_files(lake)
    file = lake.table("t").files()[0].path
    odd = file.replace("/main/", "/main/../main//")
    with lake.connect_metadata(read_only=False) as con:
        for number, path in ((1000, file), (1001, odd)):
            columns = "data_file_id, path, path_is_relative, schedule_start"
            row = f"({number}, {literal(path)}, false, now())"
            con.execute(f"INSERT INTO ducklake_files_scheduled_for_deletion ({columns}) VALUES {row}")
    done = clean_up(lake.config, LATER)
    assert (done.files, done.in_use) == (3, (file, odd))
    assert os.path.exists(file)
    assert scheduled(lake) == 2
    assert values(lake) == [3]


@pytest.mark.parametrize("backend", [pytest.param(odd_name, id=str(odd_name)) for odd_name in ODD_NAMES], indirect=True)
@pytest.mark.parametrize("name", ["a\\b.parquet", "p%20q.parquet", "it's.parquet", 'a "b" é.parquet'])
def test_cleanup_keeps_a_live_file_with_an_unusual_name(lake: DuckLake, name: str) -> None:
    with_old_files(lake)
    file = lake.table("t").files()[0].path
    odd = f"{file.rpartition('/')[0]}/{name}"
    with working_connection(lake.config) as con:
        copy = f"COPY (FROM read_parquet({literal(file)})) TO {literal(odd)} (FORMAT parquet, RETURN_STATS true)"
        ((_, _, size, footer, *_),) = con.execute(copy).fetchall()
    stored, listed_as = literal(name), literal(odd)
    if lake.config.catalog.type == "mysql":
        stored, listed_as = stored.replace("\\", "\\\\"), listed_as.replace("\\", "\\\\")
    facts = f"path = {stored}, file_size_bytes = {size}, footer_size = {footer}"
    columns = "data_file_id, path, path_is_relative, schedule_start"
    row = f"(1000, {listed_as}, false, CURRENT_TIMESTAMP)"
    damage(
        lake,
        f"UPDATE ducklake_data_file SET {facts} WHERE end_snapshot IS NULL",
        f"INSERT INTO ducklake_files_scheduled_for_deletion ({columns}) VALUES {row}",
    )
    policy = {"cleanup": {"older_than": 0}, "force": True}
    planned = lake.plan_maintenance(policy, operations=["cleanup"])
    assert odd not in planned.operations[0].paths
    assert any(odd in warning for warning in planned.warnings)
    report = lake.maintain(planned).raise_for_error()
    assert odd in report.operations[0].reason
    assert any(odd in warning for warning in report.warnings)
    assert clean_up(lake.config, LATER).in_use == (odd,)
    with working_connection(lake.config) as con:
        listed = con.execute(f"SELECT file FROM glob({literal(f'{lake.config.data_path}**')})").fetchall()
    assert [path for (path,) in listed if unquote(path) == unquote(odd)] != []
    assert lake.execute("FROM t").rows == [{"a": 3}]


@catalogs()
def test_a_cleanup_that_was_killed_is_completed_by_the_next(lake: DuckLake) -> None:
    with_old_files(lake)
    paths = plan(lake).paths
    for point in ("files.deleted", "commit.before"):
        assert dies_at(point, lambda: clean_up(lake.config, LATER))
        assert scheduled(lake) == 3
        assert not any(map(os.path.exists, paths))
    assert clean_up(lake.config, LATER).paths == paths
    assert scheduled(lake) == 0
    assert lake.fsck(deep=True, storage=True).counts == {}


@on_sqlite
def test_a_file_that_cannot_be_deleted_stays_scheduled(lake: DuckLake) -> None:
    with_old_files(lake)
    stubborn = plan(lake).paths[1]
    os.unlink(stubborn)
    Path(stubborn, "inside").mkdir(parents=True)
    done = clean_up(lake.config, LATER)
    assert (done.files, list(done.failed)) == (2, [stubborn])
    assert scheduled(lake) == 1
    Path(stubborn, "inside").rmdir()
    Path(stubborn).rmdir()
    assert clean_up(lake.config, LATER).paths == (stubborn,)


@pytest.mark.parametrize("backend", [pytest.param(Backend(POSTGRES, S3_MEMORY), id="s3")], indirect=True)
def test_cleanup_deletes_the_objects_that_s3_does_not_refuse(make_lake: MakeLake, servers: Servers) -> None:
    lake = make_lake()
    with_old_files(lake, 12)
    paths = plan(lake).paths
    refused = set(paths[::2])
    server = servers.get(MotoS3)
    with refusing_to_delete(server.endpoint, lambda key: any(path.endswith(key) for path in refused)) as endpoint:
        storage = lake.config.storage.model_copy(update={"endpoint": endpoint})  # type: ignore[union-attr]
        done = clean_up(lake.config.model_copy(update={"storage": storage}), LATER)
    assert set(done.failed) == refused
    assert set(done.paths) == set(paths) - refused
    assert scheduled(lake) == 6
    assert set(clean_up(lake.config, LATER).paths) == refused
    assert values(lake) == [12]
    assert lake.fsck(deep=True, storage=True).counts == {}


@pytest.mark.parametrize("backend", [pytest.param(Backend(POSTGRES, S3_MEMORY), id="s3")], indirect=True)
def test_objects_are_deleted_in_batches_of_a_thousand(lake: DuckLake, servers: Servers) -> None:
    storage, client = lake.config.storage, servers.get(MotoS3)._client
    root = f"{lake.config.data_path}a b/"
    keys = [f"{root}{number}%20.parquet".removeprefix(f"s3://{storage.bucket}/") for number in range(1200)]  # type: ignore[union-attr]
    for key in keys:
        client.put_object(Bucket=storage.bucket, Key=key, Body=b"")  # type: ignore[union-attr]
    paths = [f"s3://{storage.bucket}/{key}" for key in keys]  # type: ignore[union-attr]
    assert delete_files(lake.config, [*paths, f"{root}not there.parquet"]) == {}
    assert servers.get(MotoS3).list_keys(storage.bucket) == []  # type: ignore[union-attr]


@on_sqlite
def test_a_read_only_lake_refuses_cleanup(lake: DuckLake, make_lake: MakeLake) -> None:
    with_old_files(lake)
    with pytest.raises(ReadOnlyError):
        clean_up(make_lake(read_only=True, create_if_missing=False).config, LATER)
