"""One damaged row of the catalog: every reader, every verb and all of maintenance either work or refuse.

Unless fsck names the damage, reads return the right rows, and no file that a retained snapshot needs is deleted.
"""

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import duckdb
import pytest

from ducklake_orch import DuckLake
from ducklake_orch.engine.error_classes import classify
from ducklake_orch.errors import DuckLakeOrchError
from ducklake_orch.maintenance import run_plan
from tests.hostile.cases import chosen, run_cases
from tests.hostile.catalog_rows import (
    TABLES,
    Rows,
    copied,
    damage_row,
    files_of,
    history,
    make_lake,
    opened,
    read,
    rows,
)
from tests.support.worn_lakes import ALL_OF_IT, KEEPING

# What one child process needs for DuckDB, pyarrow and this package.
MEMORY_MB = 2000


@cache
def good_lake(folder: Path) -> tuple[DuckLake, dict[tuple[int, str], Rows], dict[int, set[str]]]:
    """Return the undamaged lake, its rows, and the files of its snapshots."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    lake = make_lake(folder)
    return lake, history(lake, [snapshot.snapshot_id for snapshot in lake.snapshots()]), files_of(lake)


class Steps:
    """Runs steps on a damaged lake; keeps what is not an answer."""

    def __init__(self, damage: str) -> None:
        self._damage = damage
        self.problems: list[BaseException] = []
        self.refused = 0

    def run(self, step: Callable[[], Any]) -> Any:
        """Run a step; return its result, or None if it was refused."""
        try:
            return step()
        except DuckLakeOrchError:
            self.refused += 1
        except Exception as error:
            error.add_note(self._damage)
            self.problems.append(error)
        return None

    def classified(self, error: Exception, *others: Any) -> DuckLakeOrchError:
        """Keep a raw error of a step of maintenance, which would appear as an error of the family in its report."""
        if not isinstance(error, DuckLakeOrchError | duckdb.Error):
            error.add_note(self._damage)
            self.problems.append(error)
        return classify(error, *others)

    def check(self, right: bool, what: str) -> None:
        if not right:
            self.problems.append(AssertionError(f"{what}\n{self._damage}"))

    def outcome(self, named: bool) -> str:
        if self.problems:
            raise ExceptionGroup("findings", self.problems)  # type: ignore[type-var]
        how = "some steps refused" if self.refused else "all steps work"
        return f"{'named by fsck' if named else 'not named'}, {how}"


def case(seed: int, folder: Path) -> str:
    good, expected, needed = good_lake(folder / "good")
    pick = Random(seed)
    lake = copied(good, folder / "damaged")
    damage = damage_row(lake, pick)
    steps = Steps(damage)
    report = steps.run(lambda: lake.fsck(deep=True, storage=True))
    named = report is None or bool(report.counts)
    latest = max(needed)
    for name in TABLES:
        found = steps.run(partial(read, lake, name))
        steps.check(named or found in (None, expected[latest, name]), f"the rows of {name} are wrong")
    at = pick.choice(sorted(needed))
    for name in TABLES:
        if (at, name) in expected:
            found = steps.run(partial(read, lake, name, at))
            steps.check(named or found in (None, expected[at, name]), f"the rows of {name} at {at} are wrong")
    readers = [
        lambda: lake.read("p", where="k > 3 AND part = 1"),
        lambda: lake.tables(rows=True),
        lambda: lake.snapshots(),
        lambda: lake.tags(),
        lambda: lake.stages(),
        lambda: lake.options(),
        lambda: lake.changes("t"),
        lambda: lake.table("t").stats(),
        lambda: lake.table("p").partitions(),
        lambda: lake.table("p").files(),
        lambda: lake.table("a").schema(),
        lambda: lake.table("t").count(),
        lambda: lake.table("t").history(),
        lambda: lake.execute("FROM w").raise_for_error(),
        lambda: lake.health(),
        lambda: lake.report(),
        lambda: lake.maintenance_runs(),
        lambda: lake.workload(),
        lambda: lake.stage("waiting", create=False).read("t"),
    ]
    for reader in pick.sample(readers, 8):
        steps.run(reader)
    writers = [
        lambda: lake.write(rows(1000), "t", mode="append"),
        lambda: lake.write(rows(1000), "i", mode="append", inline="auto"),
        lambda: lake.write(rows(1000), "a", mode="append", schema_evolution="allow_missing"),
        lambda: lake.delete("t", "k = 20"),
        lambda: lake.delete("p", "part = 1"),
        lambda: lake.update("t", {"v": "'new'"}, "k = 20"),
        lambda: lake.merge(rows(0, 2000), "p", keys=["k"]),
        lambda: lake.write(rows(1), "p", mode="overwrite_partitions"),
        lambda: lake.rollback("t", tag="good"),
        lambda: lake.alter_table("t", add_columns={"extra": "INTEGER"}),
        lambda: lake.drop_table("a"),
        lambda: lake.stage("waiting", create=False).publish(),
        lambda: lake.tag("second"),
        lambda: lake.execute("INSERT INTO t VALUES (3000, 'sql', 0)").raise_for_error(),
    ]
    if pick.random() < 0.4:
        for writer in pick.sample(writers, 3):
            steps.run(writer)
    check_files(steps, lake, needed, expected, named, pick)
    return steps.outcome(named)


def check_files(
    steps: Steps,
    lake: DuckLake,
    needed: dict[int, set[str]],
    expected: dict[tuple[int, str], Rows],
    named: bool,
    pick: Random,
) -> None:
    """Run maintenance, and check that the snapshots that it retains have their files."""
    policy = pick.choice([ALL_OF_IT, KEEPING])
    with patch.object(run_plan, "classify", side_effect=steps.classified):
        steps.run(lambda: lake.maintain(policy))
    retained: set[int] = set()
    with opened(lake) as con, suppress(Exception):
        retained = {number for (number,) in con.execute("SELECT snapshot_id FROM ducklake_snapshot")} & set(needed)
    present = {path.name for path in Path(str(lake.config.data_path)).rglob("*.parquet")}
    for at in sorted(retained):
        missing = needed[at] - present
        if missing:
            compacted = all(read(lake, name, at) == expected[at, name] for name in TABLES if (at, name) in expected)
            steps.check(named or compacted, f"snapshot {at} lost files: {missing}")
            return


@pytest.mark.parametrize("many", [2, pytest.param(150, marks=pytest.mark.full)])
def test_a_damaged_row_is_refused_or_named_or_harmless(many: int, tmp_path: Path) -> None:
    run_cases(case, chosen(many), tmp_path, memory_mb=MEMORY_MB, batch=100, seconds=400)
