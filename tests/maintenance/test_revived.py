"""On PostgreSQL a flush waits where the extension would bring deleted rows back: by texts that are partition keys."""

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from ducklake_orch.engine.quoting import literal
from tests.backends import LOCAL, POSTGRES, SQLITE, Backend
from tests.conftest import MakeLake

on_postgres, on_both = (
    pytest.mark.parametrize("backend", [pytest.param(Backend(one, LOCAL), id=one.name) for one in some], indirect=True)
    for some in ([POSTGRES], [SQLITE, POSTGRES])
)
# Rewrites and merges of ours only; whoever sees the dead rows is forgotten at once.
AT_ONCE = MaintenancePolicy.model_validate(
    {"rewrite": {"delete_threshold": 0.1}, "expire": {"older_than": "0s", "retain_last": 1}, "force": True}
)


def with_dead_rows(make_lake: MakeLake, key: str, by: str = "place") -> DuckLake:
    lake = make_lake(data_inlining_row_limit=10)
    lake.write(
        pa.table({"place": pa.array([], pa.string()), "n": pa.array([], pa.int64())}),
        "t",
        mode="append",
        partition_by=[by],
    )
    text = literal(key)
    lake.execute(f"INSERT INTO t VALUES ({text}, 1), ({text}, 2)").raise_for_error()
    lake.execute("DELETE FROM t WHERE n = 1").raise_for_error()
    return lake


def numbers(lake: DuckLake) -> list[int]:
    found: list[int] = lake.read("t").column("n").to_pylist()
    return found


@on_both
@pytest.mark.parametrize("by", ["place", "bucket(4, place)"])
@pytest.mark.parametrize("key", ["São Paulo", "it's", 'a"b', "a\\b", "a\tb", "plain = 100 %"])
def test_no_flush_brings_deleted_rows_back(make_lake: MakeLake, key: str, by: str) -> None:
    lake = with_dead_rows(make_lake, key, by)
    for _ in range(2):
        lake.maintain(AT_ONCE, ["flush", "expire"]).raise_for_error()
        assert numbers(lake) == [2]
    assert lake.table("t").count() == 1
    assert [
        one.operation for one in lake.plan_maintenance(operations=["flush"]).operations if one.action == "run"
    ] == []


@on_postgres
def test_it_says_why_it_waits_and_flushes_when_the_dead_rows_have_expired(make_lake: MakeLake) -> None:
    lake = with_dead_rows(make_lake, "it's")
    (planned,) = lake.plan_maintenance(operations=["flush"]).operations
    assert planned.action == "skip"
    assert "would bring 1 deleted rows back" in planned.reason
    lake.maintain(AT_ONCE, ["expire"]).raise_for_error()
    (planned,) = lake.plan_maintenance(operations=["flush"]).operations
    assert (planned.action, planned.rows) == ("run", 1)


@on_postgres
def test_a_rewrite_of_ours_needs_no_flush_and_one_of_the_extension_waits(make_lake: MakeLake) -> None:
    lake = with_dead_rows(make_lake, "it's")
    lake.write(pa.table({"place": ["it's"] * 100, "n": range(100, 200)}), "t", mode="append", inline="never")
    lake.execute("DELETE FROM t WHERE n BETWEEN 100 AND 150").raise_for_error()
    theirs = AT_ONCE.model_copy(update={"rewrite": AT_ONCE.rewrite.model_copy(update={"engine": "extension"})})
    (waits,) = (one for one in lake.plan_maintenance(theirs, ["rewrite"]).operations if one.operation == "rewrite")
    assert waits.action == "skip"
    assert "begins with a flush" in waits.reason
    lake.maintain(AT_ONCE, ["rewrite"]).raise_for_error()
    assert sorted(numbers(lake)) == [2, *range(151, 200)]
    assert lake.fsck(deep=True, storage=True).counts.get("error", 0) == 0
