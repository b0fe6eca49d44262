"""A process that dies during a write leaves the lake as before or after it; a retry results in one copy."""

import pyarrow as pa

from ducklake_orch import DuckLake
from tests.support.backends import SQLITE, catalogs
from tests.support.fault_points import dies_at
from tests.support.stored_tables import rows

OLD = pa.table({"p": ["x", "y"], "v": [1, 2]})


# More points than any commit has statements: the loops below end once a write completes.
POINTS = ["files.written", "commit.before", "commit.after", *(f"statement.{n}" for n in range(1, 60))]


@catalogs()
def test_an_append_killed_at_any_statement_writes_once_after_a_retry(lake: DuckLake) -> None:
    lake.write(OLD, "t", mode="append", partition_by=["p"])
    died = 0
    for number, point in enumerate(POINTS):
        new = pa.table({"p": ["z"], "v": [100 + number], f"c{number}": [None]}).cast(
            pa.schema([("p", pa.string()), ("v", pa.int64()), (f"c{number}", pa.int64())])
        )

        def append() -> None:
            lake.write(new, "t", mode="append", schema_evolution="add", idempotency_key=f"run {number}")  # noqa: B023

        killed = dies_at(point, append)
        before = rows(lake, f"SELECT count(*) FROM t WHERE v = {100 + number}")[0][0]
        assert before in (0, 1)
        append()
        assert rows(lake, f"SELECT count(*) FROM t WHERE v = {100 + number}") == [(1,)]
        died += killed
        if not killed:
            break
    assert died >= 15  # files, commit, and a dozen statements
    assert len(rows(lake, "FROM t")) == died + 1 + 2
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_replacement_killed_at_any_statement_is_atomic(lake: DuckLake) -> None:
    lake.write(OLD, "t", mode="append", partition_by=["p"])
    died = 0
    for number, point in enumerate(POINTS):
        old = rows(lake, "FROM t ORDER BY ALL")
        new = pa.table({"p": ["x", "x"], "v": [number, number]})

        def replace() -> None:
            lake.write(new, "t", mode="overwrite_partitions", idempotency_key="same")  # noqa: B023

        killed = dies_at(point, replace)
        after = [("x", number), ("x", number), ("y", 2)]
        assert rows(lake, "FROM t ORDER BY ALL") in (old, after)
        replace()
        assert rows(lake, "FROM t ORDER BY ALL") == after
        died += killed
        if not killed:
            break
    assert died >= 12
    assert lake.fsck(deep=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_table_creation_killed_at_any_statement_is_atomic(lake: DuckLake) -> None:
    lake.execute("CREATE SCHEMA other").raise_for_error()
    died = 0
    for number, point in enumerate(POINTS):

        def create() -> None:
            lake.write(OLD, f"s{number}.t", mode="append", partition_by=["p"], idempotency_key="k")  # noqa: B023

        killed = dies_at(point, create)
        assert lake.exists(f"s{number}.t") == (point == "commit.after" or not killed)
        create()
        assert rows(lake, f"FROM s{number}.t ORDER BY ALL") == [("x", 1), ("y", 2)]
        died += killed
        if not killed:
            break
    assert died >= 15
    assert lake.fsck(deep=True).findings == []


@catalogs(sql_writes=True, quick=[SQLITE])
def test_an_update_killed_at_any_statement_is_atomic(lake: DuckLake) -> None:
    """Rows are inlined, and in a file with deletions in a delete file and in the catalog."""
    lake.write(pa.table({"i": range(200), "v": [0] * 200}), "t", mode="append")
    died = 0
    for number, point in enumerate(POINTS):
        engine = [f"DELETE FROM t WHERE i = {number}", f"INSERT INTO t VALUES ({1000 + number}, 0)"]
        lake.execute(engine).raise_for_error()
        where = f"i IN ({100 + number}, {1000 + number})"

        def update() -> None:
            lake.update("t", {"v": "v + 1"}, where, idempotency_key=f"run {number}")  # noqa: B023

        killed = dies_at(point, update)
        assert rows(lake, f"SELECT v FROM t WHERE {where}") in ([(0,), (0,)], [(1,), (1,)])
        update()
        assert rows(lake, f"SELECT v FROM t WHERE {where}") == [(1,), (1,)]
        assert rows(lake, "SELECT count(*) FROM t") == [(200,)]
        died += killed
        if not killed:
            break
    assert died >= 15
    assert lake.fsck(deep=True).findings == []
