"""Partition values that are too long for the names of folders, in every way in which files are written."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from tests.support.backends import S3_MEMORY, SQLITE, Backend
from tests.support.lakes import MakeLake
from tests.support.stored_tables import nothing_left_over

LONG = ["x" * 300, "日本語" * 40, "a/b=c% " * 60]
TEXTS = [*LONG, "short", None, ""]
ROWS = pa.table({"k": TEXTS * 2, "id": list(range(12))})


@pytest.fixture
def lake(tmp_path: Path) -> DuckLake:
    return DuckLake.local(tmp_path / "lake", data_inlining_row_limit=0)


def stored(lake: DuckLake, table: str = "t") -> list[str]:
    """Return the rows, as this package and DuckDB's own extension read them."""
    rows = sorted(map(str, lake.read(table).to_pylist()))
    with lake.connect(read_only=True) as con:
        assert sorted(map(str, con.sql(f"FROM {table}").to_arrow_table().to_pylist())) == rows
    return rows


def expected(rows: pa.Table) -> list[str]:
    return sorted(map(str, rows.to_pylist()))


def folders(lake: DuckLake) -> set[str]:
    found = Path(str(lake.config.data_path)).rglob("*=*")
    assert all(any(path.iterdir()) for path in Path(str(lake.config.data_path)).rglob("*") if path.is_dir())
    return {path.name for path in found if path.is_dir()}


def test_rows_with_long_values_are_written_read_and_changed(lake: DuckLake) -> None:
    for count in (1, 2):  # files of a partition are in one folder
        lake.write(ROWS, "t", mode="append", partition_by=["k"])
        assert stored(lake) == sorted(expected(ROWS) * count)
        assert len(folders(lake)) == len(TEXTS)
    assert {partition.values["k"] for partition in lake.table("t").partitions()} == set(TEXTS)
    assert lake.read("t", where=f"k = '{LONG[0]}'").num_rows == 4
    nothing_left_over(lake)
    lake.delete("t", f"k = '{LONG[1]}'")
    lake.update("t", {"k": "k || 'y'"}, f"k = '{LONG[0]}' AND id = 0")
    lake.merge(pa.table({"k": ["z" * 400], "id": [5]}), "t", ["id"], null_keys="match")
    lake.write(pa.table({"k": [LONG[2]], "id": [77]}), "t", mode="overwrite_partitions")
    ids = {row["id"]: row["k"] for row in lake.read("t").to_pylist()}
    assert ids == {
        0: LONG[0] + "y",
        6: LONG[0],
        3: "short",
        9: "short",
        4: None,
        10: None,
        5: "z" * 400,
        11: "",
        77: LONG[2],
    }
    stored(lake)
    assert lake.fsck(deep=True).findings == []


def test_compaction_keeps_long_values(lake: DuckLake) -> None:
    for _ in range(3):
        lake.write(ROWS, "t", mode="append", partition_by=["k"])
    lake.delete("t", "id = 0")
    before = stored(lake)
    lake.maintain({"merge": {"min_files": 2}}, operations=["rewrite", "merge"])
    assert stored(lake) == before
    assert len(lake.table("t").files()) == len(TEXTS)
    assert len(folders(lake)) == len(TEXTS)
    assert lake.fsck(deep=True).findings == []


def test_the_extension_merges_files_in_folders_with_cut_names(lake: DuckLake) -> None:
    for _ in range(2):
        lake.write(ROWS, "t", mode="append", partition_by=["k"])
    before = stored(lake)
    lake.execute("CALL ducklake_merge_adjacent_files('lake', 't')").raise_for_error()
    assert stored(lake) == before
    assert len(lake.table("t").files()) == len(TEXTS)


def test_inlined_rows_with_long_values_are_flushed(lake: DuckLake) -> None:
    lake.create_table("t", {"k": "VARCHAR", "id": "BIGINT"}, partition_by=["k"])
    lake.set_option("data_inlining_row_limit", 100, table="t")
    lake.write(ROWS, "t", mode="append", inline="auto")
    assert lake.table("t").files() == []
    lake.maintain(operations=["flush"])
    assert len(lake.table("t").files()) == len(TEXTS)
    assert stored(lake) == expected(ROWS)


@pytest.mark.parametrize("kind", ["JSON", "BLOB"])
def test_long_json_and_bytes_are_partition_values(lake: DuckLake, kind: str) -> None:
    lake.create_table("t", {"k": kind, "id": "INTEGER"}, partition_by=["k"])
    value = f'["{"x" * 300}"]'
    with duckdb.connect() as con:
        rows = con.sql(f"SELECT '{value}'::{kind} AS k, 1::INTEGER AS id UNION ALL SELECT '[1]'::{kind}, 2::INTEGER")
        lake.write(rows, "t", mode="append")
    assert lake.execute(f"SELECT id FROM t WHERE k = '{value}'::{kind}").rows == [{"id": 1}]
    assert len(lake.table("t").files()) == 2
    assert lake.fsck(deep=True).findings == []


