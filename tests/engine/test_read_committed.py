"""On a MySQL server whose default is READ COMMITTED, plans and commits see one state of the catalog, too."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.catalog.lifecycle import compact
from ducklake_orch.catalog.metadata import MetadataTransaction
from ducklake_orch.catalog.search import planning
from ducklake_orch.engine import exactly_once
from ducklake_orch.engine.exactly_once import Write
from ducklake_orch.engine.session import Session
from tests.servers.mariadb import MariaDBServer
from tests.support.fault_points import lose_the_answer
from tests.support.lakes import Servers
from tests.support.readers_of_the_past import merges

ROWS = pa.table({"i": range(20)})
_NUMBERS = count()


class ReadCommittedServer(MariaDBServer):
    name = "mariadb-read-committed"

    @classmethod
    def more_options(cls, folder: Path) -> list[str]:
        return ["--transaction-isolation=READ-COMMITTED"]


@pytest.fixture
def lake(servers: Servers, tmp_path: Path) -> Iterator[DuckLake]:
    server, database = servers.get(ReadCommittedServer), f"lake_{next(_NUMBERS)}"
    server.create_database(database)
    yield DuckLake.from_url(
        "lake", catalog=server.url(database), storage=str(tmp_path / "files"), create_if_missing=True
    )
    server.drop_database(database)


def lands_after_the_search(monkeypatch: pytest.MonkeyPatch) -> list[MetadataTransaction]:
    """Lose the answer to the next COMMIT, and let it arrive when its snapshot has been searched for; return it."""
    lost, landed = list[MetadataTransaction](), list[int | None]()
    commit, roll_back, find = MetadataTransaction.commit, MetadataTransaction.roll_back, exactly_once.find_write

    def lose(transaction: MetadataTransaction) -> None:
        if lost:
            commit(transaction)
            return
        lost.append(transaction)
        lose_the_answer()

    def roll_back_others(transaction: MetadataTransaction) -> None:
        if transaction not in lost:
            roll_back(transaction)

    def land(session: Session, write: Write) -> int | None:
        found = find(session, write)
        if lost and not landed:
            landed.append(found)
            commit(lost[0])
        return found

    monkeypatch.setattr(MetadataTransaction, "commit", lose)
    monkeypatch.setattr(MetadataTransaction, "roll_back", roll_back_others)
    monkeypatch.setattr(exactly_once, "find_write", land)
    return lost


def test_a_plan_sees_one_state(lake: DuckLake) -> None:
    lake.write(ROWS, "t", mode="append")
    with planning(lake.config, "Planning") as metadata:
        sql = f"SELECT max(snapshot_id) FROM {metadata.table_sql('ducklake_snapshot')}"
        before = metadata.rows(sql)
        lake.write(ROWS, "t", mode="append")
        assert metadata.rows(sql) == before


def test_a_merge_whose_commit_arrives_late_keeps_its_file(lake: DuckLake, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        lake.write(ROWS, "t", mode="append")
    bins = merges(lake)
    with monkeypatch.context() as patch:
        lost = lands_after_the_search(patch)
        done = compact(lake.config, "merge", bins)
    assert lost
    assert (done.bins, done.snapshot_id) == (1, lake.snapshots(limit=1)[0].snapshot_id)
    assert lake.read("t").num_rows == 40
    assert lake.fsck(deep=True, storage=True).findings == []


def test_a_replacement_whose_commit_arrives_late_keeps_its_delete_file(
    lake: DuckLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.write(ROWS, "t", mode="append")
    lake.delete("t", "i = 1")
    with monkeypatch.context() as patch:
        lost = lands_after_the_search(patch)
        done: Any = lake.write(ROWS.slice(0, 0), "t", mode="overwrite")
    assert lost
    assert (done.snapshot_id, done.rows_removed) == (lake.snapshots(limit=1)[0].snapshot_id, 19)
    assert [lake.read("t", snapshot=done.snapshot_id - back).num_rows for back in (0, 1)] == [0, 19]
    assert lake.fsck(deep=True).findings == []
