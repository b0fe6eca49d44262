"""The engine deletes rows of a file concurrently and commits second: no row is restored or deleted twice."""

import duckdb
import pytest

from ducklake_orch import DuckLake
from tests.support.backends import LOCAL, POSTGRES, Backend
from tests.support.lakes import MakeLake


def commits(con: duckdb.DuckDBPyConnection) -> bool:
    """Commit, and return whether the engine accepted it without a conflict."""
    try:
        con.execute("COMMIT")
        return True
    except duckdb.Error as error:
        return "conflict" not in str(error).lower()


@pytest.mark.parametrize("before", ["nothing", "the engine's delete", "our delete", "an inlined delete"])
@pytest.mark.parametrize("limit", [0, 10])
@pytest.mark.parametrize("backend", [Backend(POSTGRES, LOCAL)], indirect=True, ids=str)
def test_a_concurrent_engine_delete_on_the_same_file_must_be_retried(
    make_lake: MakeLake, before: str, limit: int
) -> None:
    lake = make_lake(data_inlining_row_limit=0)
    lake.execute(["CREATE TABLE t (i INT)", "INSERT INTO t SELECT range FROM range(100)"]).raise_for_error()
    match before:
        case "the engine's delete":
            lake.execute("DELETE FROM t WHERE i = 1").raise_for_error()
        case "our delete":
            lake.delete("t", "i = 1")
        case "an inlined delete":
            make_lake(data_inlining_row_limit=10).execute("DELETE FROM t WHERE i = 1").raise_for_error()
    deleted = {5, 7} if before == "nothing" else {1, 5, 7}
    engine: DuckLake = make_lake(data_inlining_row_limit=limit)
    with engine.connect() as con:
        con.execute("BEGIN")
        con.execute("DELETE FROM t WHERE i = 5")
        lake.delete("t", "i = 7")
        if not commits(con):
            deleted -= {5}
    assert {row["i"] for row in lake.execute("FROM t", max_rows=None).rows} == set(range(100)) - deleted
    assert lake.table("t").count() == 100 - len(deleted)
    assert lake.fsck(deep=True, storage=True).findings == []