@pytest.mark.parametrize("keys", [["k", "kind"], ["kind", "k"], ["k", "year(day)"], ["bucket(2, kind)", "k"]])
def test_long_values_are_combined_with_other_keys(lake: DuckLake, keys: list[str]) -> None:
    with duckdb.connect() as con:
        texts = ", ".join(f"('{text}')" for text in LONG)
        rows = con.sql(f"SELECT k, k || 'kind' AS kind, DATE '2024-05-06' AS day FROM (VALUES {texts}, ('s')) AS v(k)")
        table = rows.to_arrow_table()
    lake.write(table, "t", mode="append", partition_by=keys)
    assert stored(lake) == expected(table)
    folders(lake)
    nothing_left_over(lake)


def test_the_columns_beside_a_long_value_keep_their_types(lake: DuckLake) -> None:
    values = {
        "HUGEINT": "12345678901234",
        "DECIMAL(38, 4)": "1.5",
        "DOUBLE": "'nan'",
        "TIMESTAMP_NS": "TIMESTAMP_NS '2024-01-01 00:00:00.123456789'",
        "TIMESTAMPTZ": "TIMESTAMPTZ '2024-01-01 00:00:00+02'",
        "TIMETZ": "TIMETZ '10:00:00+00'",
        "TIME": "TIME '10:00:00'",
        "INTERVAL": "INTERVAL '1 month 2 days'",
        "UUID": "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'",
        "BLOB": r"'\xAA'::BLOB",
        "JSON": "'{\"a\": 1}'",
        "STRUCT(a INTEGER, b VARCHAR[])": "{'a': 1, 'b': ['x']}",
        "VARIANT": "{'a': 1, 'b': [2, 3]}",
        "MAP(VARCHAR, INTEGER)": "MAP {'a': 1}",
    }
    columns = ", ".join(
        f"CAST({value} AS {kind.replace('VARIANT', 'JSON')}) AS c{n}" for n, (kind, value) in enumerate(values.items())
    )
    select = f"SELECT * FROM (SELECT {columns}, '{LONG[0]}' AS k UNION ALL BY NAME SELECT {columns}, 's' AS k)"
    names = [f"c{n}" for n in range(len(values))]
    lake.create_table("t", dict(zip(names, values, strict=True)) | {"k": "VARCHAR"}, partition_by=["k"])
    with duckdb.connect() as con:
        lake.write(con.sql(select), "t", mode="append")
    long, short = (
        [lake.execute(f"SELECT {name}::VARCHAR AS v FROM t WHERE k = '{key}'").rows[0]["v"] for name in names]
        for key in (LONG[0], "s")
    )
    assert long == short
    stats = {column.name: (column.min, column.max) for column in lake.table("t").stats().columns}
    assert stats["k"][0] == "s"
    assert lake.fsck(deep=True).findings == []


def test_sorted_rows_with_long_values_stay_sorted(lake: DuckLake) -> None:
    lake.write(pa.table({"k": [LONG[0]] * 3, "id": [3, 1, 2]}), "t", mode="append", partition_by=["k"], sort_by=["id"])
    assert lake.read("t")["id"].to_pylist() == [1, 2, 3]


def test_concurrent_writers_of_long_values_do_not_disturb_each_other(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append", partition_by=["k"])
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda _: lake.write(ROWS, "t", mode="append"), range(4)))
    assert stored(lake) == sorted(expected(ROWS) * 5)
    nothing_left_over(lake)


def test_copied_files_with_long_values_get_folders_with_cut_names(lake: DuckLake, tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    lake.create_table("t", {"k": "VARCHAR", "id": "BIGINT"}, partition_by=["k"])
    rows = pa.table({"k": [LONG[0]], "id": [1]})
    pq.write_table(rows, tmp_path / "given.parquet")
    lake.add_files("t", tmp_path / "given.parquet", copy=True)
    lake.write(rows, "t", mode="append")
    assert len(folders(lake)) == 1
    assert stored(lake) == sorted(expected(rows) * 2)


def test_a_file_in_a_folder_with_a_cut_name_can_be_added_again(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append", partition_by=["k"])
    (path,) = [file.path for file in lake.table("t").files() if "k=xxx" in file.path]
    copy = f"{os.path.dirname(path)}/copy.parquet"
    Path(copy).write_bytes(Path(path).read_bytes())
    lake.add_files("t", copy)
    assert lake.read("t", where=f"k = '{LONG[0]}'").num_rows == 4


@pytest.mark.parametrize("backend", [Backend(SQLITE, S3_MEMORY)], indirect=True, ids=str)
def test_object_stores_keep_names_that_fit_into_their_keys(make_lake: MakeLake) -> None:
    lake = make_lake()
    rows = pa.table({"k": ["x" * 300, "y" * 1200], "id": [1, 2]})
    for _ in range(2):
        lake.write(rows, "t", mode="append", partition_by=["k"])
    assert stored(lake) == sorted(expected(rows) * 2)
    names = {file.path.split("/")[-2] for file in lake.table("t").files()}
    assert sorted(map(len, names)) == [200, 302]
