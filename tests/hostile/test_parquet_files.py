"""Damaged data files and delete files: reads, `add_files`, row changes, compaction and fsck work or refuse.

A process that ends, hangs or takes too much memory is a finding. A damaged page can hold other values, which no reader
can notice: Parquet files of DuckDB have no checksums. So only the number of the rows is compared, unless fsck finds it.
"""

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import DuckLakeOrchError
from tests.hostile.cases import chosen, run_cases
from tests.hostile.catalog_rows import copied
from tests.hostile.damage import damaged

MEMORY_MB = 2500


def table(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "k": pa.array(numbers, pa.int64()),
            "v": [f"v{number}" if number % 7 else None for number in numbers],
            "d": pa.array([number / 3 for number in numbers], pa.float64()),
            "l": [[number, None] for number in numbers],
            "s": [{"x": number, "y": "é"} for number in numbers],
        }
    )


@cache
def good_lake(folder: Path) -> DuckLake:
    shutil.rmtree(folder, ignore_errors=True)  # that of an earlier child process
    folder.mkdir()
    lake = DuckLake.local(folder / "lake", data_inlining_row_limit=0)
    lake.write(table(0, 100), "t", mode="append")
    lake.write(table(100, 100), "t", mode="append")
    lake.delete("t", "k % 10 = 0 AND k < 100")
    lake.write(table(0, 50), "u", mode="append")
    with lake.connect() as con:
        con.execute("CALL ducklake_set_option('lake', 'write_deletion_vectors', true)")
        con.execute("DELETE FROM u WHERE k < 5")
    return lake


def case_lake(seed: int, folder: Path) -> str:
    """Damage one file of a lake: a data file, a delete file or a deletion vector."""
    pick = Random(seed)
    lake = copied(good_lake(folder / "good"), folder / "damaged")
    files = sorted(Path(str(lake.config.data_path)).rglob("*.p*"), key=lambda file: (file.suffix, file.stat().st_size))
    path = pick.choice(files)
    content = path.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    first = footer if path.suffix == ".parquet" and pick.random() < 0.6 else 0
    path.write_bytes(damaged(content, pick, first=max(first, 0)))
    report = tried(lambda: lake.fsck(deep=True, storage=True))
    named = isinstance(report, DuckLakeOrchError) or bool(report.counts)
    tables = {"t": 190, "u": 45}
    if path.suffix == ".puffin" and named:
        del tables["u"]  # the engine takes what memory a damaged deletion vector asks for, up to 16 GB
    for name, rows in tables.items():
        found = tried(lambda: lake.read(name).num_rows)  # noqa: B023
        assert named or isinstance(found, DuckLakeOrchError) or found == rows, f"{found} rows in {name}, not {rows}"
    works: list[Callable[[], Any]] = [
        lambda: lake.read("t", where="k > 50 AND d < 60").num_rows,
        lambda: lake.delete("t", "k = 33"),
        lambda: lake.update("u", {"v": "'new'"}, "k = 33"),
        lambda: lake.merge(table(90, 20), "t", keys=["k"]),
        lambda: lake.maintain({"merge": {"min_files": 2, "settled_after": 0}}, ["rewrite", "merge"]),
        lambda: lake.changes("t"),
        lambda: lake.table("t").count(),
        lambda: lake.rollback("t", to_snapshot=1),
    ]
    for work in pick.sample(works, 3):
        tried(work)
    return f"{path.suffix} {'named by fsck' if named else 'read as before'}"


def tried(work: Callable[[], Any]) -> Any:
    try:
        return work()
    except DuckLakeOrchError as error:
        return error


@cache
def foreign_files(folder: Path) -> list[bytes]:
    """Return files of another writer, with other encodings, compressions, row groups and checksums."""
    contents = []
    for number, options in enumerate(
        [
            {"compression": "snappy", "write_page_checksum": True},
            {"compression": "zstd", "use_dictionary": False, "data_page_version": "2.0"},
            {"compression": "gzip", "row_group_size": 20, "write_page_index": True},
            {"compression": "none", "version": "1.0", "store_schema": False},
        ]
    ):
        path = folder / f"foreign {number}.parquet"
        pq.write_table(table(1000, 80), path, **options)
        contents.append(path.read_bytes())
    return contents


def case_added(seed: int, folder: Path) -> str:
    """Add a damaged file of another writer to a table."""
    pick = Random(seed)
    lake = good_lake(folder / "added")
    content = pick.choice(foreign_files(folder))
    first = len(content) - 8 - int.from_bytes(content[-8:-4], "little") if pick.random() < 0.6 else 4
    path = folder / "added.parquet"
    path.write_bytes(damaged(content, pick, first=first))
    verify: Any = pick.choice(["pages", "footer"])
    before = lake.table("t").count()
    added = tried(lambda: lake.add_files("t", [path], copy=True, verify=verify, allow_missing=pick.random() < 0.3))
    if isinstance(added, DuckLakeOrchError):
        assert lake.table("t").count() == before
        return f"refused: {type(added).__name__}"
    rows = tried(lambda: lake.read("t").num_rows)
    lake.rollback("t", to_snapshot=3)
    assert verify == "footer" or rows == before + added.rows_written, f"{rows} rows, not {before + added.rows_written}"
    return "added"


@pytest.mark.parametrize("many", [3, pytest.param(150, marks=pytest.mark.full)])
def test_a_damaged_file_of_a_lake_is_refused_or_read(many: int, tmp_path: Path) -> None:
    run_cases(case_lake, chosen(many), tmp_path, memory_mb=MEMORY_MB, batch=200)


@pytest.mark.parametrize("many", [6, pytest.param(300, marks=pytest.mark.full)])
def test_a_damaged_file_is_not_added_or_read(many: int, tmp_path: Path) -> None:
    run_cases(case_added, chosen(many), tmp_path, memory_mb=MEMORY_MB, batch=200)
