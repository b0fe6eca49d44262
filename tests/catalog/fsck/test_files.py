"""Data files: duplicate paths, paths that cleanup misreads, and files without a table."""

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from tests.catalog.fsck.damage import damage, found, meta, path_of, refused, repaired, rows, value

COPY_OF_FILE_0 = (
    "INSERT INTO ducklake_data_file SELECT 3, table_id, begin_snapshot, {end}, file_order, path, path_is_relative,"
    " file_format, record_count, file_size_bytes, footer_size, 101, partition_id, encryption_key, mapping_id,"
    " partial_max FROM ducklake_data_file WHERE data_file_id = 0"
)
ORPHANS = "SELECT path FROM ducklake_delete_orphaned_files('lake', cleanup_all => true, dry_run => true)"
CLEANUP = "SELECT path FROM ducklake_cleanup_old_files('lake', cleanup_all => true, dry_run => true)"


def parquet(path: Path, sql: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    duckdb.connect().execute(f"COPY ({sql}) TO '{path}' (FORMAT parquet)")
    return str(path)


class TestDuplicatePaths:
    def test_a_file_registered_twice_is_read_twice(self, own: DuckLake, tmp_path: Path) -> None:
        file = parquet(tmp_path / "outside.parquet", "SELECT range AS i FROM range(50)")
        add = f"CALL ducklake_add_data_files('lake', 't', '{file}')"
        own.execute(["CREATE TABLE t (i BIGINT)", add, add]).raise_for_error()
        assert ("path-lives-twice", "main.t", file) in found(own.fsck())
        assert value(own, "SELECT count(*) FROM t") == 100

    def test_a_file_registered_under_two_spellings_or_in_two_tables_is_found(
        self, own: DuckLake, tmp_path: Path
    ) -> None:
        file = parquet(tmp_path / "outside.parquet", "SELECT range AS i FROM range(50)")
        other = str(tmp_path / "." / "x" / ".." / "outside.parquet").replace(str(tmp_path), f"{tmp_path}/./")
        for table, path in (("t", file), ("u", other)):
            (tmp_path / "x").mkdir(exist_ok=True)
            add = f"CALL ducklake_add_data_files('lake', '{table}', '{path}')"
            own.execute([f"CREATE TABLE {table} (i BIGINT)", add]).raise_for_error()
        (finding,) = own.fsck().findings
        assert (finding.code, finding.table) == ("path-lives-twice", "main.t")
        assert "of tables 1, 2" in finding.detail

    def test_cleanup_deletes_a_live_file_whose_path_was_also_ended(self, own: DuckLake) -> None:
        own.execute(["CREATE TABLE t AS SELECT range AS i FROM range(50)", "CREATE TABLE u (i INTEGER)"])
        damage(own, COPY_OF_FILE_0.format(end=2).replace("SELECT 3", "SELECT 1"))
        assert ("path-lives-and-ended", "main.t", path_of(own, 0)) in found(own.fsck())
        assert value(own, "SELECT sum(i) FROM t") == 1225
        expire = "CALL ducklake_expire_snapshots('lake', versions => [0, 1])"
        cleanup = "CALL ducklake_cleanup_old_files('lake', cleanup_all => true)"
        own.execute([expire, cleanup], force=True).raise_for_error()
        assert "No such file" in refused(own, "SELECT sum(i) FROM t")

    def test_a_live_file_scheduled_for_deletion_is_unscheduled(self, lake: DuckLake) -> None:
        stored = path_of(lake, 0).removeprefix(str(lake.config.data_path))
        damage(
            lake,
            f"INSERT INTO ducklake_files_scheduled_for_deletion VALUES (0, '{stored}', 1, '2020-01-01')",
            "INSERT INTO ducklake_files_scheduled_for_deletion VALUES (77, 'main/t/old.parquet', 1, '2020-01-01')",
        )
        assert (path_of(lake, 0),) in rows(lake, CLEANUP)
        assert repaired(lake) == [("scheduled-but-in-use", "main.t", path_of(lake, 0))]
        assert [Path(path).name for (path,) in rows(lake, CLEANUP)] == ["old.parquet"]


class TestUnusualPaths:
    def test_noncanonical_paths_are_orphans_to_the_engine_until_repaired(self, own: DuckLake) -> None:
        folders = ["main//t", "main/./t", "main/t/../t", "./main/t", "/main/t"]
        own.execute(["CREATE TABLE t (i INTEGER)", *["INSERT INTO t SELECT range FROM range(50)"] * len(folders)])
        plain = [path_of(own, n) for n in range(len(folders))]
        for n, folder in enumerate(folders):
            odd = f"'{own.config.data_path}{folder}/' || path"
            damage(own, f"UPDATE ducklake_data_file SET path = {odd}, path_is_relative = 0 WHERE data_file_id = {n}")
        assert sorted(path for (path,) in rows(own, ORPHANS)) == plain
        assert {finding[:2] for finding in repaired(own)} == {("odd-path", "main.t")}
        assert rows(own, ORPHANS) == []
        assert [path_of(own, n) for n in range(len(folders))] == plain
        assert value(own, "SELECT sum(i) FROM t") == 5 * 1225

    def test_paths_behind_a_symbolic_link_are_repaired_with_a_storage_check(
        self, own: DuckLake, tmp_path: Path
    ) -> None:
        own.execute("CREATE TABLE t AS SELECT range AS i FROM range(50)").raise_for_error()
        plain = Path(path_of(own, 0))
        (tmp_path / "link").symlink_to(plain.parent)
        damage(own, f"UPDATE ducklake_data_file SET path = '{tmp_path}/link/{plain.name}', path_is_relative = 0")
        assert own.fsck().findings == []
        assert rows(own, ORPHANS) == [(str(plain),)]
        assert repaired(own, storage=True) == [("odd-path", "main.t", f"{tmp_path}/link/{plain.name}")]
        assert rows(own, ORPHANS) == []

    def test_a_path_with_an_alias_of_its_scheme_is_found(self, lake: DuckLake) -> None:
        damage(
            lake,
            "UPDATE ducklake_metadata SET value = 's3://bucket/lake/' WHERE key = 'data_path'",
            "UPDATE ducklake_data_file SET path = 's3a://bucket/lake/main/t/' || path, path_is_relative = 0"
            " WHERE data_file_id = 0",
        )
        assert [finding[:2] for finding in found(lake.fsck())] == [("odd-path", "main.t")]

    def test_unusual_paths_outside_the_data_path_have_no_finding(self, own: DuckLake, tmp_path: Path) -> None:
        file = parquet(tmp_path / "out[1] it is" / "a*.parquet", "SELECT range AS i FROM range(50)")
        spelled = file.replace("/out[", "//out[")
        own.execute("CREATE TABLE t (i BIGINT)").raise_for_error()
        with own.connect() as con:
            pattern = spelled.replace("[1]", "[[]1]").replace("*", "[*]")
            con.execute(f"CALL ducklake_add_data_files('lake', 't', '{pattern}')")
        assert own.fsck(deep=True, storage=True).findings == []


class TestFileOwnership:
    def test_a_live_file_of_a_dropped_table_is_ended(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_data_file SET end_snapshot = NULL WHERE data_file_id = 6")
        assert [finding[:2] for finding in repaired(lake)] == [("file-of-dropped-table", "main.gone")]
        assert meta(lake, "SELECT end_snapshot FROM ducklake_data_file WHERE data_file_id = 6") == 11

    def test_a_file_of_an_unknown_table_is_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_data_file SET table_id = 99 WHERE data_file_id = 7")
        assert ("file-without-table", "table 99", None) in found(lake.fsck())

    def test_two_files_with_the_same_row_ids_are_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_data_file SET row_id_start = 40 WHERE data_file_id = 1")
        (finding,) = lake.fsck().findings
        assert (finding.code, finding.table, finding.file) == ("row-ids-overlap", "main.t", path_of(lake, 1))
        assert finding.detail == "row ids start at 40, data file 0 has row ids up to 49"
        assert value(lake, "SELECT count(DISTINCT rowid) FROM t") < value(lake, "SELECT count(*) FROM t")

    def test_a_partial_max_out_of_range_is_found(self, lake: DuckLake) -> None:
        damage(
            lake,
            "UPDATE ducklake_data_file SET partial_max = 1 WHERE data_file_id = 0",
            "UPDATE ducklake_data_file SET partial_max = 99 WHERE data_file_id = 1",
        )
        assert sorted(found(lake.fsck())) == sorted(
            ("partial-max-out-of-range", "main.t", path_of(lake, n)) for n in (0, 1)
        )


class TestEncryptionKeys:
    def test_an_unencrypted_file_in_an_encrypted_lake_makes_every_read_fail(self, tmp_path: Path) -> None:
        lake = DuckLake.local(tmp_path / "lake", encrypted=True, extensions=["httpfs"])
        file = parquet(tmp_path / "outside.parquet", "SELECT range AS i FROM range(50)")
        sql = ["CREATE TABLE t AS SELECT range AS i FROM range(50)", "DELETE FROM t WHERE i < 20"]
        lake.execute(sql).raise_for_error()
        assert lake.fsck(deep=True, storage=True).findings == []
        lake.execute(f"CALL ducklake_add_data_files('lake', 't', '{file}')").raise_for_error()
        assert found(lake.fsck(deep=True)) == [("file-without-key", "main.t", file)]
        assert "does not have an encryption key" in refused(lake, "FROM t")

    def test_an_encrypted_file_in_an_unencrypted_lake_is_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_data_file SET encryption_key = 'AAAA' WHERE data_file_id = 1")
        assert found(lake.fsck()) == [("file-with-key", "main.t", path_of(lake, 1))]


LATE = pa.schema({"n": pa.int32(), "s": pa.string()})


class TestPartitionsAndMappings:
    def test_an_unknown_name_mapping_is_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_data_file SET mapping_id = 5 WHERE data_file_id = 1")
        assert found(lake.fsck()) == [("unknown-mapping", "main.t", path_of(lake, 1))]
        assert "Unknown name map" in refused(lake, "SELECT sum(i) FROM t")

    def test_an_unknown_partition_spec_is_found(self, lake: DuckLake) -> None:
        damage(lake, "UPDATE ducklake_data_file SET partition_id = 77 WHERE data_file_id = 4")
        assert [finding[:2] for finding in found(lake.fsck())] == [
            ("unknown-partition-spec", "main.p"),
            ("partition-values-do-not-fit", "main.p"),
        ]

    @pytest.mark.parametrize("before", ["", "n", "bucket(4, s)"])
    def test_a_file_written_before_a_bucket_key_hides_rows(self, lake: DuckLake, before: str) -> None:
        keys = f"SET PARTITIONED BY ({before})" if before else "RESET PARTITIONED BY"
        lake.execute(["CREATE TABLE late (n INTEGER, s VARCHAR)", f"ALTER TABLE late {keys}"]).raise_for_error()
        lake.execute("INSERT INTO late SELECT 5, '+&;' FROM range(20)").raise_for_error()
        assert lake.fsck().findings == []
        lake.execute("ALTER TABLE late SET PARTITIONED BY (bucket(2, s))").raise_for_error()
        (finding,) = lake.fsck().findings
        assert (finding.code, finding.detail) == ("file-without-bucket", "no bucket(2) of s")
        assert value(lake, "SELECT count(*) FROM late WHERE s = '+&;'") == 0
        lake.write(pa.table({"n": [5] * 20, "s": ["+&;"] * 20}).cast(LATE), "late", mode="overwrite")
        assert lake.fsck().findings == []
        assert value(lake, "SELECT count(*) FROM late WHERE s = '+&;'") == 20

    def test_a_file_without_its_bucket_value_hides_rows(self, lake: DuckLake) -> None:
        assert value(lake, "SELECT count(*) FROM p WHERE i = 0") == 1
        damage(lake, "DELETE FROM ducklake_file_partition_value WHERE data_file_id = 4")
        (finding,) = lake.fsck().findings
        assert (finding.code, finding.table) == ("partition-values-do-not-fit", "main.p")
        assert finding.detail == "layout 3 has keys [0], the file has values for []"
        assert value(lake, "SELECT count(*) FROM p WHERE i = 0") == 0

    def test_the_engines_duplicate_key_index_for_one_column_is_found(self, own: DuckLake, tmp_path: Path) -> None:
        sql = "SELECT TIMESTAMP '2024-03-05' AS ts FROM range(50)"
        file = parquet(tmp_path / "year=2024" / "month=3" / "f.parquet", sql)
        own.execute(
            [
                "CREATE TABLE t (ts TIMESTAMP)",
                "ALTER TABLE t SET PARTITIONED BY (year(ts), month(ts))",
                f"CALL ducklake_add_data_files('lake', 't', '{file}')",
            ]
        ).raise_for_error()
        (finding,) = own.fsck().findings
        assert (finding.code, finding.file) == ("partition-values-do-not-fit", file)
        assert "[0, 1], the file has values for [1, 1]" in finding.detail

    def test_files_of_one_partition_in_two_folders_break_the_engines_merge(self, own: DuckLake, tmp_path: Path) -> None:
        own.execute(
            [
                "CREATE TABLE t (i BIGINT, p BIGINT)",
                "ALTER TABLE t SET PARTITIONED BY (p)",
                "INSERT INTO t SELECT range, 1 FROM range(50)",
                "INSERT INTO t SELECT range, 2 FROM range(50)",
            ]
        ).raise_for_error()
        file = parquet(tmp_path / "elsewhere" / "p=1" / "f.parquet", "SELECT range AS i, 1 AS p FROM range(50)")
        assert own.fsck().findings == []
        own.execute(f"CALL ducklake_add_data_files('lake', 't', '{file}')").raise_for_error()
        assert own.fsck().findings == []  # the engine compares only the end of the folder
        stranger = parquet(tmp_path / "elsewhere" / "p=%31" / "f.parquet", "SELECT range AS i, 1 AS p FROM range(50)")
        own.execute(f"CALL ducklake_add_data_files('lake', 't', '{stranger}')").raise_for_error()
        assert found(own.fsck()) == [("scattered-partition", "main.t", stranger)]
        assert value(own, "SELECT count(*) FROM t") == 200
        assert "different hive partition path" in refused(own, "CALL ducklake_merge_adjacent_files('lake', 't')")


def test_a_mapping_that_lost_a_column_is_found(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.create_table("t", pa.schema([("k", pa.int64()), ("v", pa.string()), ("missing", pa.string())]))
    pq.write_table(pa.table({"k": [1], "v": ["a"]}), tmp_path / "added.parquet")
    lake.add_files("t", [tmp_path / "added.parquet"], copy=True, allow_missing=True)
    assert lake.fsck().findings == []
    damage(lake, "DELETE FROM ducklake_name_mapping WHERE source_name = 'v'")
    (finding,) = lake.fsck().findings
    assert (finding.code, finding.table) == ("mapping-lacks-column", "main.t")
    assert finding.detail.endswith("does not name column 2")
    damage(lake, "UPDATE ducklake_name_mapping SET source_name = 'other'")
    codes = [found.code for found in lake.fsck(deep=True).findings]
    assert codes == ["mapping-lacks-column", "mapping-names-no-column"]
