"""Replacing partitions or rows that match a predicate retires exactly these rows, wherever they are stored."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, errors
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import once_at
from tests.support.plan_reader import read_plan
from tests.support.row_history import RowHistory, newest, row_ids
from tests.support.stored_tables import files_of, lake_file_names, rows

DAYS = pa.table({"day": [date(2024, 1, 1), date(2024, 1, 2), None], "v": [1, 2, 3]})


@catalogs()
def test_overwrite_partitions_replaces_the_partitions_of_the_new_rows(lake: DuckLake) -> None:
    lake.write(DAYS, "t", mode="append", partition_by=["day"])
    lake.write(DAYS, "t", mode="append")
    new = pa.table({"day": [date(2024, 1, 2), None], "v": [20, 30]})
    result = lake.write(new, "t", mode="overwrite_partitions")
    assert (result.rows_removed, result.files_removed, result.files_added) == (4, 4, 2)
    assert sorted(map(str, result.partitions)) == [
        f"day=2024-01-02: 1 rows, 1 files, {result.partitions[0].bytes} bytes",
        f"day=None: 1 rows, 1 files, {result.partitions[1].bytes} bytes",
    ]
    assert rows(lake, "SELECT v FROM t ORDER BY v") == [(1,), (1,), (20,), (30,)]
    assert read_plan(lake, "t") == sorted(rows(lake, "FROM t"), key=repr)


@catalogs(sql_writes=True)
def test_overwrite_partitions_replaces_inlined_rows_and_counts_deleted_rows(lake: DuckLake) -> None:
    """The engine creates a table of inlined rows under a schema version that altered nothing."""
    lake.write(pa.table({"p": ["x", "y"], "v": [1, 2]}), "t", mode="append", partition_by=["p"])
    lake.execute(["INSERT INTO t VALUES ('x', 3), ('y', 4)", "DELETE FROM t WHERE v = 1"]).raise_for_error()
    before = lake.snapshots()[0].snapshot_id
    result = lake.write(pa.table({"p": ["x"], "v": [9]}), "t", mode="overwrite_partitions")
    assert (result.rows_removed, result.files_removed) == (1, 1)
    now = [("x", 9), ("y", 2), ("y", 4)]
    assert sorted(rows(lake, "FROM t")) == now
    for statement in ("CALL ducklake_flush_inlined_data('lake')", "CALL ducklake_rewrite_data_files('lake')"):
        lake.execute(statement).raise_for_error()
        assert sorted(rows(lake, "FROM t")) == now
        assert sorted(rows(lake, f"FROM t AT (VERSION => {before})")) == [("x", 3), ("y", 2), ("y", 4)]
        assert sorted(rows(lake, f"FROM t AT (VERSION => {before - 1})")) == [("x", 1), ("x", 3), ("y", 2), ("y", 4)]
        assert read_plan(lake, "t", snapshot=before) == [("x", 3), ("y", 2), ("y", 4)]


HOSTILE = ["a b", "a/b", "é", "100%", "=", "", "__x", "it's", 'q"q', "[1]", "\\", "{y}", "a,b", "A B", "ü" * 30, "\n"]
MOMENTS = [datetime(2024, 12, 31, 23, 59), datetime(1969, 1, 1), None]
KEYS: list[tuple[str, pa.DataType, list[Any]]] = [
    ("identity", pa.string(), [*HOSTILE, None]),
    ("identity", pa.int64(), [-1, 0, 2**40, None]),
    ("identity", pa.bool_(), [True, False, None]),
    ("identity", pa.float64(), [0.5, -1e300, float("nan"), float("inf"), None]),
    ("identity", pa.decimal128(10, 2), [Decimal("1.10"), Decimal("-0.01"), None]),
    ("identity", pa.date32(), [date(2024, 2, 29), date(1, 1, 1), None]),
    ("identity", pa.timestamp("us"), [datetime(2024, 1, 1, 12, 0, 0, 1), None]),
    ("identity", pa.timestamp("us", "UTC"), [datetime(2024, 1, 1, 23, 30, tzinfo=UTC), None]),
    ("identity", pa.binary(), [b"ab", b"", None]),
    *((unit, pa.timestamp("us"), MOMENTS) for unit in ("year", "month", "day", "hour")),
    ("hour", pa.timestamp("us", "UTC"), [datetime(2024, 12, 31, 23, 59, tzinfo=UTC), None]),
    ("bucket(5)", pa.string(), [*HOSTILE, None]),
    ("bucket(3)", pa.int32(), [*range(20), None]),
]


@pytest.mark.parametrize(("transform", "kind", "values"), KEYS, ids=lambda key: str(key)[:20])
@catalogs(quick=[SQLITE])
def test_a_partition_of_every_transform_is_replaced_alone(
    lake: DuckLake, transform: str, kind: pa.DataType, values: list[Any]
) -> None:
    """Partitions of the engine are retired like ours, and the rows of other partitions stay."""
    key = {"identity": "k"}.get(transform, f"{transform}(k)".replace(")(", ", "))
    data = pa.table({"k": pa.array(values, kind), "n": list(range(len(values))), "all": [0] * len(values)})
    lake.write(data, "t", mode="append", partition_by=[key, '"all"'])  # buckets alone are never overwritten
    partition = lake.write(data, "t", mode="append").partitions
    assert sum(written.rows for written in partition) == len(values)
    last = data.slice(len(values) - 2, 1)
    result = lake.write(last, "t", mode="overwrite_partitions")
    assert result.rows_removed == 2 * next(
        written.rows for written in partition if written.values == result.partitions[0].values
    )
    assert len(rows(lake, "FROM t")) == 2 * len(values) - result.rows_removed + 1
    assert repr(read_plan(lake, "t")) == repr(sorted(rows(lake, "FROM t"), key=repr))


@on_sqlite
def test_a_transaction_replaces_partitions_that_only_their_keys_identify(lake: DuckLake) -> None:
    """No statistics tell which bucket a file holds, or that all its texts are NULL or `a`."""
    kind = {"s": "VARCHAR", "i": "INTEGER", "k": "BIGINT"}
    lake.create_table("t", kind, partition_by=["s", "i", "bucket(2, k)"])
    data = pa.table({"s": ["a", None] * 50, "i": pa.array([7] * 100, pa.int32()), "k": range(100)})
    lake.write(data, "t", mode="append")
    lake.execute("ALTER TABLE t ALTER i TYPE BIGINT").raise_for_error()
    with lake.transaction() as tx:
        tx.write(data, "t", mode="overwrite_partitions")
        lake.write(data, "t", mode="append")
    assert lake.table("t").count() == 100


@catalogs()
def test_mixed_partition_keys_use_the_same_folders_as_the_engine(lake: DuckLake) -> None:
    """Keys mix columns and transforms, two transforms of one column, and a transform with the name of a column."""
    data = pa.table({"ts": [datetime(2024, 1, 2, 3)], "day": [7], "p": ["a b"]})
    mixed = ["year(ts)", "p", "day(ts)", "bucket(4, day)"]
    for table, keys in (("t", mixed), ("u", ["day(ts)"])):
        lake.create_table(table, data.schema, partition_by=keys, options={"data_inlining_row_limit": 0})
        lake.execute(f"INSERT INTO {table} VALUES ('2024-01-02 03:00', 7, 'a b')").raise_for_error()
        lake.write(data, table, mode="append", partition_by=keys)
        theirs, ours = (name.rpartition("/")[0] for name in lake_file_names(lake)[-2:])
        assert ours == theirs
        lake.write(data, table, mode="overwrite_partitions")
        assert lake.write(data, table, mode="overwrite_partitions").rows_removed == 1
        assert rows(lake, f"FROM {table}") == [(datetime(2024, 1, 2, 3), 7, "a b")]
        assert read_plan(lake, table) == rows(lake, f"FROM {table}")


@catalogs()
def test_files_of_an_earlier_partition_spec_are_retired_or_rewritten(lake: DuckLake) -> None:
    one_day = [pa.table({"day": [day] * 2, "v": [1, 2]}) for day in (date(2024, 1, 1), date(2024, 1, 2))]
    for data in one_day:
        lake.write(data, "t", mode="append")
    lake.execute("ALTER TABLE t SET PARTITIONED BY (day)").raise_for_error()
    assert lake.write(one_day[1], "t", mode="overwrite_partitions").rows_removed == 2
    lake.execute("ALTER TABLE t RESET PARTITIONED BY").raise_for_error()
    lake.write(pa.concat_tables(one_day), "t", mode="append")
    lake.execute("ALTER TABLE t SET PARTITIONED BY (day)").raise_for_error()
    before = newest(lake)
    result = lake.write(one_day[1].slice(1), "t", mode="overwrite_partitions")
    assert (result.rows_removed, result.rows_written, result.snapshot_id) == (4, 1, before + 1)
    assert sorted(rows(lake, "FROM t")) == [(date(2024, 1, 1), v) for v in (1, 1, 2, 2)] + [(date(2024, 1, 2), 2)]
    assert len(rows(lake, f"FROM t AT (VERSION => {before})")) == 8


@catalogs()
def test_overwrite_partitions_refuses_a_table_without_partitions(lake: DuckLake) -> None:
    lake.write(DAYS, "t", mode="append")
    lake.write(DAYS, "u", mode="append", partition_by=["bucket(4, v)"])
    for table in ("t", "u"):
        with pytest.raises(errors.ConfigError, match="replace_where"):
            lake.write(DAYS, table, mode="overwrite_partitions")


@catalogs()
def test_replace_where_retires_files_that_match_completely(lake: DuckLake) -> None:
    lake.write(DAYS, "t", mode="append", partition_by=["day"])
    new = pa.table({"day": [date(2024, 1, 2)], "v": [20]})
    result = lake.write(new, "t", mode="replace_where", where="day >= '2024-01-02' AND day < DATE '2024-02-01' -- Feb")
    assert (result.rows_removed, result.rows_written) == (1, 1)
    assert rows(lake, "SELECT v FROM t ORDER BY v") == [(1,), (3,), (20,)]
    deleted = lake.write(new.slice(0, 0), "t", mode="replace_where", where="day IS NULL")
    assert (deleted.rows_removed, deleted.rows_written) == (1, 0)


@catalogs()
def test_replace_where_replaces_rows_that_share_files_with_kept_rows(lake: DuckLake) -> None:
    """Some rows get a delete file, other files are rewritten; the new rows are in the same snapshot."""
    first = [(n, f"n{n % 5}") for n in range(40)]
    lake.write(pa.table({"id": [n for n, _ in first], "name": [name for _, name in first]}), "t", mode="append")
    history = RowHistory(lake, "t", first)
    ids = row_ids(lake, "t")
    for where, new, files in (
        ("id IN (3, 4)", [(4, "new"), (4, "newer")], (1, 0)),
        ("name = 'n1' OR id < 10", [(0, "x")], (2, 2)),
        ("id = 20", [], (0, 0)),
        ("id = -1", [], (0, 0)),
    ):
        con = duckdb.connect()
        con.execute("CREATE TABLE t (id BIGINT, name VARCHAR)")
        con.executemany("INSERT INTO t VALUES (?, ?)", history.now)
        deleted = con.execute(f"DELETE FROM t WHERE {where}").fetchall()[0][0]
        data = pa.table(
            {"id": pa.array([n for n, _ in new], pa.int64()), "name": pa.array([n for _, n in new], pa.string())}
        )
        result = lake.write(data, "t", mode="replace_where", where=where)
        assert (result.rows_removed, result.rows_written) == (deleted, len(new))
        assert (result.files_added, result.files_removed) == files
        history.now = [*con.execute("FROM t").fetchall(), *new]
        history.keep()
    kept = {key: row_id for key, row_id in row_ids(lake, "t").items() if key > 10}
    assert kept == {key: ids[key] for key in kept}
    history.check()


@catalogs(sql_writes=True, quick=[SQLITE])
@pytest.mark.parametrize("mode", ["overwrite", "overwrite_partitions", "replace_where"])
def test_a_flush_after_a_replacement_keeps_history(lake: DuckLake, mode: str) -> None:
    """The files have deletions both in a delete file and in the catalog."""
    lake.write(pa.table({"id": range(40), "p": [1] * 40}), "t", mode="append", partition_by=["p"])
    history = RowHistory(lake, "t", [(n, 1) for n in range(40)])
    for where, kept in (("id < 20", range(20, 40)), ("id = 30", [*range(20, 30), *range(31, 40)])):
        lake.execute(f"DELETE FROM t WHERE {where}").raise_for_error()
        history.now = [(n, 1) for n in kept]
        history.keep()
    more: dict[str, Any] = {"where": "p = 1"} if mode == "replace_where" else {}
    assert lake.write(pa.table({"id": [0], "p": [1]}), "t", mode=mode, **more).rows_removed == 19
    history.now = [(0, 1)]
    history.keep()
    lake.execute("CALL ducklake_flush_inlined_data('lake')").raise_for_error()
    history.keep()
    history.check()


@catalogs(shared=True)
def test_replace_where_includes_concurrent_deletes_and_appends(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.write(pa.table({"id": range(40)}), "t", mode="append")

    def commit_first() -> None:
        lake.delete("t", "id = 1 OR id = 30")
        lake.write(pa.table({"id": [2, 100]}), "t", mode="append")

    once_at(monkeypatch, "rows.found", commit_first)
    result = lake.write(pa.table({"id": [0]}), "t", mode="replace_where", where="id < 3")
    assert (result.rows_removed, result.attempts) == (3, 1)
    assert sorted(rows(lake, "FROM t")) == [(n,) for n in (0, *range(3, 30), *range(31, 40), 100)]
    assert lake.fsck(deep=True, storage=True).counts == {}


@catalogs()
def test_rows_outside_the_predicate_are_refused_or_dropped(lake: DuckLake) -> None:
    lake.write(DAYS, "t", mode="append", partition_by=["day"])
    before = files_of(lake)
    where = "day = '2024-01-01'"
    for data in (DAYS, DAYS.to_reader(max_chunksize=1)):
        with pytest.raises(errors.RowsOutsideError, match=r"2 rows .* such as \(datetime.date\(2024, 1, 2\), 2\)"):
            lake.write(data, "t", mode="replace_where", where=where)
    assert files_of(lake) == before
    result = lake.write(DAYS, "t", mode="replace_where", where=where, outside="drop")
    assert (result.rows_written, result.rows_removed) == (1, 1)
    assert len(rows(lake, "FROM t")) == 3
