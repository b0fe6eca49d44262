"""The compatibility matrix names existing tests, and the backends on which they run."""

import pytest

from tests.docs import matrix
from tests.docs.matrix import Place


@pytest.fixture(scope="module")
def places() -> dict[str, set[Place]]:
    return matrix.collect(matrix.named_tests(matrix.load()))


def test_every_named_test_exists(places: dict[str, set[Place]]) -> None:
    assert [test for test in matrix.named_tests(matrix.load()) if test not in places] == []


def test_backends_are_given_only_for_tests_without_them_in_their_node_ids(places: dict[str, set[Place]]) -> None:
    data = matrix.load()
    for feature in data["feature"]:
        for test in (test for engine in data["engines"] for test in feature.get(engine, [])):
            name, at, _ = test.partition(" @ ")
            assert bool(at) != bool(places[name]), (
                f"{name}: add `@ catalog-storage` only if its node ids name no backend"
            )


def test_the_page_has_the_current_matrix(places: dict[str, set[Place]]) -> None:
    assert matrix.written() == matrix.matrix(matrix.load(), places), "run: python -m tests.docs.matrix"


def test_reasons_are_on_the_page() -> None:
    page = matrix.PAGE.read_text("utf-8")
    for feature in matrix.load()["feature"]:
        for reasons in feature.get("no", {}).values():
            assert all(f"\n{number}. " in page for number in reasons.values())
