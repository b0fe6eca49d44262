"""`lake.add_files` commits one snapshot, once, on every catalog and storage."""

from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import CommitInfo, DuckLake, errors
from ducklake_orch.engine.quoting import literal
from tests.support.added_files import (
    NESTED,
    NESTED_TYPES,
    local_lake,
    make,
    rows,
    table_id,
    write,
)
from tests.support.backends import backends
from tests.support.lakes import MakeLake
from tests.support.refusals import refused


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return local_lake(tmp_path)


class TestCommit:
    def test_empty_files_are_skipped_and_named(
        self, lake: DuckLake, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(lake, "a BIGINT")
        empty = write(tmp_path / "empty.parquet", {"a": pa.array([], pa.int64())})
        full = write(tmp_path / "full.parquet", {"a": [1]})
        assert lake.add_files("t", [empty, full]).files_added == 1
        assert empty in caplog.text
        before = lake.snapshots()[0].snapshot_id
        result = lake.add_files("t", empty)
        assert (result.snapshot_id, result.files_added) == (before, 0)

    def test_a_retried_call_with_the_same_key_adds_no_file_twice(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        for copy in (False, True):
            first = lake.add_files("t", path, idempotency_key="load-1")
            again = lake.add_files("t", path, copy=copy, idempotency_key="load-1")
            assert (again.replayed, again.snapshot_id, again.rows_written) == (True, first.snapshot_id, 0)
        assert rows(lake, "FROM t") == [(1,)]

    def test_a_missing_table_is_named_in_the_error(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        refused(errors.ObjectNotFoundError, lambda: lake.add_files("tt", tmp_path / "f.parquet"), "`main.tt`", "main.t")

    def test_encrypted_lakes_are_refused_before_any_file_is_read(self, tmp_path: Path) -> None:
        lake = DuckLake.local(tmp_path / "lake", encrypted=True)
        make(lake, "a BIGINT")
        refused(errors.UnsupportedStatementError, lambda: lake.add_files("t", tmp_path / "gone.parquet"), "encrypted")

    def test_the_snapshot_records_author_and_message(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1, 2]})
        result = lake.add_files("t", path, commit=CommitInfo(author="me", message="initial load"))
        newest = lake.snapshots()[0]
        assert (newest.author, newest.message) == ("me", "initial load")
        assert newest.changes == [f"inserted_into_table:{table_id(lake)}"]
        assert result.to_dict()["mode"] == "add_files"

    def test_the_engine_can_change_added_rows(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, NESTED_TYPES)
        lake.add_files("t", write(tmp_path / "f.parquet", NESTED))
        lake.execute(
            [
                "UPDATE t SET i = 10 WHERE i = 1",
                "DELETE FROM t WHERE i = 2",
                "ALTER TABLE t RENAME COLUMN i TO j",
                "ALTER TABLE t DROP COLUMN m",
                "INSERT INTO t VALUES (3, [3], NULL, NULL)",
                "CALL ducklake_rewrite_data_files('lake', 't', delete_threshold => 0)",
                "CALL ducklake_merge_adjacent_files('lake', 't')",
            ]
        ).raise_for_error()
        assert rows(lake, "SELECT j, l FROM t ORDER BY j") == [(3, [3]), (10, [1])]
        assert len(rows(lake, "FROM t AT (VERSION => 2)")) == 2


@backends()
def test_files_are_added_and_copied_on_every_backend(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    make(lake, "id BIGINT, s VARCHAR, l BIGINT[]", partition_by="s")
    root = f"{lake.config.data_path}arrow_storage_type"
    if "://" not in root:
        Path(root).mkdir(parents=True)
    with lake.connect() as con:
        for n in range(3):
            sql = f"SELECT range AS id, 'part {n % 2}' AS s, [range, NULL] AS l FROM range({n + 1})"
            con.execute(f"COPY ({sql}) TO {literal(f'{root}/file {n}.parquet')} (FORMAT parquet)")
    planned = lake.add_files("t", f"{root}/*.parquet", copy=True, dry_run=True)
    assert (planned.files_added, planned.rows_written, planned.snapshot_id) == (3, 6, lake.snapshots(1)[0].snapshot_id)
    assert not lake.table("t").files()
    result = lake.add_files("t", [f"{root}/file 0.parquet", f"{root}/./file 1.parquet"])
    assert (result.files_added, result.rows_written) == (2, 3)
    copied = lake.add_files("t", f"{root}/file 2*", copy=True)
    assert copied.partitions[0].values == {"s": "part 0"}
    expected = [(0, "part 0", [0, None]), (0, "part 0", [0, None]), (0, "part 1", [0, None])]
    expected += [(1, "part 0", [1, None]), (1, "part 1", [1, None]), (2, "part 0", [2, None])]
    assert rows(lake, "FROM t ORDER BY id, s") == expected
    assert rows(lake, "SELECT id FROM t WHERE s = 'part 1' ORDER BY id") == [(0,), (1,)]
    for dry_run in (True, False):
        again = partial(lake.add_files, "t", f"{root}/file 0.parquet", dry_run=dry_run)
        refused(errors.DuplicateFileError, again, "file 0.parquet")
    orphans = rows(lake, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)")
    assert orphans == [(f"{root}/file 2.parquet",)]
