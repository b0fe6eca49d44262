"""Compares `changes_made` of each snapshot with the files and rows that begin and end at it."""

from pathlib import Path

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from tests.catalog.fsck.damage import damage, found, meta, path_of, value
from tests.support.backends import catalogs
from tests.support.lakes import MakeLake

NUMBERS = "SELECT range AS i, 'v' || range AS s FROM range(100)"


@pytest.fixture
def numbers(own: DuckLake) -> DuckLake:
    script = [
        f"CREATE TABLE t AS {NUMBERS}",
        "DELETE FROM t WHERE i < 20",
        f"INSERT INTO t {NUMBERS}",
        "INSERT INTO t VALUES (1000, 'inlined')",
    ]
    own.execute(script).raise_for_error()
    assert own.fsck(deep=True).findings == []
    return own


def test_a_live_file_that_was_ended_is_found(numbers: DuckLake) -> None:
    damage(numbers, "UPDATE ducklake_data_file SET end_snapshot = 4 WHERE data_file_id = 0")
    assert value(numbers, "SELECT count(*) FROM t") == 101
    assert ("ended-without-change", "main.t", path_of(numbers, 0)) in found(numbers.fsck())
    (finding,) = [finding for finding in numbers.fsck().findings if finding.code == "ended-without-change"]
    assert (finding.severity, finding.repairable) == ("error", False)
    assert finding.detail == "data file ends with snapshot 4, which records for its table only: inlined_insert"


def test_an_inlined_row_that_was_ended_is_found(numbers: DuckLake) -> None:
    damage(numbers, "UPDATE ducklake_inlined_data_1_1 SET end_snapshot = 4")
    assert value(numbers, "SELECT count(*) FROM t WHERE i = 1000") == 0
    assert [finding.code for finding in numbers.fsck().findings] == ["ended-without-change"]


def test_a_removed_delete_file_is_found(numbers: DuckLake) -> None:
    damage(numbers, "DELETE FROM ducklake_delete_file")
    assert value(numbers, "SELECT count(*) FROM t WHERE i < 20") == 40
    assert ("deletion-without-delete-file", "main.t", None) in found(numbers.fsck())


@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_a_removed_delete_file_of_every_verb_is_found(own: DuckLake, verb: str) -> None:
    own.write(pa.table({"i": list(range(1000)), "s": ["v"] * 1000}), "t", mode="append")
    if verb == "delete":
        own.delete("t", "i < 5")
    elif verb == "update":
        own.update("t", {"s": "'x'"}, "i < 5")
    else:
        own.write(pa.table({"i": [1, 2], "s": ["x", "y"]}), "t", mode="merge", keys=["i"])
    assert own.fsck(deep=True).findings == []
    damage(own, "DELETE FROM ducklake_delete_file")
    assert value(own, "SELECT count(*) FROM t WHERE i < 5 AND s = 'v'") == 5
    assert ("deletion-without-delete-file", "main.t", None) in found(own.fsck())


@pytest.mark.parametrize("where", ["i < 3", "i >= 0"])
def test_deletions_of_inlined_rows_have_no_finding_after_a_flush(own: DuckLake, where: str) -> None:
    own.write(pa.table({"i": list(range(5))}), "t", mode="append", inline="auto")
    own.delete("t", where)
    own.delete("t", "i = 3")
    own.write(pa.table({"i": [7]}), "t", mode="replace_where", where="i = 7")
    own.write(pa.table({"i": pa.array([], pa.int64())}), "t", mode="replace_where", where="i = 8")
    for _ in range(2):
        assert own.fsck(deep=True).findings == []
        own.maintain(operations=["flush"]).raise_for_error()


def test_files_that_changes_made_omits_are_found(numbers: DuckLake) -> None:
    damage(numbers, "UPDATE ducklake_snapshot_changes SET changes_made = 'altered_table:1' WHERE snapshot_id = 3")
    last = meta(numbers, "SELECT max(data_file_id) FROM ducklake_data_file")
    assert found(numbers.fsck()) == [("begun-without-change", "main.t", path_of(numbers, last))]


@pytest.mark.parametrize("table", ["record_count", "next_row_id", "file_size_bytes"])
def test_negative_counts_are_found(numbers: DuckLake, table: str) -> None:
    damage(numbers, f"UPDATE ducklake_table_stats SET {table} = -5")
    assert ("negative-count", "main.t", None) in found(numbers.fsck())


def test_transactions_drops_and_replacements_of_the_engine_have_no_finding(numbers: DuckLake) -> None:
    script = [
        f"BEGIN; INSERT INTO t {NUMBERS}; DELETE FROM t WHERE i BETWEEN 40 AND 60; COMMIT",
        "BEGIN; INSERT INTO t VALUES (300, 'z'); DELETE FROM t WHERE i = 300; COMMIT",
        f"BEGIN; CREATE TABLE q AS {NUMBERS}; DELETE FROM q WHERE i < 3; ALTER TABLE q ADD COLUMN j INTEGER; COMMIT",
        "CREATE SCHEMA z",
        f"CREATE TABLE z.a AS {NUMBERS}",
        "DELETE FROM z.a WHERE i < 20",
        "CREATE TABLE z.b AS SELECT 1 AS i",
        "DROP SCHEMA z CASCADE",
        f"CREATE OR REPLACE TABLE r AS {NUMBERS}",
        "CREATE OR REPLACE TABLE r AS SELECT 1 AS i",
        "TRUNCATE q",
        "MERGE INTO t USING (SELECT 1000 AS i) u USING (i) WHEN MATCHED THEN DELETE",
        "CHECKPOINT",
        "DELETE FROM t",
    ]
    with numbers.connect() as con:
        for statement in script:
            con.execute(statement)
    assert numbers.fsck().findings == []


@catalogs()
def test_every_verb_records_its_changes(make_lake: MakeLake, tmp_path: Path) -> None:
    lake = make_lake()

    def rows(first: int, last: int) -> pa.Table:
        return pa.table({"i": list(range(first, last)), "s": [f"v{n}" for n in range(first, last)]})

    for n in range(6):
        lake.write(rows(20 * n, 20 * n + 20), "t", mode="append")
    good = lake.snapshots(1)[0].snapshot_id
    lake.write(rows(200, 203), "t", mode="append", inline="auto")
    lake.delete("t", "i < 5")
    lake.delete("t", "i = 7")
    lake.update("t", {"s": "'x'"}, "i BETWEEN 30 AND 50")
    lake.write(rows(100, 300), "t", mode="merge", keys=["i"])
    lake.write(rows(0, 10), "t", mode="replace_where", where="i < 20")
    assert lake.fsck().findings == []
    keep = {"expire": {"enabled": False}}
    lake.maintain(MaintenancePolicy(**keep, rewrite={"delete_threshold": 0.01})).raise_for_error()
    assert lake.fsck().findings == []
    lake.rollback("t", good)
    lake.truncate("t")
    lake.write(rows(0, 10), "p", mode="overwrite", partition_by=["s"])
    lake.write(rows(5, 8), "p", mode="overwrite_partitions")
    report = lake.fsck(deep=True, storage=True)
    assert report.findings == [], str(report)
    everything = {"older_than": 0}
    policy = MaintenancePolicy(expire=everything, cleanup=everything, merge={"min_files": 2}, force=True)
    lake.maintain(policy).raise_for_error()
    report = lake.fsck(deep=True, storage=True)
    assert report.findings == [], str(report)
