"""The paths of added files: values in folder names, duplicate files, and copies."""

import datetime as dt
from functools import partial
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from ducklake_orch.catalog.metadata import canonical
from tests.support.added_files import (
    Rows,
    catalog,
    local_lake,
    make,
    rows,
    write,
)
from tests.support.refusals import refused


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return local_lake(tmp_path)


class TestDuplicateFiles:
    def check_second_add_refused(self, lake: DuckLake, first: Any, second: Any, *words: str, **options: Any) -> None:
        lake.add_files("t", first)
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", second, **options), *words)
        assert rows(lake, "SELECT count(*) FROM t") == [(1,)]

    def test_a_file_is_added_once(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "it's f.parquet", {"a": [1]})
        self.check_second_add_refused(lake, path, path, path, "table `main.t` has it")
        # A copy would also duplicate the rows.
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path, copy=True), path)

    def test_a_file_is_added_once_under_any_spelling_of_its_path(
        self, lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "real" / "f.parquet", {"a": [1]})
        (tmp_path / "link").symlink_to(tmp_path / "real")
        monkeypatch.chdir(tmp_path)
        self.check_second_add_refused(lake, path, "real//./f.parquet", path)
        for other in (
            "link/f.parquet",
            f"file://{path}",
            "../*/rea?/f.parquet",
            tmp_path / "link" / ".." / "link" / "f.parquet",
        ):
            refused(errors.DuplicateFileError, partial(lake.add_files, "t", other), path)

    def test_the_same_file_twice_in_one_call_is_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        both = [path, f"{tmp_path}/*.parquet"]
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", both), "given more than once", path, "*.parquet")

    def test_a_file_of_another_table_can_only_be_copied(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        make(lake, "a BIGINT", name="other")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("other", path)
        # If one table retires the file, it would be deleted for both.
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path), "`main.other`", "copy=True")
        assert lake.add_files("t", path, copy=True).rows_written == 1

    def test_a_file_scheduled_for_deletion_is_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        lake.execute("DELETE FROM t").raise_for_error()
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path), "up to snapshot 3", "expires")
        lake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())", force=True).raise_for_error()
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path), "scheduled for deletion")
        assert lake.add_files("t", path, copy=True).rows_written == 1

    def test_of_two_concurrent_calls_with_one_file_only_one_adds_it(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        together = Barrier(2)
        outcomes: list[object] = []

        def add() -> None:
            together.wait()
            try:
                outcomes.append(lake.add_files("t", path).rows_written)
            except errors.DuplicateFileError as error:
                outcomes.append(type(error))

        threads = [Thread(target=add) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(map(str, outcomes)) == ["1", str(errors.DuplicateFileError)]
        assert rows(lake, "FROM t") == [(1,)]


class TestPaths:
    def stored(self, lake: DuckLake) -> Rows:
        return catalog(lake, "SELECT path, path_is_relative::BOOLEAN FROM ducklake_data_file ORDER BY data_file_id")

    def orphans(self, lake: DuckLake) -> Rows:
        return rows(lake, "CALL ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)")

    def test_files_in_the_table_folder_get_relative_paths(
        self, lake: DuckLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make(lake, "a BIGINT", partition_by="a")
        folder = tmp_path / "lake.files" / "main" / "t"
        write(folder / "a=1" / "f.parquet", {"a": [1]})
        write(folder / "g.parquet", {"a": [2]})
        (tmp_path / "link").symlink_to(tmp_path / "lake.files")
        monkeypatch.chdir(folder)
        lake.add_files("t", ["a=1/f.parquet", tmp_path / "link" / "main" / "t" / "g.parquet"])
        assert self.stored(lake) == [("a=1/f.parquet", True), ("g.parquet", True)]
        assert self.orphans(lake) == []
        assert rows(lake, "FROM t ORDER BY a") == [(1,), (2,)]

    def test_files_elsewhere_in_the_data_path_are_not_orphans(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "lake.files" / "arrow_storage_type" / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        assert self.stored(lake) == [(path, False)]
        assert self.orphans(lake) == []

    def test_a_lake_behind_a_symbolic_link_stores_relative_paths(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "link").symlink_to(tmp_path / "real")
        lake = DuckLake.local(tmp_path / "link" / "lake", data_inlining_row_limit=0)
        make(lake, "a BIGINT")
        lake.add_files("t", write(tmp_path / "real" / "lake.files" / "main" / "t" / "f.parquet", {"a": [1]}))
        assert self.stored(lake) == [("f.parquet", True)]
        assert self.orphans(lake) == []

    def test_adding_files_outside_the_data_path_warns_that_the_lake_owns_them(
        self, lake: DuckLake, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        assert "now belong to the lake" in caplog.text
        assert path in caplog.text

    @pytest.mark.parametrize(
        ("path", "kind", "words"),
        [
            ("{tmp}", errors.ConfigError, ["is a folder", "**/*.parquet"]),
            ("{tmp}/*.nothing", errors.FileNotUsableError, ["No file matches"]),
            ("{tmp}/gone.parquet", errors.FileNotUsableError, ["gone.parquet: the file does not exist"]),
            ("https://localhost/f.parquet", errors.ConfigError, ["copy=True"]),
        ],
    )
    def test_paths_without_a_file_are_refused(
        self, lake: DuckLake, tmp_path: Path, path: str, kind: type[errors.DuckLakeOrchError], words: list[str]
    ) -> None:
        make(lake, "a BIGINT")
        refused(kind, lambda: lake.add_files("t", path.format(tmp=tmp_path)), *words)

    def test_urls_have_one_canonical_form(self) -> None:
        cases = {
            ("s3a://b/x//y/./f.parquet", "s3://other/"): "s3://b/x/y/f.parquet",
            ("s3n://b/f.parquet", "/data/"): "s3://b/f.parquet",
            ("gcs://b/f.parquet", "gs://b/"): "gs://b/f.parquet",
            ("gs://b/f.parquet", "gcs://b/"): "gcs://b/f.parquet",
            ("azure://c/f.parquet", "az://c/"): "az://c/f.parquet",
            ("r2://b/f.parquet", "s3://b/"): "r2://b/f.parquet",
            ("file:///a//b/../f.parquet", "s3://b/"): "/a/f.parquet",
        }
        assert {given: canonical(*given) for given in cases} == cases
        refused(errors.ConfigError, lambda: canonical("abfss://c@account.dfs.core.windows.net/f", "az://c/"), "az://")


class TestCopies:
    def test_copies_are_in_the_folders_that_the_engine_uses(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "s VARCHAR, ts TIMESTAMP, n VARCHAR", partition_by="s, month(ts), bucket(4, s), n")
        lake.execute("INSERT INTO t VALUES ('a b/é', '2024-03-05', NULL)").raise_for_error()
        columns = {"s": ["a b/é"], "ts": [dt.datetime(2024, 3, 6)], "n": pa.nulls(1, pa.string())}
        path = write(tmp_path / "f.parquet", columns)
        result = lake.add_files("t", path, copy=True)
        theirs, ours = [Path(path) for (path,) in catalog(lake, "SELECT path FROM ducklake_data_file ORDER BY 1 DESC")]
        assert {theirs.parent, ours.parent} == {theirs.parent}
        write_id = lake.snapshots()[0].extra["ducklake_orch"]["write_id"]
        assert sum(f"ducklake-{write_id}-" in path.name for path in (theirs, ours)) == 1
        assert result.partitions[0].values["s"] == "a b/é"
        copies = list((tmp_path / "lake.files" / "main" / "t").rglob(f"ducklake-{write_id}-*.parquet"))
        assert [copy.read_bytes() for copy in copies] == [Path(path).read_bytes()]
        # The engine compacts only files of one folder.
        merged = rows(lake, "CALL ducklake_merge_adjacent_files('lake', 't')")
        assert merged[0][2:] == (2, 1)
        assert len(rows(lake, "FROM t")) == 2

    def test_copies_keep_values_that_only_the_path_holds(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "region VARCHAR, day DATE, x BIGINT", partition_by="region")
        write(tmp_path / "Region=a%20b" / "Day=2024-01-02" / "f.parquet", {"x": [1]})
        lake.add_files("t", f"{tmp_path}/Reg*/**/*.parquet", copy=True)
        ((path, relative),) = catalog(lake, "SELECT path, path_is_relative::BOOLEAN FROM ducklake_data_file")
        assert (path.rpartition("/")[0], relative) == ("region=a%20b/Day=2024-01-02", True)
        assert rows(lake, "FROM t") == [("a b", dt.date(2024, 1, 2), 1)]

    def test_partition_keys_may_have_any_name(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, """ts TIMESTAMP, "it's" VARCHAR, x BIGINT""", partition_by="""day(ts), "it's\"""")
        ts = dt.datetime(2024, 3, 6)
        write(tmp_path / "it's=a" / "f.parquet", {"ts": [ts], "x": [1]})
        lake.add_files("t", f"{tmp_path}/it's=*/*.parquet", copy=True)
        lake.execute("INSERT INTO t VALUES ('2024-03-06', 'a', 2)").raise_for_error()
        parents = {Path(path).parent for (path,) in catalog(lake, "SELECT path FROM ducklake_data_file")}
        assert parents == {Path("day=6/it%27s=a")}
        assert rows(lake, "FROM t ORDER BY x") == [(ts, "a", 1), (ts, "a", 2)]
        assert [(row["it's"], row["x"]) for row in lake.read("t").to_pylist()] == [("a", 1), ("a", 2)]
        assert lake.fsck(storage=True).findings == []

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_a_copy_below_a_folder_with_another_value_is_refused(self, tmp_path: Path, dry_run: bool) -> None:
        lake = local_lake(tmp_path / "env=prod")
        make(lake, "env VARCHAR, x BIGINT")
        path = write(tmp_path / "env=test" / "f.parquet", {"x": [1]})
        added = partial(lake.add_files, "t", path, copy=True, dry_run=dry_run)
        refused(errors.DataError, added, "`env=prod` for `env=test`", "lake.write")
        assert list((tmp_path / "env=prod").rglob("*.parquet")) == []
        write(tmp_path / "env=prod" / "f.parquet", {"x": [1]})
        assert lake.add_files("t", f"{tmp_path}/env=prod/f.parquet", copy=True, dry_run=dry_run).rows_written == 1

    def test_the_source_files_are_kept(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path, copy=True)
        lake.execute("DROP TABLE t").raise_for_error()
        lake.execute("CALL ducklake_expire_snapshots('lake', older_than => now())", force=True).raise_for_error()
        lake.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)", force=True).raise_for_error()
        assert list((tmp_path / "lake.files").rglob("*.parquet")) == []
        assert Path(path).exists()

    def test_a_failed_call_leaves_no_copy(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "a BIGINT")
        path = write(tmp_path / "f.parquet", {"a": [1]})
        lake.add_files("t", path)
        refused(errors.DuplicateFileError, lambda: lake.add_files("t", path, copy=True))
        assert list((tmp_path / "lake.files").rglob("*.parquet")) == []


class TestValuesInPaths:
    """A column that only folder names hold: every reader and every rewrite takes its value from the same folder."""

    @pytest.mark.parametrize(
        ("folders", "kind", "value"),
        [
            ("x%3D1=foo/x=2", "VARCHAR", "2"),
            ("x=1=2/x=5", "VARCHAR", "5"),
            ("x=5/y=x=7", "VARCHAR", "5"),
            ("x=a%20b%2Fc", "VARCHAR", "a b/c"),
            ("x=", "VARCHAR", ""),
            ("x=__HIVE_DEFAULT_PARTITION__", "VARCHAR", None),
            ("x=null", "BIGINT", None),
            ("x=", "BIGINT", None),
            ("x=7/x=7", "BIGINT", 7),
        ],
    )
    @pytest.mark.parametrize("copy", [True, False])
    def test_a_value_from_the_path_survives_update_and_merge(
        self, lake: DuckLake, tmp_path: Path, folders: str, kind: str, value: Any, copy: bool
    ) -> None:
        make(lake, f"n BIGINT, x {kind}")
        for number in range(2):
            write(tmp_path / "in" / folders / f"{number}.parquet", {"n": [number]})
        lake.add_files("t", f"{tmp_path}/in/**/*.parquet", copy=copy)

        def both_read(expected: Rows) -> None:
            assert rows(lake, "FROM t ORDER BY n") == expected
            assert [(row["n"], row["x"]) for row in lake.read("t").sort_by("n").to_pylist()] == expected

        both_read([(0, value), (1, value)])
        lake.update("t", {"n": "n + 5"}, where="n = 1")
        both_read([(0, value), (6, value)])
        lake.write(
            pa.table({"n": [9], "x": pa.array([value], pa.int64() if kind == "BIGINT" else pa.string())}),
            "t",
            mode="append",
        )
        report = lake.maintain({"merge": {"min_files": 2, "engine": "duckdb"}}, ["merge"])
        assert report.status == "ok"
        both_read([(0, value), (6, value), (9, value)])

    def test_url_encoded_key_names_are_decoded(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, """n BIGINT, "it's" VARCHAR""")
        write(tmp_path / "it%27s=a" / "f.parquet", {"n": [1]})
        lake.add_files("t", f"{tmp_path}/it*/f.parquet")
        assert rows(lake, "FROM t") == [(1, "a")]
        assert lake.read("t").to_pylist() == [{"n": 1, "it's": "a"}]

    def test_a_path_with_contradicting_values_is_refused(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, "n BIGINT, x VARCHAR")
        path = write(tmp_path / "x=1" / "X=2" / "f.parquet", {"n": [1]})
        refused(errors.DataError, lambda: lake.add_files("t", path), "`x=1` and `X=2`")

    def test_a_column_name_may_contain_another_name_and_an_equals_sign(self, lake: DuckLake, tmp_path: Path) -> None:
        make(lake, """n BIGINT, a VARCHAR, "a=b" VARCHAR""", partition_by='"a=b"')
        path = write(tmp_path / "a=two" / "f.parquet", {"n": [1], "a=b": ["one"]})
        lake.add_files("t", path, copy=True)
        lake.update("t", {"n": "n + 1"})
        assert rows(lake, "FROM t") == [(2, "two", "one")]
