"""Every error class is explained on the page of errors, at the place that its instances name."""

import inspect
import re

import pytest

from ducklake_orch import errors
from tests.docs.pages import REPOSITORY

PAGE = REPOSITORY / "docs" / "errors.md"
KINDS = {
    name: item
    for name, item in inspect.getmembers(errors, inspect.isclass)
    if issubclass(item, errors.DuckLakeOrchError | UserWarning) and item.__module__ == errors.__name__
}
# What a page calls its headings: their text, in lower case.
SECTIONS = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", KINDS)
def test_every_class_has_its_place_with_symptom_and_remedy(name: str) -> None:
    kind, text = KINDS[name], SECTIONS.get(name, "")
    assert "- **Seen**: " in text
    assert "- **Do**: " in text
    if issubclass(kind, errors.TransientError | errors.TerminalError) and kind.__base__ is not errors.DuckLakeOrchError:
        assert text.strip().startswith(f"{kind.family.capitalize()}. ")
    if issubclass(kind, errors.DuckLakeOrchError):
        assert kind("x").docs == f"docs/errors.md#{name.lower()}"
        assert (REPOSITORY / kind("x").docs.partition("#")[0]).samefile(PAGE)


def test_no_class_is_explained_that_is_not_there() -> None:
    assert set(SECTIONS) == set(KINDS)


def test_a_kind_of_another_kind_says_so() -> None:
    for name, kind in KINDS.items():
        base = kind.__base__
        assert base is not None
        if base.__name__ in KINDS and base not in (
            errors.DuckLakeOrchError,
            errors.TerminalError,
            errors.TransientError,
        ):
            assert f"A `{base.__name__}`." in SECTIONS[name], name
