"""The differential test: random steps by us and by the extension, and every reader compared with a Python model."""

import time

import pytest

from ducklake_orch.engine.fault_points import actions
from tests.catalog.differential.coverage import Coverage
from tests.catalog.differential.goals import wanted, without_spark
from tests.catalog.differential.run import BETWEEN, Run, seeds
from tests.support.backends import POSTGRES, SQLITE, Backend, catalogs
from tests.support.lakes import MakeLake


@pytest.mark.timeout(1200)
@catalogs(quick=[SQLITE])
def test_every_reader_matches_the_model(
    make_lake: MakeLake, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    _run_steps(make_lake, backend, capsys, many=2, steps=60, looks=1, whole=False)


@pytest.mark.full
@pytest.mark.timeout(7200)
@catalogs()
def test_every_reader_matches_the_model_after_many_steps(
    make_lake: MakeLake, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    _run_steps(make_lake, backend, capsys, many=5, steps=300, looks=2, whole=True)


@pytest.mark.timeout(1200)
@catalogs(quick=[SQLITE])
def test_every_reader_matches_the_model_in_an_encrypted_lake(
    make_lake: MakeLake, backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    _run_steps(make_lake, backend, capsys, many=1, steps=80, looks=1, whole=False, encrypted=True)


@pytest.mark.full
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("inlining", ["default", "another program"])
@catalogs(quick=[SQLITE])
def test_every_reader_matches_the_model_with_inlined_rows_and_concurrent_steps(
    make_lake: MakeLake,
    backend: Backend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    inlining: str,
) -> None:
    _run_concurrent_steps(make_lake, backend, capsys, monkeypatch, inlining, many=1, steps=40, looks=1)


@pytest.mark.full
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("inlining", ["default", "another program"])
@catalogs()
def test_every_reader_matches_the_model_with_many_concurrent_steps(
    make_lake: MakeLake,
    backend: Backend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    inlining: str,
) -> None:
    steps = {"many": 5, "steps": 300} if backend.catalog in (SQLITE, POSTGRES) else {"many": 2, "steps": 100}
    _run_concurrent_steps(make_lake, backend, capsys, monkeypatch, inlining, looks=2, **steps)


def _run_concurrent_steps(
    make_lake: MakeLake,
    backend: Backend,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    inlining: str,
    *,
    many: int,
    steps: int,
    looks: int,
) -> None:
    scene = without_spark(backend.catalog)
    coverage = Coverage(wanted(scene, exact=False))
    for seed in seeds(many):
        # On MySQL, the engine cannot write the rows that it inlined.
        ours = {} if inlining == "default" and backend.catalog.sql_writes else {"data_inlining_row_limit": 0}
        lake = make_lake(f"seed_{seed}", settings={"threads": 1}, **ours)
        run = Run(lake, scene, seed, coverage, nests=True)
        if inlining == "another program":
            run.add_program(make_lake(f"seed_{seed}", settings={"threads": 1}, data_inlining_row_limit=10))
        for point in BETWEEN:
            monkeypatch.setitem(actions, point, run.between)
        started = time.monotonic()
        run.go(steps, looks=looks, fill=False)
        with capsys.disabled():
            print(f"\n{backend.catalog.name}, {inlining}, seed {seed}: {time.monotonic() - started:.0f} s")
    with capsys.disabled():
        print(coverage.report())


def _run_steps(
    make_lake: MakeLake,
    backend: Backend,
    capsys: pytest.CaptureFixture[str],
    *,
    many: int,
    steps: int,
    looks: int,
    whole: bool,
    encrypted: bool = False,
) -> None:
    scene = without_spark(backend.catalog)
    coverage = Coverage(wanted(scene, exact=whole))
    chosen = seeds(many)
    with capsys.disabled():
        print(f"\n{backend.catalog.name}: DUCKLAKE_ORCH_SEED={chosen[0]}, {many} seeds of {steps} steps")
    for seed in chosen:
        # One thread is as fast for this number of rows, and makes a seed deterministic.
        lake = make_lake(f"seed_{seed}", data_inlining_row_limit=0, settings={"threads": 1}, encrypted=encrypted)
        started = time.monotonic()
        Run(lake, scene, seed, coverage).go(steps, looks=looks, fill=whole and seed == chosen[-1])
        with capsys.disabled():
            print(f"seed {seed}: {time.monotonic() - started:.0f} s")
    with capsys.disabled():
        print(coverage.report())
    # A short run fills only some cells; the coverage is printed.
    assert not (whole and coverage.missing()), f"no step covered {coverage.missing()}"
