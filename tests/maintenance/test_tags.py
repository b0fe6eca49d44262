"""Names of snapshots: maintenance retains the snapshots, and reads and rollbacks find them by name."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.errors import ConfigError, HistoryExpiredError, ObjectNotFoundError, SnapshotNotFoundError
from tests.support.backends import catalogs, on_sqlite
from tests.support.lakes import MakeLake

EXPIRE: dict[str, Any] = {"expire": {"older_than": 0, "retain_last": 1}, "cleanup": {"older_than": 0}, "force": True}


def append(lake: DuckLake, *values: int) -> int:
    """Append rows and return the snapshot."""
    return lake.write(pa.table({"i": pa.array(values, pa.int64())}), "t", mode="append").snapshot_id


def found(lake: DuckLake, **at: Any) -> list[int]:
    return sorted(lake.read("t", **at)["i"].to_pylist())


@pytest.fixture
def lake(make_lake: MakeLake) -> DuckLake:
    """A lake whose table has three snapshots, of which the second has a tag."""
    lake = make_lake("lake", data_inlining_row_limit=0)
    append(lake, 1)
    append(lake, 2)
    lake.tag("q3")
    lake.delete("t", "i = 1")
    append(lake, 3)
    return lake


@catalogs()
def test_a_tagged_snapshot_outlasts_all_maintenance(lake: DuckLake) -> None:
    (tag,) = lake.tags()
    policy = EXPIRE | {"rewrite": {"delete_threshold": 0.1}, "merge": {"min_files": 2}}
    for _ in range(2):
        lake.maintain(policy)
    assert [snapshot.snapshot_id for snapshot in lake.snapshots()][-1] == tag.snapshot_id
    assert len(lake.snapshots()) == 2
    assert (found(lake, tag="q3"), found(lake)) == ([1, 2], [2, 3])
    assert lake.tags() == [tag]
    lake.untag("q3")
    lake.maintain(policy)
    assert len(lake.snapshots()) == 1
    assert lake.fsck(deep=True, storage=True).findings == []


@catalogs()
def test_a_tag_holds_its_snapshot_until_a_time(lake: DuckLake) -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    first, second = lake.tags()[0].snapshot_id - 1, lake.tags()[0].snapshot_id
    lake.tag("past", first, keep_until=soon)
    plan = lake.plan_maintenance(EXPIRE, operations=["expire"])
    assert "2 more have a tag" in plan.operations[0].reason
    with lake.connect_metadata(read_only=False) as con:
        con.execute(f"UPDATE ducklake_orch_tags SET keep_until = tagged_at WHERE snapshot_id = {first}")
    lake.maintain(EXPIRE, operations=["expire"])
    assert [(tag.name, tag.snapshot_id) for tag in lake.tags()] == [("q3", second)]


@catalogs()
def test_every_read_takes_a_tag(lake: DuckLake) -> None:
    table = lake.table("t")
    lake.alter_table("t", add_columns={"later": "INTEGER"})
    assert found(lake, tag="q3") == [1, 2]
    assert sum(batch.num_rows for batch in lake.read_batches("t", tag="q3")) == 2
    assert lake.execute("SELECT count(*) AS n FROM t", tag="q3").rows == [{"n": 2}]
    with lake.connect(read_only=True, tag="q3") as con:
        assert con.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    assert [column.name for column in table.schema(tag="q3")] == ["i"]
    assert (table.count(tag="q3"), len(table.files(tag="q3")), table.stats(tag="q3").rows) == (2, 2, 2)
    assert [partition.rows for partition in table.partitions(tag="q3")] == [2]
    assert [listed.rows for listed in lake.tables(tag="q3", rows=True)] == [2]


@catalogs()
def test_a_rollback_restores_the_rows_of_a_tag(lake: DuckLake) -> None:
    lake.rollback("t", tag="q3")
    assert found(lake) == [1, 2]
    append(lake, 4)
    with lake.transaction() as tx:
        tx.rollback("t", tag="q3")
    assert found(lake) == [1, 2]


@catalogs()
def test_a_repeated_tag_keeps_its_snapshot_and_may_change_its_time(lake: DuckLake) -> None:
    (tag,) = lake.tags()
    again = lake.tag("q3", tag.snapshot_id, keep_until="2999-01-01T00:00:00+00:00")
    assert (again.snapshot_id, again.keep_until) == (tag.snapshot_id, datetime(2999, 1, 1, tzinfo=UTC))
    assert lake.tags() == [again]
    assert str(again) == f"q3: snapshot {tag.snapshot_id}, until 2999-01-01 00:00 UTC"
    with pytest.raises(ConfigError, match=f"exists already, and names snapshot {tag.snapshot_id}"):
        lake.tag("q3")
    moved = lake.tag("q3", replace=True)
    assert moved.snapshot_id > tag.snapshot_id
    assert lake.tag("q3", tag.snapshot_id, replace=True) == moved  # a late retry
    lake.maintain(EXPIRE, operations=["expire"])
    assert lake.tag("q3", tag.snapshot_id, replace=True) == moved
    lake.tag("Q3")
    lake.tag("it's \\ ü")
    assert {tag.name for tag in lake.tags()} == {"q3", "Q3", "it's \\ ü"}


@catalogs()
def test_a_snapshot_that_another_program_has_expired_is_named_as_such(lake: DuckLake) -> None:
    (tag,) = lake.tags()
    with lake.connect_metadata(read_only=False) as con:  # as the expiry of the extension on other catalogs
        con.execute(f"DELETE FROM ducklake_snapshot WHERE snapshot_id <= {tag.snapshot_id}")
    assert [tag.expired for tag in lake.tags()] == [True]
    findings = {(finding.code, finding.detail) for finding in lake.fsck().findings}
    assert ("tag-without-snapshot", f"tag q3 of snapshot {tag.snapshot_id}") in findings
    with pytest.raises(HistoryExpiredError, match=f"`q3` names snapshot {tag.snapshot_id}, which has expired"):
        lake.read("t", tag="q3")
    assert lake.tag("q3", tag.snapshot_id + 1, replace=True).snapshot_id == tag.snapshot_id + 1


@on_sqlite
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda lake: lake.read("t", tag="q33"), ObjectNotFoundError, "Did you mean `q3`"),
        (lambda lake: lake.untag("nightly"), ObjectNotFoundError, "There is no tag `nightly`. Known: `q3`"),
        (lambda lake: lake.read("t", tag="q3", snapshot=1), ConfigError, "cannot be combined"),
        (lambda lake: lake.rollback("t"), ConfigError, "Give `to_snapshot` or `tag`"),
        (lambda lake: lake.tag("x", 99), SnapshotNotFoundError, "There is no snapshot 99"),
        (lambda lake: lake.tag("x", "1; select 1"), ConfigError, "is not a snapshot id"),
        (lambda lake: lake.tag("x", -1), ConfigError, "is negative"),
        (lambda lake: lake.tag(5), ConfigError, "1 to 200 printable characters"),
        (lambda lake: lake.read("t", tag=5), ConfigError, "`tag` = 5 is not a name"),
        (lambda lake: lake.tag("x", keep_until=date(2999, 1, 1)), ConfigError, "is not a time"),
        (lambda lake: lake.tag("x", keep_until="9999-12-31T23:59:59-05:00"), ConfigError, "is too late"),
        (lambda lake: lake.tag(" "), ConfigError, "1 to 200 printable characters"),
        (lambda lake: lake.tag("x", keep_until="2999-01-01"), ConfigError, "has no time zone"),
        (lambda lake: lake.tag("x", keep_until="2001-01-01T00:00Z"), ConfigError, "is in the past"),
    ],
)
def test_a_wrong_tag_is_refused(lake: DuckLake, call: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words.replace("(", r"\(")):
        call(lake)


@on_sqlite
def test_a_lake_that_does_not_exist_yet_has_no_tags(make_lake: MakeLake) -> None:
    assert make_lake("new").tags() == []
