"""Every public method of the facade has an example in its docstring, and every example runs."""

import doctest
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ducklake_orch import DuckLake
from ducklake_orch.table import LakeTable

# Internal: opens the session of a verb. Users call `connect`.
INTERNAL = {"reading"}
CLASSES = (DuckLake, LakeTable)
METHODS = [
    (class_, name)
    for class_ in CLASSES
    for name, _ in inspect.getmembers(class_)
    if not name.startswith("_") and name not in INTERNAL
]


def examples(doc: str | None, name: str, globs: dict[str, Any]) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(inspect.cleandoc(doc or ""), globs, name, None, None)


def run(test: doctest.DocTest) -> str:
    """Run examples; return the differences from their expected output."""
    output: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=output.append, clear_globs=False)
    return "".join(output)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The lake in the docstring of `DuckLake`."""
    monkeypatch.chdir(tmp_path)
    before = dict(os.environ)
    globs: dict[str, Any] = {"os": os, "Path": Path}
    setup = examples(DuckLake.__doc__, "DuckLake", globs)
    assert run(setup) == ""
    yield setup.globs
    os.environ.clear()
    os.environ.update(before)


@pytest.mark.parametrize(("owner", "name"), METHODS, ids=[f"{owner.__name__}.{name}" for owner, name in METHODS])
def test_the_example_of_a_method_runs(shop: dict[str, Any], owner: type, name: str) -> None:
    test = examples(inspect.getdoc(getattr(owner, name)), name, shop)
    assert test.examples, f"{owner.__name__}.{name} has no example"
    assert run(test) == ""


def test_a_method_with_more_than_ten_arguments_explains_them() -> None:
    for owner, name in METHODS:
        method = inspect.getattr_static(owner, name)
        if inspect.isfunction(method) and len(inspect.signature(method).parameters) > 11:  # including `self`
            assert "arguments" in (inspect.getdoc(method) or "").split("Args:")[0], name
