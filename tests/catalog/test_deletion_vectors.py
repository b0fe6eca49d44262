"""Deletion vectors, as the extension writes them with the option `write_deletion_vectors`."""

import random
import struct
from pathlib import Path
from zlib import crc32

import duckdb
import pyarrow as pa
import pytest
from pyroaring import BitMap64

from ducklake_orch import DuckLake
from ducklake_orch.catalog.metadata import DeleteFile, reading
from ducklake_orch.catalog.parquet import deletes_sql
from ducklake_orch.catalog.parquet.deletion_vectors import decoded
from ducklake_orch.catalog.scan import plan_scan
from ducklake_orch.engine.quoting import table_name
from ducklake_orch.errors import FileNotUsableError
from tests.support.backends import SQLITE, catalogs
from tests.support.lakes import MakeLake
from tests.support.readers_of_the_past import Past

COMPACT = {"merge": {"min_files": 2, "settled_after": 0}, "rewrite": {"delete_threshold": 0.01}}


def rows(*keys: int) -> pa.Table:
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [f"v{key}" for key in keys]})


def delete_by_sql(lake: DuckLake, *conditions: str) -> None:
    """Let the extension delete rows, with deletion vectors."""
    with lake.connect() as con:
        con.execute("CALL ducklake_set_option('lake', 'write_deletion_vectors', true)")
        for condition in conditions:
            con.execute(f"DELETE FROM t WHERE {condition}")


def deletes(lake: DuckLake) -> list[DeleteFile]:
    with lake.reading() as session, reading(session, "Planning") as metadata:
        at = metadata.latest().snapshot_id
        files = plan_scan(metadata, metadata.table(table_name("t"), at), at).files
    return [delete for file in files for delete in file.deletes]


def keys(lake: DuckLake) -> list[int]:
    """Return the keys as this package and the extension read them, after a check of the lake.

    The extension replaces the delete file of a data file by a vector, which has one snapshot for all deletions. fsck
    then misses those of the earlier snapshots.
    """
    found = sorted(lake.read("t").column("k").to_pylist())
    with lake.connect() as con:
        assert con.execute("SELECT list(k ORDER BY k) FROM t").fetchall() == [(found,)]
    assert lake.fsck(deep=True, storage=True).counts.keys() <= {"deletion-without-delete-file"}
    return found


