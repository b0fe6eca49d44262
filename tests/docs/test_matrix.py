"""What the page of compatibility calls proven is proven by tests that there are, where they run."""

import pytest

from tests.docs import matrix
from tests.docs.matrix import Place


@pytest.fixture(scope="module")
def places() -> dict[str, set[Place]]:
    return matrix.collect(matrix.named_tests(matrix.load()))


def test_every_test_that_is_named_is_there(places: dict[str, set[Place]]) -> None:
    assert [test for test in matrix.named_tests(matrix.load()) if test not in places] == []


def test_who_says_where_runs_nowhere_else(places: dict[str, set[Place]]) -> None:
    data = matrix.load()
    for feature in data["feature"]:
        for test in (one for engine in data["engines"] for one in feature.get(engine, [])):
            name, at, _ = test.partition(" @ ")
            assert bool(at) != bool(places[name]), f"{name}: say `@ catalog-storage` where its node ids do not"


def test_the_page_has_the_matrix_as_it_is(places: dict[str, set[Place]]) -> None:
    assert matrix.written() == matrix.matrix(matrix.load(), places), "run: python -m tests.docs.matrix"


def test_reasons_are_on_the_page() -> None:
    page = matrix.PAGE.read_text("utf-8")
    for feature in matrix.load()["feature"]:
        for reasons in feature.get("no", {}).values():
            assert all(f"\n{number}. " in page for number in reasons.values())
