"""Tasks that stage at the same time, try again, or stage beside maintenance: no row is lost or there twice."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.transactions import stage_rows
from ducklake_orch.errors import ConflictError, ReadOnlyError, TransactionClosedError
from ducklake_orch.facade.stage import Stage
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.other_tasks import elsewhere, ids, numbers
from tests.support.worn_lakes import ALL_OF_IT


def task(lake: DuckLake, name: str = "nightly") -> Stage:
    return DuckLake(lake.config).stage(name)


@pytest.fixture
def lake_of_a(lake: DuckLake) -> DuckLake:
    lake.write(numbers(1, 2), "a", mode="append", inline="never")
    return lake


# --- tasks at the same time ------------------------------------------------------------------------------------------


def drop_it(stage: Stage) -> None:
    with stage.transaction() as tx:
        tx.write(numbers(5), "x", mode="append")
        tx.drop_table("x")


@on_sqlite
def test_a_table_that_another_task_drops_meanwhile_is_a_conflict(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    stage.write(numbers(1), "x", mode="append")

    def both() -> None:
        with stage.transaction() as tx:
            tx.write(numbers(2), "x", mode="append")
            elsewhere(lambda: drop_it(task(lake)))

    with pytest.raises(ConflictError, match=r"Another task has dropped `main\.x`"):
        both()
    assert stage.tables() == []
    stage.publish()
    assert not lake.exists("x")
    assert not lake.fsck(storage=True).findings


@on_sqlite
def test_running_tasks_can_read_files_of_a_table_that_is_dropped_from_the_stage(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    stage.write(numbers(1), "x", mode="append")
    with stage.transaction() as tx:
        elsewhere(lambda: drop_it(task(lake)))
        assert ids(tx.read("x")) == [1]


@on_sqlite
@pytest.mark.parametrize("other", ["b", "x"])
def test_rows_stay_in_their_tables_when_tasks_create_tables_at_the_same_time(other: str, lake: DuckLake) -> None:
    """The tables that a stage creates have other ids in each task."""
    stage = lake.stage("nightly")
    stage.write(numbers(1), "m", mode="append")

    def another() -> None:
        with task(lake).transaction() as tx:
            tx.write(numbers(100), other, mode="append")
            tx.write(numbers(3), "m", mode="append")

    with stage.transaction() as tx:
        tx.write(numbers(2), "m", mode="append")
        elsewhere(another)
    stage.publish()
    assert (ids(lake.read("m")), ids(lake.read(other))) == ([1, 2, 3], [100])


@on_sqlite
def test_tasks_that_create_one_table_at_the_same_time_both_add_to_it(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    with stage.transaction() as tx:
        tx.write(numbers(2), "m", mode="append")
        tx.write(numbers(3), "m", mode="append")
        elsewhere(lambda: task(lake).write(numbers(1), "m", mode="append"))
    assert ids(stage.read("m")) == [1, 2, 3]


@on_sqlite
def test_a_table_that_is_created_and_dropped_in_two_calls_is_not_published(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    stage.create_table("x", {"id": "BIGINT"})
    stage.drop_table("x")
    assert stage.tables() == []
    stage.publish()
    assert not lake.exists("x")


@on_sqlite
def test_comment_and_options_of_a_new_table_are_published(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    stage.create_table("x", {"id": "BIGINT"}, comment="hello", options={"target_file_size": "1MB"})
    stage.write(numbers(1), "x", mode="append")
    stage.publish()
    with lake.connect(read_only=True) as con:
        assert con.execute("SELECT comment FROM duckdb_tables() WHERE table_name = 'x'").fetchall() == [("hello",)]
    assert [option.entry for option in lake.options() if option.name == "target_file_size"] == ["main.x"]


# --- keys ------------------------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE])
def test_attempts_with_one_key_at_the_same_time_stage_once(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    with stage.transaction(idempotency_key="k") as tx:
        tx.write(numbers(3), "a", mode="append")

        def again() -> None:
            with task(lake_of_a).transaction(idempotency_key="k") as other:
                other.write(numbers(3), "a", mode="append")

        elsewhere(again)
    assert tx.result is not None
    assert tx.result.replayed
    assert [write.replayed for write in tx.result.writes] == [True]
    stage.publish()
    assert ids(lake_of_a.read("a")) == [1, 2, 3]
    assert not lake_of_a.fsck(storage=True).findings


@on_sqlite
def test_a_key_is_for_one_table_as_in_the_lake(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    assert not stage.write(numbers(3), "a", mode="append", idempotency_key="k").replayed
    assert not stage.write(numbers(3), "b", mode="append", idempotency_key="k").replayed
    assert stage.write(numbers(3), "a", mode="append", idempotency_key="k").replayed
    stage.publish()
    assert (ids(lake_of_a.read("a")), ids(lake_of_a.read("b"))) == ([1, 2, 3], [3])


@on_sqlite
def test_rows_that_are_replaced_are_replaced_again_with_the_same_key(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    for number in (3, 4):
        assert not stage.write(numbers(number), "a", mode="overwrite", idempotency_key="k").replayed
    stage.publish()
    assert ids(lake_of_a.read("a")) == [4]


@on_sqlite
def test_a_merge_is_not_staged_again_with_the_same_key(lake_of_a: DuckLake) -> None:
    stage, more = lake_of_a.stage("nightly"), {"keys": ["id"], "idempotency_key": "k"}
    assert [stage.write(numbers(2, 3), "a", mode="merge", **more).replayed for _ in range(2)] == [False, True]
    stage.publish()
    assert ids(lake_of_a.read("a")) == [1, 2, 3]


@catalogs(quick=[SQLITE])
def test_published_rows_are_not_appended_again_with_their_key(lake_of_a: DuckLake) -> None:
    first, second = lake_of_a.stage("first"), lake_of_a.stage("second")
    for table in ("a", "new"):
        first.write(numbers(3), table, mode="append", idempotency_key="k")
    published = first.publish().snapshot_id
    for table in ("a", "new"):
        assert second.write(numbers(3), table, mode="append", idempotency_key="k").replayed
        again = lake_of_a.write(numbers(3), table, mode="append", idempotency_key="k")
        assert (again.replayed, again.snapshot_id) == (True, published)
    assert (ids(lake_of_a.read("a")), ids(lake_of_a.read("new"))) == ([1, 2, 3], [3])


@on_sqlite
def test_a_key_is_remembered_when_nothing_is_left_of_its_work(lake: DuckLake) -> None:
    stage = lake.stage("nightly")
    stage.write(numbers(1), "x", mode="append", idempotency_key="k")
    stage.drop_table("x")
    assert stage.write(numbers(1), "x", mode="append", idempotency_key="k").replayed
    assert stage.tables() == []


@on_sqlite
def test_a_key_is_remembered_when_its_verb_found_nothing(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    assert not stage.delete("a", "id = 99", idempotency_key="k").replayed
    assert stage.delete("a", "id = 99", idempotency_key="k").replayed


@on_sqlite
def test_an_attempt_that_comes_after_publishing_does_nothing(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(3), "a", mode="append", idempotency_key="k")
    published = stage.publish().snapshot_id
    again = stage.write(numbers(3), "a", mode="append", idempotency_key="k")
    assert (again.replayed, again.snapshot_id) == (True, published)
    with pytest.raises(TransactionClosedError, match="was published"):
        stage.write(numbers(3), "a", mode="append", idempotency_key="another")
    assert ids(lake_of_a.read("a")) == [1, 2, 3]


# --- publishing ------------------------------------------------------------------------------------------------------


@on_sqlite
def test_a_stage_that_changes_nothing_is_published_nevertheless(lake: DuckLake) -> None:
    lake.write(numbers(), "a", mode="append")
    stage, before = lake.stage("nightly"), lake.snapshots(limit=1)[0].snapshot_id
    stage.write(numbers(), "a", mode="overwrite")
    stage.publish()
    lake.write(numbers(1), "a", mode="append")
    assert stage.publish().replayed
    assert ids(lake.read("a")) == [1]
    assert [stage.status for stage in lake.stages()] == ["published"]
    empty = lake.stage("empty")
    assert empty.publish().writes == []
    assert {stage.status for stage in lake.stages()} == {"published"}
    assert before >= 0


@on_sqlite
def test_a_key_that_another_stage_has_published_ends_the_stage_without_its_rows(lake_of_a: DuckLake) -> None:
    first, second = lake_of_a.stage("first"), lake_of_a.stage("second")
    for stage in (first, second):
        stage.write(numbers(3), "a", mode="append")
    first.publish(idempotency_key="k")
    assert second.publish(idempotency_key="k").replayed
    assert ids(lake_of_a.read("a")) == [1, 2, 3]
    assert {stage.status for stage in lake_of_a.stages()} == {"published"}
    assert not lake_of_a.fsck(storage=True).findings


@on_sqlite
def test_files_of_a_stage_that_the_lake_got_from_elsewhere_stay(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(3), "a", mode="append")
    (path,) = staged_files(lake_of_a)
    lake_of_a.add_files("a", [path])
    stage.discard()
    assert ids(lake_of_a.read("a")) == [1, 2, 3]


def staged_files(lake: DuckLake, name: str = "nightly") -> list[str]:
    stored = lake.stage(name)._stored()
    return stored.own_files


@on_sqlite
def test_files_of_other_programs_stay_when_a_stage_is_discarded(lake_of_a: DuckLake, tmp_path: Path) -> None:
    path = tmp_path / "others.parquet"
    pq.write_table(numbers(5, 6), path)
    stage = lake_of_a.stage("nightly")
    stage.add_files("a", [str(path)])
    stage.delete("a", "id = 5")
    assert ids(stage.read("a")) == [1, 2, 6]
    stage.discard()
    assert path.exists()


# --- maintenance -----------------------------------------------------------------------------------------------------


def wear(lake: DuckLake, **arguments: Any) -> None:
    for first in range(10, 40, 10):
        lake.write(numbers(first, first + 1, first + 2), "a", mode="append", **arguments)


@catalogs(quick=[SQLITE])
def test_maintenance_leaves_files_alone_that_a_stage_removes_rows_from(lake_of_a: DuckLake) -> None:
    lake = lake_of_a
    wear(lake, inline="never")
    stage = lake.stage("nightly")
    stage.update("a", {"id": "id + 100"}, "id = 1")
    stage.delete("a", "id BETWEEN 10 AND 12")
    plan = lake.plan_maintenance(ALL_OF_IT)
    reasons = {step.operation: step.reason for step in plan.operations if step.table == "main.a"}
    assert reasons == dict.fromkeys(("flush", "rewrite", "merge", "layout"), "the stage `nightly` removes rows of it")
    lake.maintain(plan).raise_for_error()
    expected = [2, 20, 21, 22, 30, 31, 32, 101]
    assert ids(stage.read("a")) == expected
    stage.publish()
    assert ids(lake.read("a")) == expected
    assert not lake.fsck(deep=True, storage=True).findings


@pytest.mark.parametrize(
    ("mode", "target", "spared"),
    [
        ("replace_where", "a", True),
        ("overwrite_partitions", "later", True),
        ("overwrite_partitions", "parts", False),
        ("overwrite", "a", False),
    ],
)
@on_sqlite
def test_maintenance_leaves_files_alone_that_a_stage_replaces_as_a_whole(
    mode: str, target: str, spared: bool, lake: DuckLake
) -> None:
    """A file that was merged can hold both rows that are replaced and others."""
    for part in range(3):
        for table in ("a", "later"):
            lake.write(pa.table({"id": [part]}), table, mode="append", inline="never")
        lake.write(pa.table({"id": [part] * 2}), "parts", mode="append", inline="never", partition_by=["id"])
    lake.execute("ALTER TABLE later SET PARTITIONED BY (id)").raise_for_error()
    stage = lake.stage("nightly")
    stage.write(numbers(1), target, mode=mode, **({"where": "id = 1"} if mode == "replace_where" else {}))
    staged = ids(stage.read(target))
    plan = lake.plan_maintenance(ALL_OF_IT, ["merge"])
    reason = "the stage `nightly` removes rows of it"
    assert [step.table for step in plan.operations if step.reason == reason] == ([f"main.{target}"] if spared else [])
    lake.maintain(plan).raise_for_error()
    assert ids(stage.read(target)) == staged
    stage.publish()
    assert ids(lake.read(target)) == staged


@on_sqlite
def test_maintenance_leaves_files_alone_although_their_table_is_renamed(lake_of_a: DuckLake) -> None:
    wear(lake_of_a, inline="never")
    stage = lake_of_a.stage("nightly")
    stage.delete("a", "id = 1")
    lake_of_a.execute("ALTER TABLE a RENAME TO b").raise_for_error()
    lake_of_a.maintain(ALL_OF_IT).raise_for_error()
    assert 1 not in ids(stage.read("a"))


@pytest.mark.parametrize("inline", ["never", "auto"])
@on_sqlite
def test_files_that_the_extension_compacts_under_a_stage_are_a_conflict(inline: str, lake: DuckLake) -> None:
    wear(lake, inline=inline)
    stage = lake.stage("nightly")
    stage.update("a", {"id": "id + 100"}, "id = 11")
    stage.delete("a", "id BETWEEN 20 AND 22")
    alias = lake.config.alias
    if inline == "never":
        lake.execute(f"CALL ducklake_merge_adjacent_files('{alias}')")
    else:
        lake.execute(f"CALL ducklake_flush_inlined_data('{alias}')")
    before = ids(lake.read("a"))
    for use in (lambda: stage.read("a"), stage.publish, lambda: stage.write(numbers(1), "a", mode="append")):
        with pytest.raises(ConflictError, match=r"Maintenance has moved rows of `main\.a`"):
            use()
    assert ids(lake.read("a")) == before
    stage.discard()
    assert not lake.fsck(storage=True).findings


@on_sqlite
def test_inlined_rows_of_several_schema_versions_are_removed_in_a_stage(lake: DuckLake) -> None:
    """Other tables advance the schema version, after which the names of inlined-data tables are chosen."""
    lake.write(numbers(1, 2, 3), "a", mode="append")
    for table in ("b", "c"):
        lake.write(numbers(1), table, mode="append")
    lake.write(pa.table({"id": [4], "v": ["x"]}), "a", mode="append", schema_evolution="add")
    stage = lake.stage("nightly")
    stage.delete("a", "id IN (1, 4)")
    stage.write(numbers(9), "a", mode="append")
    assert ids(stage.read("a")) == [2, 3, 9]
    stage.publish()
    assert ids(lake.read("a")) == [2, 3, 9]


@on_sqlite
def test_maintenance_reports_what_it_deletes_of_past_stages(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, now = lake_of_a.stage("nightly"), stage_rows._now
    stage.write(numbers(*range(1000)), "a", mode="append")
    files = staged_files(lake_of_a)
    size = sum(Path(path).stat().st_size for path in files)
    monkeypatch.setattr(stage_rows, "_now", lambda metadata: now(metadata) + timedelta(days=8))
    plan = lake_of_a.plan_maintenance(operations=["orphans"])  # which only reports orphaned files
    for steps in (plan.operations, lake_of_a.maintain(plan).operations):
        (step,) = [step for step in steps if step.action == "run"]
        assert (step.files_in, step.bytes, list(step.paths)) == (len(files), size, files)
    assert lake_of_a.stages() == []
    assert not any(Path(path).exists() for path in files)


# --- reading ---------------------------------------------------------------------------------------------------------


@on_sqlite
def test_a_stage_can_be_read_in_a_lake_that_is_opened_for_reading(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    stage.delete("a", "id = 1")
    reader = DuckLake(lake_of_a.config.model_copy(update={"read_only": True}))
    assert ids(reader.read("a", stage="nightly")) == [2]
    with reader.connect(stage="nightly", read_only=True) as con:
        assert con.execute("SELECT count(*) FROM a").fetchall() == [(1,)]
    staged = reader.stage("nightly", create=False)
    assert staged.diff("a").num_rows == 1
    for use in (staged.publish, staged.discard, lambda: staged.delete("a", "true"), lambda: reader.stage("more")):
        with pytest.raises(ReadOnlyError):
            use()


@on_sqlite
def test_a_lake_that_is_created_anew_does_not_have_the_stages_of_the_old_one(lake: DuckLake, tmp_path: Path) -> None:
    lake.write(numbers(1), "a", mode="append")
    lake.stage("nightly").delete("a", "true")
    anew = DuckLake.local(tmp_path / "anew")
    anew.write(numbers(2), "a", mode="append")
    anew.stage("other")
    with lake.connect_metadata() as con:
        left = con.execute("SELECT * FROM ducklake_orch_stages").fetchall()
    with anew.connect_metadata(read_only=False) as con:
        con.executemany("INSERT INTO ducklake_orch_stages VALUES (?, ?, ?, ?, ?)", left)
    assert [stage.name for stage in anew.stages()] == ["other"]
    assert anew.stage("nightly").publish().writes == []
    assert ids(anew.read("a")) == [2]


@on_sqlite
def test_work_that_another_stage_has_published_with_the_same_key_is_not_published_again(lake_of_a: DuckLake) -> None:
    first, second = lake_of_a.stage("first"), lake_of_a.stage("second")
    for stage in (first, second):
        stage.write(numbers(3), "a", mode="append", idempotency_key="k")
    first.publish()
    with pytest.raises(ConflictError, match=r"Work with the key 'k' is committed to `main\.a`"):
        second.publish()
    assert ids(lake_of_a.read("a")) == [1, 2, 3]
