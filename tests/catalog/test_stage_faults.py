"""Stages when something fails: lost answers, killed tasks, long tasks, and a discard at the wrong moment."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.commit import active_writes, read_leases
from ducklake_orch.catalog.lifecycle import delete_orphans
from ducklake_orch.catalog.search import planning
from ducklake_orch.catalog.transactions import stage_draft, stage_end
from ducklake_orch.engine import exactly_once
from ducklake_orch.errors import DuckLakeOrchError, TransactionClosedError, UnknownOutcomeError
from tests.support.backends import SQLITE, catalogs, on_sqlite
from tests.support.fault_points import dies_at, lose_the_answer, once_at
from tests.support.other_tasks import elsewhere, ids, numbers


@pytest.fixture
def lake_of_a(lake: DuckLake) -> DuckLake:
    lake.write(numbers(1), "a", mode="append", inline="never")
    return lake


def store_twice(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Make the next work be stored again, as after a lost answer, once another task has done something."""
    store = stage_draft.store_changes

    def twice(*arguments: object) -> None:
        monkeypatch.setattr(stage_draft, "store_changes", store)
        store(*arguments)  # type: ignore[arg-type]
        elsewhere(meanwhile)
        store(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage_draft, "store_changes", twice)


# --- lost answers ----------------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE])
def test_work_whose_answer_is_lost_is_staged_once(lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = lake_of_a.stage("nightly")

    once_at(monkeypatch, "commit.after", lose_the_answer)
    stage.write(numbers(2), "a", mode="append")
    assert ids(stage.read("a")) == [1, 2]
    stage.publish()
    assert ids(lake_of_a.read("a")) == [1, 2]
    assert not lake_of_a.fsck(storage=True).findings


@on_sqlite
def test_work_whose_answer_is_lost_is_staged_once_although_another_task_goes_on(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, other = lake_of_a.stage("nightly"), DuckLake(lake_of_a.config).stage("nightly")
    store_twice(monkeypatch, lambda: other.write(numbers(3), "a", mode="append"))
    stage.write(numbers(2), "a", mode="append")
    stage.publish()
    assert ids(lake_of_a.read("a")) == [1, 2, 3]


@on_sqlite
def test_work_whose_answer_is_lost_while_the_stage_is_published_counts_as_staged(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = lake_of_a.stage("nightly")
    store_twice(monkeypatch, DuckLake(lake_of_a.config).stage("nightly").publish)
    stage.write(numbers(2), "a", mode="append")
    assert ids(lake_of_a.read("a")) == [1, 2]


@pytest.mark.parametrize("stored", [True, False])
@on_sqlite
def test_files_stay_while_it_is_unknown_whether_they_are_staged(
    stored: bool, lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a server, on which a COMMIT can arrive later than every search for it."""
    stage, store = lake_of_a.stage("nightly"), stage_draft.store_changes

    def lost(*arguments: object) -> None:
        if stored:
            store(*arguments)  # type: ignore[arg-type]
        storing = arguments[-1]
        assert isinstance(storing, exactly_once.Write)
        storing.committing, storing.doubt = True, DuckLakeOrchError("the connection is lost")
        raise storing.doubt

    monkeypatch.setattr(stage_draft, "store_changes", lost)
    monkeypatch.setattr(type(lake_of_a.config.catalog), "is_file", property(lambda _: False))
    monkeypatch.setattr(stage_draft, "find_stage", lambda *_: None)
    with pytest.raises(UnknownOutcomeError, match="the answer to COMMIT was lost"):
        stage.write(numbers(2), "a", mode="append")
    monkeypatch.undo()
    assert ids(stage.read("a")) == ([1, 2] if stored else [1])
    stage.publish()
    assert ids(lake_of_a.read("a")) == ([1, 2] if stored else [1])


@catalogs(quick=[SQLITE])
def test_a_stage_is_published_once_although_the_answer_is_lost(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(2), "a", mode="append")
    before = lake_of_a.snapshots(limit=1)[0].snapshot_id
    once_at(monkeypatch, "commit.after", lose_the_answer)
    assert stage.publish().snapshot_id == before + 1
    assert lake_of_a.stages()[0].status == "published"
    assert ids(lake_of_a.read("a")) == [1, 2]
    assert not lake_of_a.fsck(storage=True).findings


# --- killed and long tasks -------------------------------------------------------------------------------------------


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("point", ["files.written", "commit.before", "commit.after"])
def test_a_task_that_is_killed_while_it_stages_can_be_run_again(lake_of_a: DuckLake, point: str) -> None:
    def work() -> None:
        DuckLake(lake_of_a.config).stage("nightly").write(numbers(2), "a", mode="append", idempotency_key="k")

    lake_of_a.stage("nightly")
    dies_at(point, work)
    work()
    lake_of_a.stage("nightly").publish()
    assert ids(lake_of_a.read("a")) == [1, 2]


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("point", ["files.written", "commit.before", "commit.after", "stage.published"])
def test_a_task_that_is_killed_while_it_publishes_can_be_run_again(lake_of_a: DuckLake, point: str) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(2), "a", mode="append")
    stage.delete("a", "id = 1")
    before = lake_of_a.snapshots(limit=1)[0].snapshot_id
    assert dies_at(point, lambda: DuckLake(lake_of_a.config).stage("nightly").publish())
    assert stage.publish().snapshot_id == before + 1
    assert ids(lake_of_a.read("a")) == [2]


@on_sqlite
def test_the_end_of_a_long_task_leaves_what_it_staged_protected(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(active_writes, "_BRIEF_S", 0.0)
    stage = lake_of_a.stage("nightly")
    with stage.transaction() as tx:
        tx.write(numbers(2), "a", mode="append")
        active_writes._WATCH.renew_leases()
    with planning(lake_of_a.config, "Reading leases") as metadata:
        since = read_leases(metadata).needed_since
    assert since is not None
    assert since < stage._stored().head.created
    stage.delete("a", "id = 2")  # the file of 2 is replaced, but running tasks may read it
    found = delete_orphans(lake_of_a.config, datetime.now(UTC) + timedelta(days=2))
    assert found.paths == ()
    assert not lake_of_a.fsck(storage=True).findings
    stage.publish()
    assert ids(lake_of_a.read("a")) == [1]
    with lake_of_a.connect_metadata() as con:
        assert con.execute(f"SELECT count(*) FROM {active_writes.LEASES.name}").fetchone() == (0,)


# --- discard ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("past", [False, True])
@on_sqlite
def test_a_discard_deletes_no_files_that_another_task_publishes(
    past: bool, lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, delete = lake_of_a.stage("nightly"), stage_end.delete_stage
    stage.write(numbers(2), "a", mode="append")

    def after_publishing(*arguments: object) -> object:
        elsewhere(DuckLake(lake_of_a.config).stage("nightly").publish)
        return delete(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(stage_end, "delete_stage", after_publishing)
    if past:
        monkeypatch.setattr(stage_end, "past_stages", lambda _: [stage._stored()])
        stage_end.discard_past_stages(lake_of_a.config)
    else:
        stage.discard()
    assert lake_of_a.stages()[0].status == "published"
    assert ids(lake_of_a.read("a")) == [1, 2]


@on_sqlite
def test_a_stage_that_is_discarded_while_it_is_published_leaves_no_rows(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(2), "a", mode="append")
    once_at(monkeypatch, "files.written", lambda: elsewhere(DuckLake(lake_of_a.config).stage("nightly").discard))
    with pytest.raises(TransactionClosedError, match="was discarded"):
        stage.publish()
    assert ids(lake_of_a.read("a")) == [1]
    assert not lake_of_a.fsck(storage=True).findings


@on_sqlite
def test_a_task_that_stages_while_another_publishes_is_published_or_refused(
    lake_of_a: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(2), "a", mode="append")
    other = DuckLake(lake_of_a.config).stage("nightly")
    once_at(monkeypatch, "files.written", lambda: elsewhere(lambda: other.write(numbers(3), "a", mode="append")))
    stage.publish()
    assert ids(lake_of_a.read("a")) == [1, 2, 3]
    once_at(monkeypatch, "files.written", lambda: elsewhere(lambda: lake_of_a.stage("second").publish()))
    with pytest.raises(TransactionClosedError, match="was published"):
        lake_of_a.stage("second").write(numbers(4), "a", mode="append")
    assert ids(lake_of_a.read("a")) == [1, 2, 3]
    assert not any(Path(path).exists() for path in other._stored().own_files)


@on_sqlite
def test_a_task_whose_stage_is_discarded_meanwhile_is_told_so(lake_of_a: DuckLake) -> None:
    stage = lake_of_a.stage("nightly")
    stage.write(numbers(2), "a", mode="append")

    def work() -> None:
        with stage.transaction() as tx:
            elsewhere(DuckLake(lake_of_a.config).stage("nightly").discard)
            tx.update("a", {"id": "id + 10"}, "id = 2")

    with pytest.raises(TransactionClosedError, match="The stage `nightly` was discarded"):
        work()
    assert not lake_of_a.fsck(storage=True).findings


@catalogs(quick=[SQLITE])
def test_tasks_that_are_killed_at_any_statement_lose_and_repeat_nothing(lake_of_a: DuckLake) -> None:
    def stage() -> None:
        stage = DuckLake(lake_of_a.config).stage("nightly")
        stage.write(numbers(2), "a", mode="append", idempotency_key="append")
        stage.delete("a", "id = 1", idempotency_key="delete")

    def publish() -> None:
        DuckLake(lake_of_a.config).stage("nightly").publish()

    for work in (stage, publish):
        number = 1
        while dies_at(f"statement.{number}", work):
            number += 2
        assert number > 5
    assert ids(lake_of_a.read("a")) == [2]
    assert [stage.status for stage in lake_of_a.stages()] == ["published"]
