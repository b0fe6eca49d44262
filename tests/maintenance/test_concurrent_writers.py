"""Concurrent writers do not fail during maintenance, and all their rows are stored."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from ducklake_orch import DuckLake, MaintenancePolicy
from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend
from tests.support.worn_lakes import rows, whole

EAGER = MaintenancePolicy(merge={"min_files": 2}, rewrite={"delete_threshold": 0.01})
ROUNDS = 5


def append_rows(lake: DuckLake) -> None:
    for number in range(ROUNDS):
        lake.write(rows(1000 + 5 * number, 5), "t", mode="append", inline="auto" if number % 2 else "never")


def delete_rows(lake: DuckLake) -> None:
    for number in range(ROUNDS):
        lake.delete("t", f"k = {number}")


def merge_rows(lake: DuckLake) -> None:
    for number in range(ROUNDS):
        lake.write(rows(50 + number, 1), "t", mode="merge", keys=["k"])


@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, LOCAL)], indirect=True, ids=str)
def test_maintenance_loses_no_concurrent_write(lake: DuckLake) -> None:
    lake.write(rows(0, 100), "t", mode="append")

    def maintain() -> None:
        lake.maintain(EAGER, ["flush", "rewrite", "merge"]).raise_for_error()

    with ThreadPoolExecutor() as pool:
        writers = [pool.submit(work, lake) for work in (append_rows, delete_rows, merge_rows)]
        while not all(writer.done() for writer in writers):
            maintain()
        for writer in writers:
            writer.result()
    maintain()
    wanted = [*range(ROUNDS, 100), *range(1000, 1000 + 5 * ROUNDS)]
    assert sorted(row["k"] for row in lake.read("t", columns=["k"]).to_pylist()) == wanted
    whole(lake)
