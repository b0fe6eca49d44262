"""Every option that `set_option` accepts leaves the lake writable; options that break later writes are refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from ducklake_orch.config.lake import PERSISTED_OPTIONS
from tests.support.backends import SQLITE, catalogs
from tests.support.internal_names import plain
from tests.support.lakes import MakeLake

WHY = CommitInfo(author="me", message="why")
# A valid value of each accepted option.
VALUES: dict[str, Any] = {
    "auto_compact": True,
    "data_inlining_row_limit": 0,
    "target_file_size": "1MB",
    "rewrite_delete_threshold": 0.5,
    "expire_older_than": "8 days",
    "delete_older_than": "3 days",
    "parquet_compression": "zstd",
    "parquet_compression_level": 3,
    "parquet_version": 2,
    "parquet_row_group_size": 5000,
    "parquet_row_group_size_bytes": False,
    "hive_file_pattern": False,
    "sort_on_insert": False,
    "per_thread_output": True,
    "require_commit_message": True,
    "write_deletion_vectors": False,
}


def rows(start: int, stop: int) -> pa.Table:
    return pa.table({"i": list(range(start, stop))})


@catalogs(quick=[SQLITE], sql_writes=True)
@pytest.mark.parametrize("name", sorted(PERSISTED_OPTIONS - {"parquet_row_group_size_bytes"}))
def test_every_verb_works_after_an_accepted_option(name: str, make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.write(rows(0, 100), "t", mode="append")
    if name == "parquet_compression_level":
        lake.set_option("parquet_compression", "zstd")
    lake.set_option(name, VALUES[name])
    lake.write(rows(100, 200), "t", mode="append", commit=WHY)
    lake.execute("INSERT INTO t FROM range(200, 300)", commit=WHY).raise_for_error()
    lake.delete("t", where="i % 2 = 0", commit=WHY)
    lake.execute("DELETE FROM t WHERE i % 3 = 0", commit=WHY).raise_for_error()
    lake.maintain(operations=["flush", "rewrite", "merge"]).raise_for_error()
    expected = [(i,) for i in range(300) if i % 2 and i % 3]
    with plain(lake) as query:
        assert query("FROM t ORDER BY i") == expected
    assert sorted(lake.read("t").column(0).to_pylist()) == [i for (i,) in expected]
    assert lake.changes("t").num_rows > 300


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("parquet_row_group_size_bytes", "1MB", "`parquet_row_group_size`"),
        ("parquet_compression_level", 3, "`zstd`"),
        ("write_deletion_vectors", True, "Leave it off"),
    ],
)
def test_an_option_that_breaks_later_work_is_refused(name: str, value: Any, remedy: str, tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.create_table("t", {"i": "int"})
    for table in (None, "t"):
        with pytest.raises(errors.ConfigError) as refusal:
            lake.set_option(name, value, table=table)
        assert remedy in str(refusal.value)
    with pytest.raises(errors.ConfigError):
        lake.create_table("u", {"i": "int"}, options={name: value})
    assert name not in {option.name for option in lake.options()}


WRITES: dict[str, Callable[[DuckLake, CommitInfo | None], Any]] = {
    "write": lambda lake, why: lake.write(rows(0, 1), "t", mode="append", commit=why),
    "overwrite": lambda lake, why: lake.write(rows(0, 1), "t", mode="overwrite", commit=why),
    "new table": lambda lake, why: lake.write(rows(0, 1), "new", mode="append", commit=why),
    "merge": lambda lake, why: lake.write(rows(0, 1), "t", mode="merge", keys=["i"], commit=why),
    "delete": lambda lake, why: lake.delete("t", where="i = 1", commit=why),
    "update": lambda lake, why: lake.update("t", set={"i": "i + 1"}, where="i = 1", commit=why),
    "create_table": lambda lake, why: lake.create_table("u", {"i": "int"}, commit=why),
    "drop_table": lambda lake, why: lake.drop_table("t", commit=why),
    "truncate": lambda lake, why: lake.truncate("t", commit=why),
    "rollback": lambda lake, why: lake.rollback("t", 1, commit=why),
    "execute": lambda lake, why: lake.execute("INSERT INTO t VALUES (1)", commit=why).raise_for_error(),
    "atomic": lambda lake, why: lake.execute(["DELETE FROM t"], atomic=True, commit=why).raise_for_error(),
    "script": lambda lake, why: lake.execute("BEGIN; DELETE FROM t; COMMIT", commit=why).raise_for_error(),
}


@catalogs()
def test_a_lake_that_requires_commit_messages_refuses_writes_without_one(make_lake: MakeLake) -> None:
    lake = make_lake()
    lake.write(rows(0, 10), "t", mode="append")
    lake.write(rows(10, 20), "t", mode="append")
    lake.set_option("require_commit_message", True)
    before = lake.snapshots()
    for write in WRITES.values():
        with pytest.raises(errors.CommitMessageRequiredError) as refusal:
            write(lake, None)
        assert "commit=CommitInfo" in (refusal.value.remedy or "")
    assert lake.snapshots() == before
    result = WRITES["write"](lake, WHY)
    assert (lake.snapshots(1)[0].snapshot_id, lake.snapshots(1)[0].message) == (result.snapshot_id, "why")
    with_message = ["CALL ducklake_set_commit_message('lake', 'me', 'own')", "INSERT INTO t VALUES (1)"]
    if lake.config.catalog.type != "mysql":  # the engine inserts only once on MySQL
        lake.execute(with_message, atomic=True).raise_for_error()
        lake.execute(["BEGIN", *with_message, "COMMIT"]).raise_for_error()
        assert [snapshot.message for snapshot in lake.snapshots(2)] == ["own", "own"]


def test_sql_writes_to_an_encrypted_lake_load_the_needed_extension(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", encrypted=True)
    lake.create_table("t", {"i": "int"})
    lake.execute("INSERT INTO t FROM range(100)").raise_for_error()
    lake.execute("DELETE FROM t WHERE i % 2 = 0").raise_for_error()
    lake.maintain().raise_for_error()
    assert lake.read("t").num_rows == 50
    with plain(lake) as query:
        assert query("SELECT count(*), sum(i) FROM t") == [(50, 2500)]
    unaware = DuckLake.local(tmp_path / "lake")
    unaware.execute("INSERT INTO t FROM range(100)").raise_for_error()
    assert unaware.read("t").num_rows == 150


def test_files_have_the_compression_and_row_groups_of_the_options(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake")
    lake.set_option("parquet_compression", "zstd")
    lake.set_option("parquet_row_group_size", 4096)
    for table in ("whole", "other"):
        lake.create_table(table, {"i": "bigint"})
    lake.set_option("parquet_compression", "gzip", table="other")
    lake.set_option("parquet_row_group_size", 2048, table="other")
    for table, codec, size in (("whole", "ZSTD", 4096), ("other", "GZIP", 2048)):
        lake.write(rows(0, 10_000), table, mode="append")
        lake.execute(f"INSERT INTO {table} FROM range(10_000)").raise_for_error()
        for file in lake.table(table).files():
            metadata = parquet.read_metadata(file.path)
            assert metadata.row_group(0).column(0).compression == codec
            assert metadata.row_group(0).num_rows == size
