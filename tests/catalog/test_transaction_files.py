"""The files of transactions: kept while they are needed, deleted when they are not, whatever fails."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.commit import active_writes
from ducklake_orch.catalog.lifecycle import delete_orphans
from ducklake_orch.engine import exactly_once
from ducklake_orch.errors import DuplicateFileError
from tests.support.backends import SQLITE, catalogs
from tests.support.fault_points import lose_the_answer, once_at
from tests.support.stored_tables import files_of

pytestmark = pytest.mark.every_catalog

MANY = pa.table({"id": range(1000), "v": range(1000)})
FEW = pa.table({"id": [5, 2000], "v": [-5, -2000]})


@pytest.fixture
def shop(lake: DuckLake) -> DuckLake:
    lake.write(MANY, "many", mode="append")
    return lake


@catalogs()
def test_files_of_a_long_transaction_are_no_orphans(shop: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(active_writes, "_BRIEF_S", 0.0)
    monkeypatch.setattr(active_writes, "_RENEW_S", 0.0)
    with shop.transaction() as tx:
        for table in ("many", "new"):
            tx.write(MANY, table, mode="append")
            active_writes._WATCH.renew_leases()
        tx.delete("many", "id = 1")
        active_writes._WATCH.renew_leases()
        found = delete_orphans(shop.config, datetime.now(UTC) + timedelta(days=2))
        assert (found.paths, found.running) == ((), 4)
    assert (shop.table("many").count(), shop.table("new").count()) == (1998, 1000)
    assert shop.fsck(deep=True, storage=True).findings == []
    with shop.connect_metadata() as con:
        assert con.execute(f"SELECT count(*) FROM {active_writes.LEASES.name}").fetchone() == (0,)


def transact(lake: DuckLake, before_commit: Callable[[], None]) -> None:
    with lake.transaction(idempotency_key="k") as tx:
        tx.write(MANY, "new", mode="append")
        tx.delete("many", "id = 5")
        before_commit()


def append(lake: DuckLake, before_commit: Callable[[], None]) -> None:
    before_commit()
    lake.write(MANY, "many", mode="append", idempotency_key="k")


def merge(lake: DuckLake, before_commit: Callable[[], None]) -> None:
    before_commit()
    lake.merge(FEW, "many", ["id"], idempotency_key="k")


def publish(lake: DuckLake, before_commit: Callable[[], None]) -> None:
    stage = lake.stage("nightly")
    stage.write(MANY, "many", mode="append", idempotency_key="k")
    with pytest.MonkeyPatch.context() as patch:
        once_at(patch, "files.written", before_commit)  # the stage's rows are then restored
        stage.publish()


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize(
    ("work", "counts"),
    [
        (transact, {"new": 1000, "many": 999}),
        (append, {"many": 2000}),
        (merge, {"many": 1001}),
        (publish, {"many": 2000}),
    ],
)
def test_files_of_a_commit_that_its_own_key_reveals_stay(
    shop: DuckLake, monkeypatch: pytest.MonkeyPatch, work: Callable[..., None], counts: dict[str, int]
) -> None:
    """The answer to COMMIT is lost, and the commit arrives only after its snapshot has been searched for."""
    searches, find_write = list[int](), exactly_once.find_write

    def find_at_second_look(*arguments: Any) -> int | None:
        searches.append(1)
        return None if len(searches) == 1 else find_write(*arguments)

    monkeypatch.setattr(exactly_once, "find_write", find_at_second_look)
    work(shop, lambda: once_at(monkeypatch, "commit.after", lose_the_answer))
    assert len(searches) == 2
    assert {table: shop.table(table).count() for table in counts} == counts
    assert [finding for finding in shop.fsck(deep=True).findings if finding.severity == "error"] == []


@catalogs(quick=[SQLITE])
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("changed", [False, True])
def test_rows_of_a_file_that_a_rival_adds_meanwhile_are_not_added_twice(
    shop: DuckLake, tmp_path: Path, copy: bool, changed: bool
) -> None:
    pq.write_table(MANY, file := tmp_path / "file.parquet")

    def add() -> None:
        with shop.transaction() as tx:
            tx.add_files("many", file, copy=copy)
            if changed:
                tx.delete("many", "id = 1")
            shop.add_files("many", file)

    with pytest.raises(DuplicateFileError):
        add()
    assert shop.table("many").count() == 2000
    assert file.exists()
    assert shop.fsck(storage=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_file_of_another_table_can_be_copied_to_a_new_one(shop: DuckLake, tmp_path: Path) -> None:
    pq.write_table(MANY, file := tmp_path / "file.parquet")
    shop.add_files("many", file)
    with shop.transaction() as tx:
        tx.create_table("new", MANY.schema)
        tx.add_files("new", file, copy=True)
    assert shop.table("new").count() == 1000
    assert shop.fsck(storage=True).findings == []


@catalogs(quick=[SQLITE])
def test_a_clean_up_that_fails_hides_neither_the_error_nor_the_commit(shop: DuckLake) -> None:
    def break_the_draft(tx: Any) -> None:
        shutil.rmtree(Path(tx._open.lake.config.catalog_file).parent)

    def fail() -> None:
        with shop.transaction() as tx:
            tx.write(MANY, "many", mode="append")
            break_the_draft(tx)
            raise RuntimeError("the checks failed")

    with pytest.raises(RuntimeError, match="the checks failed"):
        fail()
    assert shop.table("many").count() == 1000


@catalogs(quick=[SQLITE])
def test_writes_that_data_make_while_they_are_read_are_independent(shop: DuckLake, tmp_path: Path) -> None:
    other = DuckLake.local(tmp_path / "other")

    def batches() -> Any:
        other.write(MANY, "many", mode="append")
        shop.write(MANY, "independent", mode="append")
        yield from MANY.to_batches()

    def fail() -> None:
        with shop.transaction() as tx:
            tx.write(pa.RecordBatchReader.from_batches(MANY.schema, batches()), "many", mode="append")
            raise RuntimeError("the checks failed")

    with pytest.raises(RuntimeError, match="the checks failed"):
        fail()
    assert [shop.table("many").count(), shop.table("independent").count(), other.table("many").count()] == [1000] * 3
    assert len(files_of(other)) == 1