@catalogs(quick=[SQLITE], sql_writes=True)
def test_every_verb_and_maintenance_work_on_files_with_deletion_vectors(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(rows(*range(100)), "t", mode="append")
    lake.write(rows(*range(100, 200)), "t", mode="append")
    delete_by_sql(lake, "k % 10 = 0", "k % 10 = 1 AND k < 100")
    assert {delete.format for delete in deletes(lake)} == {"puffin"}
    left = {k for k in range(200) if k % 10 and not (k % 10 == 1 and k < 100)}
    assert keys(lake) == sorted(left)
    assert lake.delete("t", "k % 10 = 2 AND k < 50").rows_removed == 5
    lake.update("t", {"v": "'changed'"}, "k = 3")
    lake.merge(rows(0, 4, 500), "t", keys=["k"])
    left = left - {2, 12, 22, 32, 42} | {0, 500}
    assert keys(lake) == sorted(left)
    past = Past(lake, first=3)
    lake.maintain(COMPACT, ["rewrite", "merge"]).raise_for_error()
    past.check()
    assert deletes(lake) == []
    before = lake.snapshots(limit=1)[0].snapshot_id
    delete_by_sql(lake, "k = 6")
    lake.rollback("t", to_snapshot=before)
    assert keys(lake) == sorted(left)


@catalogs(quick=[SQLITE], sql_writes=True)
def test_transactions_stages_and_replacements_work_on_files_with_deletion_vectors(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(rows(*range(40)), "t", mode="append")
    delete_by_sql(lake, "k < 10")
    with lake.transaction() as tx:
        tx.delete("t", "k IN (10, 11)")
        tx.update("t", {"v": "'changed'"}, "k = 12")
        tx.write(rows(100), "t", mode="append")
        assert sorted(tx.read("t").column("k").to_pylist()) == [*range(12, 40), 100]
    delete_by_sql(lake, "k = 12")
    stage = lake.stage("s")
    stage.delete("t", "k = 13")
    assert sorted(stage.read("t").column("k").to_pylist()) == [*range(14, 40), 100]
    stage.publish()
    lake.write(rows(15, 200), "t", mode="replace_where", where="k IN (14, 15, 200)")
    assert keys(lake) == [*range(15, 40), 100, 200]
    assert lake.table("t").stats().rows - lake.table("t").stats().deletes == 27
    with lake.connect() as con:
        con.execute("DELETE FROM t WHERE k = 200")
    assert lake.read("t", where="k > 38").column("k").to_pylist() == [39, 100]


@catalogs(quick=[SQLITE], sql_writes=True)
def test_vectors_over_delete_files_and_delete_files_over_vectors_keep_all_deletions(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(rows(*range(50)), "t", mode="append")
    left = set(range(50))
    for k in range(0, 16, 4):
        lake.delete("t", f"k = {k}")
        delete_by_sql(lake, f"k = {k + 1}")
        left -= {k, k + 1}
        assert keys(lake) == sorted(left)
    past = Past(lake, first=2)
    lake.maintain(COMPACT, ["rewrite"]).raise_for_error()
    past.check_readers()
    assert keys(lake) == sorted(left)


@catalogs(quick=[SQLITE], sql_writes=True)
def test_the_change_feed_has_the_deletions_of_vectors(make_lake: MakeLake) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.write(rows(1, 2, 3, 4), "t", mode="append")
    delete_by_sql(lake, "k = 2")
    deleted_at = lake.snapshots(limit=1)[0].snapshot_id
    lake.delete("t", "k = 3")
    changes = lake.changes("t", to_snapshot=deleted_at + 1).to_pylist()
    found = [(change["snapshot_id"], change["k"]) for change in changes if change["change_type"] == "delete"]
    assert sorted(found) == [(deleted_at, 2), (deleted_at + 1, 3)]


@pytest.mark.parametrize(
    "condition", ["k % 50 = 0", "hash(k) % 3 = 0", "k BETWEEN 1000 AND 150000", "k % 2 = 0 AND k > 70000", "true"]
)
def test_positions_are_those_that_the_extension_has_written(condition: str, tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(rows(*range(200_000)), "t", mode="append", partition_by=[])
    deleted = duckdb.sql(f"SELECT k FROM range(200000) t(k) WHERE {condition} AND k <> 7 ORDER BY k").fetchall()
    delete_by_sql(lake, f"{condition} AND k <> 7")
    (delete,) = deletes(lake)
    assert delete.positions == tuple(k for (k,) in deleted)


def vector(bitmap: BitMap64) -> bytes:
    """Return the content of a file with a deletion vector."""
    body = bytes.fromhex("d1d33964") + bitmap.serialize()
    return len(body).to_bytes(4, "big") + body + crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize("seed", range(30))
def test_positions_are_those_of_an_independent_library(seed: int) -> None:
    """The extension writes no runs, and no positions above 32 bits; others may."""
    pick = random.Random(seed)
    bitmap = BitMap64()
    for _ in range(pick.randint(0, 8)):
        start = pick.choice([0, 1 << 16, 1 << 32, 1 << 40]) + pick.randrange(1 << 18)
        bitmap |= BitMap64(range(start, start + pick.randrange(1, 100_000), pick.choice([1, 1, 2, 3, 100, 5000])))
    if pick.random() < 0.7:
        bitmap.run_optimize()
    assert tuple(decoded(vector(bitmap), len(bitmap))) == tuple(bitmap)
    with pytest.raises(ValueError, match="the catalog says"):
        decoded(vector(bitmap), len(bitmap) + 1)


@pytest.mark.parametrize("seed", range(200))
def test_bytes_that_are_no_vector_are_refused_without_much_memory_or_time(seed: int) -> None:
    pick = random.Random(seed)
    bitmap = BitMap64(range(0, 70_000, pick.choice([1, 2, 50])))
    bitmap.run_optimize()
    body = bytearray(vector(bitmap)[4:-4])
    for _ in range(pick.randint(1, 4)):
        body[pick.randrange(4, min(60, len(body)))] = pick.choice([0, 1, 0x7F, 0xFF, pick.randrange(256)])
    bad = len(body).to_bytes(4, "big") + bytes(body) + crc32(body).to_bytes(4, "big")
    try:
        positions = decoded(bad, len(bitmap))
    except (ValueError, IndexError, struct.error):
        return
    assert len(positions) == len(bitmap)


def with_values(values: list[int], offset: int) -> bytes:
    """Return a vector whose list of values is replaced."""
    body = bytearray(vector(BitMap64([2 * n for n in range(len(values))]))[4:-4])
    body[offset:] = struct.pack(f"<{len(values)}H", *values)
    return len(body).to_bytes(4, "big") + bytes(body) + crc32(body).to_bytes(4, "big")


@pytest.mark.parametrize("values", [[1, 1, 2], [3, 2, 1]])
def test_positions_that_are_there_twice_or_not_in_order_are_refused(values: list[int]) -> None:
    good = with_values([1, 2, 3], offset=-6)
    assert decoded(good, 3) == (1, 2, 3)
    with pytest.raises(ValueError, match="not in order"):
        decoded(with_values(values, offset=-6), 3)


def test_a_vector_may_be_empty() -> None:
    empty = DeleteFile(1, "x.puffin", 0, 1, None, None, 0, None, format="puffin", positions=())
    assert duckdb.sql(f"FROM {deletes_sql(empty)}").fetchall() == []


def test_a_vector_that_is_damaged_or_missing_is_refused(tmp_path: Path) -> None:
    lake = DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)
    lake.write(rows(*range(100)), "t", mode="append")
    delete_by_sql(lake, "k % 3 = 0")
    (path,) = Path(str(lake.config.data_path)).rglob("*.puffin")
    content = path.read_bytes()
    pick = random.Random(1)
    damaged = [content[:length] for length in range(len(content))]
    damaged += [
        content[:n] + bytes([content[n] ^ 1 << pick.randrange(8)]) + content[n + 1 :] for n in range(len(content))
    ]
    for bad in damaged:
        with pytest.raises((ValueError, IndexError, struct.error)):
            decoded(bad, 34)
    path.write_bytes(damaged[-1])
    with pytest.raises(FileNotUsableError, match="not a deletion vector"):
        deletes(lake)
    path.unlink()
    with pytest.raises(FileNotUsableError, match="1 of 1 deletion vectors are missing"):
        deletes(lake)
