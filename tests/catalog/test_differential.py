"""The differential test: random steps by us and by the extension, every reader compared with a model in Python."""

import time

import pytest

from tests.backends import SQLITE, Backend, catalogs
from tests.catalog.differential.coverage import Coverage
from tests.catalog.differential.goals import wanted, without_spark
from tests.catalog.differential.run import Run, seeds
from tests.conftest import MakeLake


@pytest.mark.timeout(1200)
@catalogs(quick=[SQLITE])
def test_every_reader_sees_what_the_model_holds(
    make_lake: MakeLake, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    _differ(make_lake, backend, capsys, many=2, steps=60, looks=1, whole=False)


@pytest.mark.full
@pytest.mark.timeout(7200)
@catalogs()
def test_every_reader_sees_what_the_model_holds_after_many_steps(
    make_lake: MakeLake, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    _differ(make_lake, backend, capsys, many=5, steps=300, looks=2, whole=True)


def _differ(
    make_lake: MakeLake,
    backend: Backend,
    capsys: pytest.CaptureFixture[str],
    *,
    many: int,
    steps: int,
    looks: int,
    whole: bool,
) -> None:
    scene = without_spark(backend.catalog)
    coverage = Coverage(wanted(scene, exact=whole))
    chosen = seeds(many)
    with capsys.disabled():
        print(f"\n{backend.catalog.name}: DUCKLAKE_ORCH_SEED={chosen[0]}, {many} seeds of {steps} steps")
    for seed in chosen:
        # One thread: that is as fast with so few rows, and a seed does the same every time.
        lake = make_lake(f"seed_{seed}", data_inlining_row_limit=0, settings={"threads": 1})
        started = time.monotonic()
        Run(lake, scene, seed, coverage).go(steps, looks=looks, fill=whole and seed == chosen[-1])
        with capsys.disabled():
            print(f"seed {seed}: {time.monotonic() - started:.0f} s")
    with capsys.disabled():
        print(coverage.report())
    # Few steps fill what they come to; it is printed.
    assert not (whole and coverage.missing()), f"nothing has tried {coverage.missing()}"
