"""The differential test with Spark: Spark writes the types it supports, and reads every table in three time zones."""

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.catalog.differential.check import readers
from tests.catalog.differential.coverage import Coverage
from tests.catalog.differential.goals import Scene, wanted
from tests.catalog.differential.run import Run, seeds
from tests.catalog.differential.shapes import shapes
from tests.spark.differential.reading import SparkChecker
from tests.spark.differential.types import PLAIN, READERS, ZONES, goals, never
from tests.spark.differential.writing import SparkWorld
from tests.support.backends import LOCAL, POSTGRES, SQLITE, Backend
from tests.support.lakes import MakeLake


@pytest.fixture(scope="module")
def sessions(new_session: Callable[[], SparkSession]) -> Mapping[str, SparkSession]:
    """One session per time zone."""
    found = {zone: new_session() for zone in ZONES}
    for zone, session in found.items():
        session.conf.set("spark.sql.session.timeZone", zone)
        session.conf.set("spark.sql.timeType.enabled", "true")
        # Compiling a plan takes longer than running it on a small table.
        session.conf.set("spark.sql.codegen.wholeStage", "false")
    return found


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL)], ids=str, indirect=True)
def test_spark_writes_and_reads_what_the_model_holds(
    make_lake: MakeLake,
    backend: Backend,
    sessions: Mapping[str, SparkSession],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _differ(make_lake, backend, sessions, tmp_path, capsys, many=2, steps=60, looks=1, whole=False)


@pytest.mark.full
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("backend", [Backend(SQLITE, LOCAL), Backend(POSTGRES, LOCAL)], ids=str, indirect=True)
def test_spark_writes_and_reads_what_the_model_holds_after_many_steps(
    make_lake: MakeLake,
    backend: Backend,
    sessions: Mapping[str, SparkSession],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _differ(make_lake, backend, sessions, tmp_path, capsys, many=5, steps=300, looks=2, whole=True)


def _differ(
    make_lake: MakeLake,
    backend: Backend,
    sessions: Mapping[str, SparkSession],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    *,
    many: int,
    steps: int,
    looks: int,
    whole: bool,
) -> None:
    """Run the steps of each seed; with `whole`, continue for many minutes until no wanted cell is empty."""
    every = [*readers(backend.catalog), *READERS]
    scene = Scene(backend.catalog, (*shapes(backend.catalog), PLAIN), every, goals, never)
    coverage = Coverage(wanted(scene, exact=whole))
    chosen = seeds(many)
    with capsys.disabled():
        print(f"\n{backend.catalog.name}: DUCKLAKE_ORCH_SEED={chosen[0]}, {many} seeds of {steps} steps")
    for seed in chosen:
        data = folder / f"data_{seed}"
        data.mkdir()
        world = partial(SparkWorld, sessions=[*sessions.values()], folder=data)
        checker = partial(SparkChecker, sessions=sessions, every=6)
        lake = make_lake(f"seed_{seed}", data_inlining_row_limit=0, settings={"threads": 1})
        started = time.monotonic()
        run = Run(lake, scene, seed, coverage, world=world, checker=checker)
        run.go(steps, looks=looks, fill=whole and seed == chosen[-1])
        with capsys.disabled():
            print(f"seed {seed}: {time.monotonic() - started:.0f} s")
    with capsys.disabled():
        print(coverage.report())
    assert not whole or not coverage.missing(), f"no step covered {coverage.missing()}"
